"""Failures of a store are tried again within bounds; answers are passed on."""

from __future__ import annotations

import threading
from contextlib import closing
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ConfigError, ExistsError, NotFoundError, StoreError
from litelog.stores.object_store import ByteRange
from litelog.stores.retrying_store import DELETE_KEYS, READING, RetryingStore, RetryPolicy
from replica_clients.conformance.checks import read
from replica_clients.memory import MemoryStore
from tests.builders.manual_clock import ManualClock
from tests.builders.stores import WAIT_SECONDS, CountingStore, Fault, FaultyStore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Buffer

POLICY = RetryPolicy(attempts=4, total_seconds=30, first_seconds=0.5, longest_seconds=3)
BODY = bytes(range(256)) * 50


class Waits:
    """Records waits instead of waiting."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __call__(self, seconds: float) -> bool:
        self.seconds.append(seconds)
        return False


class Outage(MemoryStore):
    """Fails for a number of seconds of a clock that waits and requests advance."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.began = self.clock.monotonic()
        self.seconds = seconds
        self.tried: list[float] = []

    def wait(self, seconds: float) -> bool:
        self.clock.advance(seconds)
        return False

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        self.clock.advance(0.001)
        self.tried.append(self.clock.monotonic() - self.began)
        if self.tried[-1] < self.seconds:
            raise StoreError("put", key, "injected: outage")
        super().put(key, body, create_only=create_only)


@pytest.mark.parametrize("seed", range(50))
def test_an_outage_of_the_time_that_a_person_waits_is_waited_for(seed: int) -> None:
    store = Outage(16)
    RetryingStore(store, threading.Event(), None, Random(seed), store.wait, store.clock).put("key", [b"body"])
    assert read(store, "key") == b"body"
    assert len(store.tried) < READING.attempts / 2, "the time limit must end it, not the number of attempts"


@pytest.mark.parametrize("seed", range(20))
def test_an_outage_longer_than_the_retry_time_is_raised(seed: int) -> None:
    store = Outage(3600)
    with pytest.raises(StoreError, match="injected: outage"):
        RetryingStore(store, threading.Event(), None, Random(seed), store.wait, store.clock).put("key", [b"body"])
    assert 19 < store.tried[-1] < 20.01
    assert all(later - earlier < 10.01 for earlier, later in pairwise(store.tried))


def test_requests_of_one_outage_wait_together() -> None:
    """Otherwise each of a thousand objects, read one by one, would wait as long as the first one."""
    store = Outage(3600)
    retrying = RetryingStore(store, threading.Event(), None, Random(1), store.wait, store.clock)

    def attempts(key: str) -> int:
        before = len(store.tried)
        with pytest.raises(StoreError):
            retrying.put(key, [b"body"])
        return len(store.tried) - before

    assert attempts("first") > 5
    assert attempts("second") == 1
    assert attempts("third") == 1
    store.clock.advance(READING.total_seconds + 1)
    assert attempts("a request in another hour") > 5
    assert attempts("and the next") == 1
    store.clock.advance(3600)
    retrying.put("answered", [b"body"])
    store.seconds = 1e9
    assert attempts("after an answer") > 5
    with pytest.raises(NotFoundError):
        retrying.open("an answer, too")
    assert attempts("after that") > 5


class Setup:
    """A retrying store over a counting store over a faulty store."""

    def __init__(self, seed: int = 0, policy: RetryPolicy = POLICY, **script: list[Fault]) -> None:
        self.memory = MemoryStore()
        self.faulty = FaultyStore(self.memory, script=script)
        self.counting = CountingStore(self.faulty)
        self.waits = Waits()
        self.store = RetryingStore(self.counting, threading.Event(), policy, Random(seed), self.waits)


def test_a_put_that_fails_is_tried_again() -> None:
    setup = Setup(put=[Fault.BEFORE, Fault.BEFORE])
    setup.store.put("key", [b"bo", b"dy"])
    assert read(setup.memory, "key") == b"body"
    assert len(setup.waits.seconds) == 2


def test_a_put_whose_answer_was_lost_shows_that_the_key_is_taken() -> None:
    setup = Setup(put=[Fault.AFTER])
    with pytest.raises(ExistsError):
        setup.store.put("key", [b"body"])
    assert read(setup.memory, "key") == b"body"
    assert setup.counting.requests["put"] == 2


def test_the_last_error_is_raised_when_the_attempts_are_used_up() -> None:
    setup = Setup(put=[Fault.BEFORE] * 9)
    with pytest.raises(StoreError, match="put key: injected: before"):
        setup.store.put("key", [b"body"])
    assert setup.counting.requests["put"] == POLICY.attempts


def test_answers_are_not_tried_again() -> None:
    setup = Setup()
    setup.store.put("key", [b"body"])
    with pytest.raises(NotFoundError):
        setup.store.open("missing")
    with pytest.raises(ExistsError):
        setup.store.put("key", [b"body"])
    assert setup.counting.requests == {"put": 2, "open": 1}
    assert setup.waits.seconds == []


class Refusing(MemoryStore):
    """Refuses puts with the errors of a script."""

    def __init__(self, *errors: StoreError) -> None:
        super().__init__()
        self.errors = list(errors)

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        if self.errors:
            raise self.errors.pop(0)
        super().put(key, body, create_only=create_only)


def test_permanent_errors_are_not_retried() -> None:
    waits = Waits()
    inner = Refusing(StoreError("put", "key", "no permission", retryable=False))
    with pytest.raises(StoreError, match="no permission"):
        RetryingStore(inner, threading.Event(), POLICY, wait=waits).put("key", [b"x"])
    assert waits.seconds == []


def test_a_store_that_asks_for_a_pause_gets_it_within_the_total(caplog: pytest.LogCaptureFixture) -> None:
    waits = Waits()
    asked = [StoreError("put", "key", "slow down", retry_after=seconds) for seconds in (12.0, 0.0, 3600.0)]
    store = RetryingStore(Refusing(*asked), threading.Event(), POLICY, Random(1), waits)
    store.put("key", [b"x"])
    assert waits.seconds[0] == 12
    assert 0.5 <= waits.seconds[1] <= 3
    assert 29 < waits.seconds[2] <= POLICY.total_seconds
    (line,) = caplog.messages
    assert line == f"{store.url}: the store asks to wait 12 s; trying again in 12.0 s: put key: slow down"


def test_each_outage_says_once_that_the_store_asks_for_a_pause(caplog: pytest.LogCaptureFixture) -> None:
    asked = [StoreError("put", "key", "slow down", retry_after=1.0) for _ in range(4)]
    inner = Refusing(*asked[:2])
    store = RetryingStore(inner, threading.Event(), POLICY, Random(1), Waits())
    store.put("one", [b"x"])
    inner.errors = asked[2:]
    store.put("two", [b"x"])
    assert len(caplog.messages) == 2


def test_other_errors_are_not_tried_again() -> None:
    class Misconfigured(MemoryStore):
        def delete(self, keys: object) -> None:
            raise ConfigError(f"cannot delete {keys}")

    counting = CountingStore(Misconfigured())
    store = RetryingStore(counting, threading.Event(), POLICY, wait=Waits())
    with pytest.raises(ConfigError):
        store.delete(["key"])
    assert counting.requests == {"delete": 1}


def test_waits_are_bounded_and_differ() -> None:
    policy = RetryPolicy(attempts=40, first_seconds=0.5, longest_seconds=3)
    setup = Setup(seed=7, policy=policy, put=[Fault.BEFORE] * 39)
    setup.store.put("key", [b"body"])
    waits = setup.waits.seconds
    assert len(waits) == 39
    assert all(0.5 <= wait <= 3 for wait in waits)
    assert all(later <= max(0.5, earlier) * 3 for earlier, later in pairwise(waits))
    assert len(set(waits)) > 10
    other = Setup(seed=8, policy=policy, put=[Fault.BEFORE] * 39)
    other.store.put("key", [b"body"])
    assert other.waits.seconds != waits


def test_no_attempt_starts_when_the_time_is_over() -> None:
    setup = Setup(policy=RetryPolicy(attempts=100, total_seconds=0), put=[Fault.BEFORE] * 100)
    with pytest.raises(StoreError):
        setup.store.put("key", [b"body"])
    assert setup.counting.requests["put"] == 1


def test_a_stop_ends_the_wait_at_once() -> None:
    stop, waiting = threading.Event(), threading.Event()

    def wait(seconds: float) -> bool:
        assert seconds > 0
        waiting.set()
        return stop.wait(WAIT_SECONDS)

    counting = CountingStore(FaultyStore(MemoryStore(), script={"put": [Fault.BEFORE] * 9}))
    store = RetryingStore(counting, stop, POLICY, wait=wait)
    failures: list[StoreError] = []

    def put() -> None:
        try:
            store.put("key", [b"body"])
        except StoreError as error:
            failures.append(error)

    thread = threading.Thread(target=put)
    thread.start()
    assert waiting.wait(WAIT_SECONDS)
    stop.set()
    thread.join(WAIT_SECONDS)
    assert not thread.is_alive()
    assert [str(error) for error in failures] == ["put key: injected: before"]
    assert counting.requests["put"] == 1


def test_after_a_stop_nothing_is_tried_twice() -> None:
    stop = threading.Event()
    stop.set()
    counting = CountingStore(FaultyStore(MemoryStore(), script={"put": [Fault.BEFORE] * 9}))
    with pytest.raises(StoreError):
        RetryingStore(counting, stop, POLICY).put("key", [b"body"])
    assert counting.requests["put"] == 1


@pytest.mark.parametrize("byte_range", [None, ByteRange(0, 9000), ByteRange(100), ByteRange(5000, 999_999)])
def test_a_stream_that_breaks_continues_where_it_was(byte_range: ByteRange | None) -> None:
    setup = Setup(open=[Fault.BREAK, Fault.BREAK, Fault.BEFORE])
    setup.memory.put("key", [BODY])
    pieces = []
    with closing(setup.store.open("key", byte_range)) as stream:
        while piece := stream.read(700):
            pieces.append(piece)
    assert b"".join(pieces) == read(setup.memory, "key", byte_range)
    assert setup.counting.requests["open"] == 4


def test_a_stream_is_read_whole_though_it_breaks() -> None:
    setup = Setup(open=[Fault.BREAK, Fault.BREAK])
    setup.memory.put("key", [BODY])
    with setup.store.open("key") as stream:
        assert stream.read() == BODY
    setup.store.close()


def test_a_stream_that_keeps_breaking_ends_with_the_error() -> None:
    setup = Setup(open=[Fault.BREAK] * 99)
    setup.memory.put("key", [b"x"])
    with setup.store.open("key") as stream, pytest.raises(StoreError, match="read key: injected: connection reset"):
        stream.read(10)


def test_a_listing_that_breaks_continues_after_the_last_key() -> None:
    setup = Setup(list=[Fault.BREAK, Fault.BEFORE, Fault.BREAK, Fault.NONE])
    keys = [f"key/{number}" for number in range(6)]
    for key in keys:
        setup.memory.put(key, [b"x"])
    assert [info.key for info in setup.store.list("key/", "key/0")] == keys[1:]
    assert setup.counting.requests["list"] == 4


@pytest.mark.slow
def test_deletions_are_tried_again_in_parts() -> None:
    setup = Setup(delete=[Fault.NONE, Fault.AFTER, Fault.BEFORE])
    keys = [f"{number:05}" for number in range(DELETE_KEYS * 2 + 1)]
    for key in keys:
        setup.memory.put(key, [])
    setup.store.delete(iter(keys[:-1]))
    assert [info.key for info in setup.memory.list("")] == keys[-1:]
    assert setup.counting.requests["delete"] == 4
