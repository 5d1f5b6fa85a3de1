"""The configuration of deletion: ``retention`` of a replica, ``truncate`` of a log."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, model_validator

from litelog.config.values import (
    MODEL,
    Count,
    read_bytes,
    read_seconds,
)
from litelog.log.truncation import TruncationPolicy
from litelog.retention.policy import RetentionPolicy

MAX_AGE = 100 * 365 * 86400.0
"""Seconds. A larger value is a mistake in the unit."""


def _age(seconds: float) -> float:
    if not 0 <= seconds <= MAX_AGE:
        raise ValueError("must be from 0s to 36500d")
    return seconds


def _at_least_zero(size: int) -> int:
    if size < 0:
        raise ValueError("must be 0 or more")
    return size


Age = Annotated[float, BeforeValidator(read_seconds), AfterValidator(_age)]
Bytes = Annotated[int, BeforeValidator(read_bytes), AfterValidator(_at_least_zero)]


class RetentionConfig(BaseModel):
    """How much of its past a replica keeps; without a limit, everything."""

    model_config = MODEL

    max_age: Age | None = None
    """Seconds. Every state of the log during this time stays restorable."""
    max_bytes: Bytes | None = None
    """Compressed bytes of the replica; the oldest objects are deleted first."""
    max_snapshots: Count | None = None
    min_snapshots: Count = 1
    """This many of the newest snapshots stay, with all that they name, regardless of the limits."""

    @model_validator(mode="after")
    def _check(self) -> RetentionConfig:
        self.policy()
        return self

    def policy(self) -> RetentionPolicy:
        """As the library's type. Raises ValueError for limits that contradict each other."""
        return RetentionPolicy(self.max_age, self.max_bytes, self.max_snapshots, self.min_snapshots)


class TruncateConfig(BaseModel):
    """How much of itself a log keeps once every replica has the rest."""

    model_config = MODEL

    max_bytes: Bytes | None = None
    """Uncompressed bytes of the log's folder."""
    max_age: Age | None = None
    """Seconds since the last replica received the last bytes of a log segment."""

    @model_validator(mode="after")
    def _check(self) -> TruncateConfig:
        self.policy()
        return self

    def policy(self) -> TruncationPolicy:
        """As the library's type. Raises ValueError if it limits nothing."""
        return TruncationPolicy(self.max_bytes, self.max_age)
