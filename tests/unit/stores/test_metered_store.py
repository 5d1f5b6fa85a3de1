"""Requests are counted by their results, and the results and errors of a store are passed on."""

from __future__ import annotations

import pytest

from litelog.errors import ExistsError, NotFoundError, StoreError
from litelog.stores.metered_store import BOUNDS, Durations, Histogram, MeteredStore, RequestMeter
from litelog.stores.object_store import ByteRange
from replica_clients.memory import MemoryStore
from tests.builders.manual_clock import ManualClock
from tests.builders.stores import Fault, FaultyStore


@pytest.mark.slow
def test_each_request_is_counted_by_kind_and_result() -> None:
    meter = RequestMeter(ManualClock())
    faulty = FaultyStore(MemoryStore("memory://metered"), {"put": [Fault.NONE, Fault.NONE, Fault.AFTER]})
    store = MeteredStore(faulty, meter)
    store.put("a/b", [b"one"])
    with pytest.raises(ExistsError):
        store.put("a/b", [b"two"])
    with pytest.raises(StoreError, match="injected"):
        store.put("a/c", [b"three"])
    assert store.open("a/b", ByteRange(1, 2)).read() == b"ne"
    with pytest.raises(NotFoundError):
        store.open("none")
    assert [info.key for info in store.list("a/")] == ["a/b", "a/c"]
    assert list(store.list("none/")) == []
    store.delete(["a/b"])
    assert meter.requests == {
        ("put", "ok"): 1,
        ("put", "exists"): 1,
        ("put", "error"): 1,
        ("get", "ok"): 1,
        ("get", "not_found"): 1,
        ("list", "ok"): 2,
        ("delete", "ok"): 1,
    }
    assert {kind: durations.observed for kind, durations in meter.durations.items()} == {
        "put": 3,
        "get": 2,
        "list": 2,
        "delete": 1,
        "lock": 0,
    }


@pytest.mark.slow
def test_a_histogram_counts_each_duration_once_and_adds_up() -> None:
    one, other = Histogram(), Histogram()
    for bound in BOUNDS:
        one.observe(bound)
    one.observe(2 * BOUNDS[-1])
    other.observe(0.0)
    assert one.read().counts == (1,) * (len(BOUNDS) + 1)
    both = one.read() + other.read()
    assert both.counts == (2, *(1,) * len(BOUNDS))
    assert both.observed == len(BOUNDS) + 2
    assert both.total == pytest.approx(sum(BOUNDS) + 2 * BOUNDS[-1])
    assert Durations() + Durations() == Durations()
