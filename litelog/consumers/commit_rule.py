"""CommitRule: when a consumer commits automatically."""

from __future__ import annotations

from litelog.dataclass import dataclass
from litelog.errors import ConfigError


@dataclass(frozen=True, slots=True)
class CommitRule:
    """Commits are due after a number of processed records, or some time after the last commit. Raises ConfigError for
    less than one record, or a negative time."""

    records: int | None
    """None: no number of records makes a commit due."""
    seconds: float | None
    """None: no time makes a commit due."""

    def __post_init__(self) -> None:
        if (self.records is not None and self.records < 1) or (self.seconds is not None and self.seconds < 0):
            raise ConfigError("commit after at least 1 record, and after 0 seconds or more")

    @property
    def commits(self) -> bool:
        """Whether the consumer ever commits automatically."""
        return self.records is not None or self.seconds is not None

    def is_due(self, uncommitted: int, seconds: float) -> bool:
        """Whether to commit that many records, ``seconds`` after the last commit."""
        if not uncommitted:
            return False
        enough = self.records is not None and uncommitted >= self.records
        return enough or (self.seconds is not None and seconds >= self.seconds)
