"""ReaderLimits: how much the readers of served logs may use, and what the limits have done.

Specified in litelog/live/README.md#limits.
"""

from __future__ import annotations

import threading
from dataclasses import field, replace
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from litelog.live.mirrors import MirrorStatus


@dataclass(frozen=True, slots=True)
class ReaderLimits:
    """The limits. None: no limit."""

    readers: int = 256
    """The most concurrent readers."""
    rate: int | None = None
    """The most bytes in a second that one reader gets, on average."""
    size: int | None = None
    """The most bytes of one stream. It ends after the piece that reaches this number, and the client asks for more."""

    def without_size(self) -> ReaderLimits:
        """These limits for the answer to a request that ends without them."""
        return replace(self, size=None)


@dataclass(eq=False)
class LimitCounts:
    """Counts the effects of the limits since the daemon started. Any thread may use it."""

    refused: int = 0
    """Readers that were refused, as there were too many."""
    slowed_seconds: float = 0.0
    """For how many seconds streams waited, to keep to the rate."""
    ended: int = 0
    """Streams that ended at the limit of their size."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, *, refused: int = 0, slowed_seconds: float = 0.0, ended: int = 0) -> None:
        """Count."""
        with self._lock:
            self.refused += refused
            self.slowed_seconds += slowed_seconds
            self.ended += ended


@dataclass(frozen=True, slots=True)
class ServingStatus:
    """The readers and mirrors of all served logs at one time. The mappings are by the logs' folders."""

    limits: ReaderLimits
    refused: int
    slowed_seconds: float
    ended: int
    readers: Mapping[str, int]
    """How many read each log."""
    sent_bytes: Mapping[str, int]
    """How many bytes the readers of each log got since the daemon started."""
    mirrors: Mapping[str, Sequence[MirrorStatus]]
    mirror_waits: Mapping[str, float | None]
    """As ``LiveLog.mirror_wait``, for each log that has mirrors."""
