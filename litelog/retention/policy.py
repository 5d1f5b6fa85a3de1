"""Retention policies: how much of its past a replica keeps."""

from __future__ import annotations

from dataclasses import dataclass

GRACE_SECONDS = 3600
"""No point younger than this goes, whatever a policy says: who was suspended for longer knows nothing."""

MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """The limits. One that is None is none; where there are several, the first to be reached counts."""

    max_age: float | None = None
    """Seconds. Every state that the log was in since then can be restored."""
    max_bytes: int | None = None
    """Bytes of the replica's objects; the oldest go first."""
    max_snapshots: int | None = None
    min_snapshots: int = 1
    """So many of the newest snapshots stay, with all that they name, whatever the limits say."""

    def __post_init__(self) -> None:
        """ValueError for limits that leave nothing, or contradict each other."""
        if self.min_snapshots < 1:
            raise ValueError("min-snapshots must be at least 1")
        if self.max_age is not None and self.max_age < GRACE_SECONDS:
            raise ValueError("max-age must be at least 1h")
        if self.max_bytes is not None and self.max_bytes <= 0:
            raise ValueError("max-bytes must be more than 0")
        if self.max_snapshots is not None and self.max_snapshots < self.min_snapshots:
            raise ValueError(f"max-snapshots must be at least min-snapshots, which is {self.min_snapshots}")

    @property
    def limits(self) -> bool:
        """Whether there is any limit."""
        return (self.max_age, self.max_bytes, self.max_snapshots) != (None, None, None)

    def window_start(self, now: int) -> int | None:
        """Since when every state stays restorable, microseconds since 1970; None for always."""
        return None if self.max_age is None else now - int(self.max_age * MICROSECONDS)


def grace_start(now: int) -> int:
    """Since when nothing goes by any limit, microseconds since 1970."""
    return now - GRACE_SECONDS * MICROSECONDS
