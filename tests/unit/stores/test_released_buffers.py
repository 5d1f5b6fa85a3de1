"""What failed keeps nothing of what it was sent: errors stay, and the buffers of the calls that raised them do not."""

from __future__ import annotations

import gc
import threading
import weakref
from traceback import format_exception
from typing import TYPE_CHECKING

import pytest

from litelog.errors import StoreError, release
from litelog.shipping.background_job import SealingJob
from litelog.stores.retrying_store import RetryingStore, RetryPolicy
from replica_clients.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from typing_extensions import Buffer


class Body(bytearray):
    """Of which one can tell whether it is still there."""


class FullStore(MemoryStore):
    """Has no room, as an operating system says it: by an error with a cause."""

    def __init__(self) -> None:
        super().__init__("full")
        self.asked = 0

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        self.asked += 1
        held = list(body)
        try:
            self._write(held)
        except OSError as error:
            raise StoreError("put", key, str(error), retryable=True) from error

    def _write(self, held: list[Buffer]) -> None:
        written = [memoryview(each) for each in held]
        raise OSError(28, f"{len(written)} do not fit")


@pytest.fixture(autouse=True)
def _without_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_a_request_that_was_tried_in_vain_keeps_no_body() -> None:
    full, body = FullStore(), Body(1000)
    there = weakref.ref(body)
    store = RetryingStore(full, threading.Event(), RetryPolicy(attempts=3, first_seconds=0.0, longest_seconds=0.0))
    said = ""
    try:
        store.put("key", [body])
    except StoreError as error:
        said = "".join(format_exception(error))  # where it came from can still be told
    del body
    assert full.asked == 3
    assert "do not fit" in said
    assert "in _write" in said
    assert there() is None


def test_a_sealing_that_failed_keeps_no_body() -> None:
    full, done = FullStore(), threading.Event()
    there: list[weakref.ref[Body]] = []

    def make(task: str, _before: None) -> None:
        body = Body(1000)
        there.append(weakref.ref(body))
        full.put(task, [body])

    job = SealingJob(["a"], make, width=1, submit=lambda work: work(), on_done=done.set)
    job.start()
    assert done.is_set()
    assert isinstance(job.outcome().error, StoreError)
    assert [each() for each in there] == [None]


def test_an_error_that_was_never_raised_has_nothing_to_let_go() -> None:
    error = StoreError("put", "key", "never")
    release(error)
    assert error.__traceback__ is None
