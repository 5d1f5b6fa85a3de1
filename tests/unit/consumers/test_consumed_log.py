"""Finds a time in a log that has several sources: sources that are not needed are not asked."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from litelog.consumers.consumed_log import open_consumed_log
from litelog.errors import StoreError
from litelog.stores.registry import register_object_store
from tests.builders.log_builder import make_log
from tests.unit.consumers.conftest import NOON

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MICROSECONDS = 1_000_000


def minute(number: float) -> int:
    return int((NOON + timedelta(minutes=number)).timestamp() * MICROSECONDS)


@pytest.fixture
def opened() -> list[str]:
    """The URLs of the replicas that were opened. None can be read."""
    urls = list[str]()

    def open_away(url: str, _options: Mapping[str, object]) -> None:
        urls.append(url)
        raise StoreError("open", url, "is away", retryable=False)

    register_object_store("away", open_away)  # type: ignore[arg-type]
    return urls


def test_a_time_that_the_folder_holds_is_found_without_the_replicas(orders: str, opened: list[str]) -> None:
    log = open_consumed_log(orders, [("away://", {})], None, None, None)
    places = {0: 0, -5: 0, 3: 3, 3.5: 4, 9: 9, 9.5: 10, 99: 10}
    assert {at: log.find_time(minute(at)) for at in places} == places
    assert opened == []


def test_a_time_before_the_folder_is_looked_for_in_the_replicas(tmp_path: Path, opened: list[str]) -> None:
    builder = make_log(tmp_path / "log")
    builder.roll(3)
    builder.delete(min(builder.texts))
    log = open_consumed_log(builder.folder, [("away://", {})], None, None, None)
    with pytest.raises(StoreError, match="is away"):
        log.find_time(1)
    assert opened == ["away://"]
