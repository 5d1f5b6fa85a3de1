"""Runs a stream over a journal of Gazette in the driver: finds fragments as they appear, and sizes each batch.

An offset is a number of bytes from the start of the journal. A batch ends where a fragment ends.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from litelog.dataclass import dataclass
from litelog.errors import ConfigError, NothingToRestoreError, UnknownVersionError
from litelog.events import fields
from litelog.fragments.cover import MAX_OFFSET, find_cover, list_fragments
from litelog.fragments.following import GAP_SECONDS, JournalFollower
from litelog.fragments.reader import JournalGapError
from litelog.spark.scan.journal import GAZETTE, deal_spans, journal_columns
from litelog.spark.scan.task import open_client
from litelog.system.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from litelog.fragments.cover import Span
    from litelog.spark.scan.journal import JournalPartition
    from litelog.spark.stream.batching import Budget
    from litelog.spark.stream.options import StreamOptions
    from litelog.stores.object_store import ObjectStore
    from litelog.system.clock import Clock

_logger = logging.getLogger(__name__)

VERSION = 1


@dataclass(slots=True)
class _Ahead:
    """The known part of the journal from an offset on that is not in a batch yet."""

    at: int
    spans: list[Span]
    follower: JournalFollower


class JournalStream:
    """Answers Spark's requests to a stream's driver, as ``StreamFollower`` does. For one thread."""

    def __init__(self, options: StreamOptions, *, clock: Clock | None = None, store: ObjectStore | None = None) -> None:
        """Create it. ``store``: holds the fragments; for tests.

        Raises ConfigError for an option that a journal does not have.
        """
        journal_columns(options.read)
        for what, given in {
            "startingTimestamp": options.start.time is not None,
            "bounds for single logs": bool(options.starts),
            "maxRecordsPerTrigger": options.max_records is not None,
        }.items():
            if given:
                raise ConfigError(f"format={GAZETTE}: the fragments of a journal are read without {what}")
        self._options = options
        self._monotonic = (clock or SystemClock()).monotonic
        self._stop = threading.Event()
        (url,) = options.read.paths
        self._store = store or open_client(url, options.read.store, self._stop).store
        self._ahead: _Ahead | None = None
        self._due = float("-inf")
        self._target: int | None = None

    def close(self) -> None:
        """End retries. Idempotent."""
        self._stop.set()

    def initial(self) -> dict[str, Any]:
        """The offset before all records. It is a constant.

        The first batch is empty, and its end records where the stream begins.
        """
        return _encode(None)

    def prepare(self) -> None:
        """Let the stream end where the fragments end now."""
        self._target = max((span.stop for span in self._cover()), default=-1)

    def latest(self, start: Mapping[str, Any], budget: Budget) -> dict[str, Any]:
        """The end of a batch that begins at ``start``; ``start`` itself if there is nothing new.

        Raises JournalGapError for bytes that no fragment holds, if ``failOnDataLoss``.
        """
        at = _decode(start)
        if at is None:
            return _encode(self._find_begin() if self._is_due() else None)
        ahead = self._seek(at)
        if not ahead.spans and self._is_due() and (self._target is None or at < self._target):
            ahead.spans = ahead.follower.look()
        return _encode(self._take(ahead, budget))

    def report(self) -> dict[str, Any] | None:
        """The end as last seen; None before the first listing. Makes no request."""
        if self._ahead is None:
            return None
        return _encode(self._ahead.spans[-1].stop if self._ahead.spans else self._ahead.at)

    def plan(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> tuple[JournalPartition, ...]:
        """Plan the tasks of a batch. Repeated calls plan the same records, also if other fragments hold them by then.

        Raises JournalGapError for bytes that no fragment holds, if ``failOnDataLoss``.
        """
        first, stop = _decode(start), _decode(end)
        if first is None or stop is None or first == stop:
            return ()
        cover = [span for span in self._cover(stop) if span.stop > first]
        self._require_whole(first, stop, cover)
        return tuple(deal_spans(cover, self._options.read, first, stop))

    def _find_begin(self) -> int | None:
        """The offset at which the stream begins; None while no fragment exists."""
        start = self._options.start
        cover = self._cover()
        if not cover:
            return None
        if start.is_latest:
            return cover[-1].stop
        if start.sequence is None:
            return cover[0].start
        self._require_whole(start.sequence, start.sequence, cover[:1])
        return max(start.sequence, cover[0].start)

    def _seek(self, at: int) -> _Ahead:
        if self._ahead is None or self._ahead.at != at:
            patience = GAP_SECONDS if self._target is None else 0.0
            self._ahead = _Ahead(at, [], JournalFollower(self._store, self._monotonic, at, patience))
            self._due = float("-inf")
        return self._ahead

    def _take(self, ahead: _Ahead, budget: Budget) -> int:
        """Move past the spans of the next batch, at least one if there is any, and return where they end."""
        while ahead.spans and (self._target is None or ahead.at < self._target):
            span = ahead.spans[0]
            size = span.stop - span.start
            if budget.taken and not (budget.has_files and budget.holds(size, 0)):
                break
            self._require_whole(ahead.at, span.stop, [span])
            budget.spend_bytes(size)
            ahead.at = ahead.spans.pop(0).stop
        return ahead.at

    def _is_due(self) -> bool:
        """Whether the fragments may be listed again."""
        now = self._monotonic()
        if now < self._due:
            return False
        self._due = now + self._options.poll_interval
        return True

    def _cover(self, stop: int | None = None) -> list[Span]:
        """The spans from the first byte that a fragment holds to ``stop``."""
        try:
            return find_cover(list_fragments(self._store), stop=stop)
        except NothingToRestoreError:
            return []

    def _require_whole(self, start: int, stop: int, spans: Sequence[Span]) -> None:
        """Raise JournalGapError if ``spans`` do not hold all bytes [start, stop); only log it if not
        ``failOnDataLoss``."""
        at = start
        for begin, end in [*((span.start, span.stop) for span in spans), (stop, stop)]:
            if at < begin:
                error = JournalGapError(self._store.url, at, begin)
                if self._options.read.fail_on_data_loss:
                    raise error
                message = "%s; skipped because of failOnDataLoss=false"
                _logger.warning(message, error, extra=fields("data-lost", log=self._store.url))
            at = end


def _encode(offset: int | None) -> dict[str, Any]:
    """Equal offsets are equal text, since Spark compares them so."""
    return {"version": VERSION, "journal": offset}


def _decode(written: Mapping[str, Any]) -> int | None:
    """Decode what ``_encode`` returned.

    Raises UnknownVersionError for offsets of a newer litelog, and ConfigError for any other text.
    """
    version = written.get("version") if isinstance(written, dict) else None
    if type(version) is int and version > VERSION:
        raise UnknownVersionError("the stream's checkpoint", "offsets", VERSION, version)
    offset = written.get("journal", "none") if isinstance(written, dict) else "none"
    if version != VERSION or not (offset is None or (type(offset) is int and 0 <= offset <= MAX_OFFSET)):
        raise ConfigError(
            f"the stream's checkpoint has no valid offset of a journal: {str(written)[:200]}. If it is that of another "
            "stream, choose another checkpointLocation"
        )
    return offset if isinstance(offset, int) else None
