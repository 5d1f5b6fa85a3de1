"""How long the daemon leaves a replica alone: as its store asks, and for long where nothing but help will do."""

from __future__ import annotations

from random import Random

import pytest

from litelog.errors import ExistsError, LitelogError, NotFoundError, SourceMissingError, StoreError
from litelog.shipping.back_off import MAX_DELAY_SECONDS, MAX_RETRY_AFTER_SECONDS
from litelog.shipping.replica_task import Phase, ReplicaTask


def wait_after(error: LitelogError) -> float:
    """Seconds until a replica is due again after its first failure."""
    task = ReplicaTask("/log", "memory://x", None, 1.0, 1.0, 1)
    task.fail(error, 100.0, Random(1))
    assert task.phase is Phase.BACKING_OFF
    assert task.error is error
    return task.due - 100.0


@pytest.mark.parametrize(
    "error", [StoreError("put", "x", "503"), SourceMissingError("/log", "gone"), NotFoundError("x"), ExistsError("x")]
)
def test_what_may_pass_is_tried_again_soon(error: LitelogError) -> None:
    assert wait_after(error) < 1


def test_what_will_not_pass_is_tried_again_at_the_longest_delay() -> None:
    assert wait_after(StoreError("put", "x", "no permission", retryable=False)) == MAX_DELAY_SECONDS


def test_a_store_is_left_alone_for_as_long_as_it_asks_but_not_for_ever() -> None:
    assert wait_after(StoreError("put", "x", "slow down", retry_after=75.0)) == 75
    assert wait_after(StoreError("put", "x", "slow down", retry_after=1e6)) == MAX_RETRY_AFTER_SECONDS
