"""Conditional requests of the S3 store, with servers that support them and servers that say they do not."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("boto3")

from litelog.errors import StoreError
from litelog.stores.object_store import NotSupportedError
from replica_clients.s3 import open_store
from tests.builders.servers import CREDENTIALS, REGION, Answer, Request, ScriptedServer, error_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from replica_clients.s3 import S3Store


@contextmanager
def store_at(answer: Callable[[Request], Answer]) -> Iterator[tuple[S3Store, list[Request]]]:
    """A store whose server answers with ``answer``, and the requests that arrive."""
    with ScriptedServer(answer) as server:
        store = open_store("s3://bucket/logs", {"endpoint": server.endpoint, "region": REGION, **CREDENTIALS})
        try:
            yield store, server.requests
        finally:
            store.close()


def not_implemented(request: Request) -> Answer:
    """The answer of some stores to every header that they do not know."""
    if {"if-none-match", "if-match"} & request.headers.keys():
        return error_answer(501, "NotImplemented", "A header you provided implies functionality that is not there")
    return Answer(204 if request.method == "DELETE" else 200, b"", {"ETag": '"tag"'})


def test_a_server_without_create_only_puts_is_named_and_takes_plain_ones() -> None:
    with store_at(not_implemented) as (store, requests):
        with pytest.raises(
            NotSupportedError, match=r"put key: no create-only put \(If-None-Match\).*A header"
        ) as caught:
            store.put("key", [b"x"])
        assert not caught.value.retryable
        store.put("key", [b"x"], create_only=False)
    assert ["if-none-match" in request.headers for request in requests] == [True, False]


def test_a_server_that_does_not_implement_a_plain_put_is_another_matter() -> None:
    with (
        store_at(lambda _: error_answer(501, "NotImplemented")) as (store, _),
        pytest.raises(StoreError, match="NotImplemented") as caught,
    ):
        store.put("key", [b"x"], create_only=False)
    assert not isinstance(caught.value, NotSupportedError)
