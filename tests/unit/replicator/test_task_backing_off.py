"""How long the daemon leaves a replica alone: as its store asks, and for long where nothing but help will do."""

from __future__ import annotations

from random import Random

import pytest

from litelog.errors import ExistsError, LitelogError, NotFoundError, SourceMissingError, StoreError
from litelog.replicator.task import Phase, ReplicaTask
from litelog.shipping.backoff import MAX_DELAY_SECONDS, describe_wait


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


def test_a_store_that_asks_for_a_pause_gets_it_up_to_the_longest_delay_of_any_failure() -> None:
    assert wait_after(StoreError("put", "x", "slow down", retry_after=12.0)) == 12
    assert wait_after(StoreError("put", "x", "slow down", retry_after=300.0)) == MAX_DELAY_SECONDS
    assert wait_after(StoreError("put", "x", "slow down", retry_after=1e6)) == MAX_DELAY_SECONDS


def test_a_log_line_says_how_long_the_store_asked_for_and_how_long_the_wait_is() -> None:
    asked = StoreError("put", "x", "slow down", retry_after=600.0)
    assert describe_wait(asked, wait_after(asked)) == "tried again in 30.0 s (the store asked for 600 s)"
    assert describe_wait(StoreError("put", "x", "503"), 0.25) == "tried again in 0.2 s"
