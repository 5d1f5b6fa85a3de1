"""A process keeps no buffers of failed requests in memory, and resumes garbage collection after work without it."""

from __future__ import annotations

import gc
import threading
import weakref
from traceback import format_exception
from typing import TYPE_CHECKING

import pytest

from litelog.errors import StoreError
from litelog.shipping.background_job import SealingJob
from litelog.stores.retrying_store import RetryingStore, RetryPolicy
from litelog.system.memory import clear_error_frames, without_collections
from replica_clients.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from typing_extensions import Buffer


class Body(bytearray):
    """A buffer that supports weak references, so that a test sees whether anything still holds it."""


class FullStore(MemoryStore):
    """A store without room, whose error has an operating system's error as its cause."""

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


@pytest.fixture
def _without_collections() -> Iterator[None]:
    gc.collect()
    with without_collections():
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("_without_collections")
def test_a_request_that_failed_in_all_attempts_keeps_no_body() -> None:
    full, body = FullStore(), Body(1000)
    there = weakref.ref(body)
    store = RetryingStore(full, threading.Event(), RetryPolicy(attempts=3, first_seconds=0.0, longest_seconds=0.0))
    said = ""
    try:
        store.put("key", [body])
    except StoreError as error:
        said = "".join(format_exception(error))  # the traceback still names the source of the error
    del body
    assert full.asked == 3
    assert "do not fit" in said
    assert "in _write" in said
    assert there() is None


@pytest.mark.usefixtures("_without_collections")
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


def test_an_error_that_was_never_raised_has_nothing_to_release() -> None:
    error = StoreError("put", "key", "never")
    clear_error_frames(error)
    assert error.__traceback__ is None


@pytest.mark.slow
def test_collections_continue_after_work_without_them_only_if_they_did_before() -> None:
    assert gc.isenabled()
    with without_collections():
        assert not gc.isenabled()
        with without_collections():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
