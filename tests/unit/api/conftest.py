"""A log and a replica of it, made through the API that programs call."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

import litelog

if TYPE_CHECKING:
    from pathlib import Path

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """The folder of a log with a record a minute, from noon on."""
    folder = tmp_path / "orders"
    with litelog.LogWriter(folder, fsync="never") as writer:
        for minute in range(10):
            writer.append(b"%d" % minute, key=b"k", timestamps=NOON + timedelta(minutes=minute))
    return folder


@pytest.fixture
def backup(orders: Path, tmp_path: Path) -> Path:
    """The folder of its replica."""
    folder = tmp_path / "backup"
    with litelog.replicate(orders, folder, state_dir=tmp_path / "state", sync_interval=0.05) as replication:
        assert replication.wait_synced()
    return folder
