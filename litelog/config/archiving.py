"""The configuration of sealed segments and snapshots: the types of its keys, and their limits."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from litelog.config.fields import read_seconds
from litelog.shipping.claiming import GRACE_SECONDS
from litelog.shipping.settings import SnapshotPolicy

MIN_SNAPSHOT_INTERVAL = 1.0
"""Seconds. A snapshot names every log segment anew."""

MAX_DAYS = 36500
"""More than that is a mistake in the unit."""


def _snapshot_interval(seconds: float) -> float:
    if not MIN_SNAPSHOT_INTERVAL <= seconds <= MAX_DAYS * 86400:
        raise ValueError(f"must be from 1s to {MAX_DAYS}d")
    return seconds


def _wal_retention(seconds: float) -> float:
    if not GRACE_SECONDS <= seconds <= MAX_DAYS * 86400:
        raise ValueError(f"must be from 1h to {MAX_DAYS}d: readers and owners that were suspended rely on the hour")
    return seconds


def _policy(value: Any) -> Any:
    if value in tuple(SnapshotPolicy):
        return SnapshotPolicy(value)
    raise ValueError(f"must be {' or '.join(SnapshotPolicy)}")


SnapshotInterval = Annotated[float, BeforeValidator(read_seconds), AfterValidator(_snapshot_interval)]
SnapshotMode = Annotated[SnapshotPolicy, BeforeValidator(_policy)]
WalRetention = Annotated[float, BeforeValidator(read_seconds), AfterValidator(_wal_retention)]
