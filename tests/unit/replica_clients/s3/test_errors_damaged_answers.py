"""A malformed answer is a retryable failure of the store, and never an unexpected exception."""

from __future__ import annotations

import gc
import warnings
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("boto3")

from litelog.errors import StoreError
from replica_clients.s3 import S3Store, open_store
from replica_clients.s3.settings import read_settings
from tests.builders.servers import CREDENTIALS, REGION, Answer, Request, ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from litelog.stores.object_store import ObjectStore

ENTRY = "<Contents><Key>a</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>12</Size></Contents>"
BEGUN = b"<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>"


def listing(entry: str) -> Answer:
    body = f"<ListBucketResult><Name>bucket</Name><IsTruncated>false</IsTruncated>{entry}</ListBucketResult>"
    return Answer(body=body.encode())


def failure(answer: Callable[[Request], Answer], act: Callable[[S3Store], object]) -> StoreError:
    with ScriptedServer(answer) as server:
        settings = read_settings("s3://bucket", {"endpoint": server.endpoint, "region": REGION, **CREDENTIALS})
        store = S3Store(settings, single_bytes=5, part_bytes=10)
        with pytest.raises(StoreError) as caught:
            act(store)
        store.close()
    assert caught.value.retryable
    return caught.value


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("<Size>12</Size>", "<Size>1r</Size>"),
        ("<Size>12</Size>", "<Size/>"),
        ("<Size>12</Size>", ""),
        ("<Key>a</Key>", ""),
        ("2026-01-01T", "2026-0q-01T"),
        ("</Contents>", "<Contents>"),
        ("</Key>", "</Kex>"),
    ],
)
def test_a_damaged_listing_may_be_asked_for_again(right: str, wrong: str) -> None:
    said = listing(ENTRY.replace(right, wrong))
    assert str(failure(lambda _: said, lambda store: list(store.list("")))).startswith("list: ")


def test_an_exception_of_the_caller_during_a_list_is_not_wrapped() -> None:
    with ScriptedServer(lambda _: listing(ENTRY)) as server:
        settings = read_settings("s3://bucket", {"endpoint": server.endpoint, "region": REGION, **CREDENTIALS})
        with closing(S3Store(settings)) as store:
            found = store.list("")
            next(found)
            with pytest.raises(KeyError):
                found.throw(KeyError("the caller's"))  # type: ignore[attr-defined]


@pytest.mark.parametrize("begun", [b"<InitiateMultipartUploadResult/>", BEGUN])
def test_an_upload_without_a_name_or_a_part_without_a_tag_fails(begun: bytes) -> None:
    def answer(request: Request) -> Answer:
        return Answer(body=begun if request.method == "POST" else b"")

    assert "put key: " in str(failure(answer, lambda store: store.put("key", [b"0123456789"])))


@pytest.fixture
def unread_answer() -> Iterator[None]:
    """botocore leaves the connection to the garbage collector if it cannot parse the headers of an answer. Here the
    collector takes it only while its warning is ignored."""
    gc.disable()
    yield
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()
    gc.enable()


@pytest.mark.usefixtures("unread_answer")
def test_a_header_that_is_damaged_is_a_failure_of_the_request() -> None:
    said = Answer(headers={"Last-Modified": "Thu, 99 Foo 2026", "ETag": '"e"', "x-amz-missing-meta": "many"})
    assert "open key: " in str(failure(lambda _: said, lambda store: store.open("key")))


@contextmanager
def opened(answer: Answer) -> Iterator[tuple[ScriptedServer, ObjectStore]]:
    """A server that always gives that answer, and a store that asks it."""
    with ScriptedServer(lambda _: answer) as server:
        store = open_store("s3://bucket", {"endpoint": server.endpoint, "region": REGION, **CREDENTIALS})
        with closing(store):
            yield server, store


PAGE = b"<html><head><title>Console</title></head><body><p>Log in%s</p></body></html>"


@pytest.mark.parametrize(
    "page",
    [
        PAGE % b"<br>",
        b"\n<!DOCTYPE html>\n" + PAGE % b"<br>",
        b'<?xml version="1.0"?>\n<!DOCTYPE html>\n' + PAGE % b"<br/>",
        PAGE % b"<br/>",
        b"<ListAllMyBucketsResult><Buckets/></ListAllMyBucketsResult>",
        b"<ListBucketResult/>",
        b"",
    ],
)
def test_a_malformed_listing_is_not_an_empty_replica(page: bytes) -> None:
    with opened(Answer(body=page, headers={"Content-Type": "text/html"})) as (server, store):
        with pytest.raises(StoreError) as caught:
            list(store.list(""))
        assert str(caught.value) == f"list: {server.endpoint} does not answer as S3 does: check the endpoint"
        assert not caught.value.retryable


def test_a_page_is_not_an_acknowledgement() -> None:
    with opened(Answer(body=PAGE % b"<br/>")) as (_, store), pytest.raises(StoreError, match="does not answer as S3"):
        store.put("key", [b"x"])


@pytest.mark.parametrize("said", ["<Name>b</Name>", "<IsTruncated>false</IsTruncated>", "<KeyCount>0</KeyCount>"])
def test_an_empty_listing_is_one(said: str) -> None:
    with opened(Answer(body=f"<ListBucketResult>{said}</ListBucketResult>".encode())) as (_, store):
        assert not list(store.list(""))


def test_an_object_may_be_a_page() -> None:
    with opened(Answer(body=PAGE % b"<br>")) as (_, store), store.open("key") as stream:
        assert stream.read() == PAGE % b"<br>"
