"""A log of ten records, and consumers of it that keep their positions in one state folder."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import litelog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)


@pytest.fixture
def orders(tmp_path: Path) -> str:
    """The folder of a log with a record a minute, from noon on."""
    folder = tmp_path / "orders"
    with litelog.LogWriter(folder, fsync="never") as writer:
        for minute in range(10):
            writer.append(b"%d" % minute, key=b"k", timestamps=NOON + timedelta(minutes=minute))
    return str(folder)


@pytest.fixture
def consume(tmp_path: Path, orders: str) -> Iterator[Callable[..., litelog.Consumer]]:
    """Make a consumer of the log, which does not follow it. It is closed at the end."""
    made = []

    def make(name: str = "billing", log: str = orders, **options: Any) -> litelog.Consumer:
        consumer = litelog.Consumer(log, name, **{"follow": False, "state_dir": str(tmp_path / "state"), **options})
        made.append(consumer)
        return consumer

    yield make
    for consumer in made:
        consumer.close()
