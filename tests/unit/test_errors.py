"""Errors: what each one is, which exit code it ends a command with, and that it keeps no buffers in memory."""

from __future__ import annotations

import fcntl
import gc
import os
import threading
import weakref
from traceback import format_exception
from typing import TYPE_CHECKING

import pytest

from litelog.errors import (
    CorruptionError,
    ExitCode,
    FencedError,
    LockedError,
    ReplicaLockedError,
    StoreError,
    UnknownVersionError,
    release,
)
from litelog.log.writer import LogWriter
from litelog.restore.output import OutputFolder
from litelog.shipping.background_job import SealingJob
from litelog.shipping.state import StateFolder
from litelog.stores.retrying_store import RetryingStore, RetryPolicy
from replica_clients.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from typing_extensions import Buffer


def test_a_folder_in_use_is_no_fence_and_a_service_may_start_again(tmp_path: Path) -> None:
    with LogWriter(str(tmp_path / "log")), pytest.raises(LockedError) as caught:
        LogWriter(str(tmp_path / "log"))
    assert not isinstance(caught.value, FencedError)
    assert caught.value.exit_code is ExitCode.FAILURE


def test_a_second_restore_into_one_folder_is_not_fenced(tmp_path: Path) -> None:
    left = tmp_path / ".out.litelog-restoring"
    left.mkdir()
    held = os.open(left, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        with pytest.raises(LockedError) as caught, OutputFolder(str(tmp_path / "out")):
            pass
    finally:
        os.close(held)
    assert caught.value.exit_code is ExitCode.FAILURE


def test_a_replica_that_a_daemon_on_this_host_has_is_fenced(tmp_path: Path) -> None:
    with StateFolder(str(tmp_path), "one"), pytest.raises(ReplicaLockedError) as caught:
        StateFolder(str(tmp_path), "two")
    assert isinstance(caught.value, FencedError)
    assert caught.value.exit_code is ExitCode.FENCED


def test_what_a_newer_litelog_wrote_is_not_corrupt() -> None:
    error = UnknownVersionError("key", "footer", 1, 2)
    assert not isinstance(error, CorruptionError)
    assert error.exit_code is ExitCode.FAILURE
    assert str(error) == "key: version of its footer is 2, expected 1: read it with the litelog that wrote it"


class Body(bytearray):
    """A buffer that can be referred to weakly: so a test sees whether anything still holds it."""


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
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_without_collections")
def test_a_request_that_failed_in_all_attempts_keeps_no_body() -> None:
    full, body = FullStore(), Body(1000)
    there = weakref.ref(body)
    store = RetryingStore(full, threading.Event(), RetryPolicy(attempts=3, first_seconds=0.0, longest_seconds=0.0))
    said = ""
    try:
        store.put("key", [body])
    except StoreError as error:
        said = "".join(format_exception(error))  # the traceback still says where it came from
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
    release(error)
    assert error.__traceback__ is None
