"""The records of one log from several places of it: its daemon, its replicas. While one is away, the next one is read.

Specified in litelog/reading/README.md#several-places-of-a-log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.errors import ConfigError
from litelog.formats.record_stream import RecordStream
from litelog.reading.combined_reader import CombinedReader, replica_source
from litelog.stores.retrying_store import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from litelog.formats.columns import Columns
    from litelog.log.read_bounds import ReadBounds
    from litelog.reading.combined_reader import RecordSource

IMPATIENT = RetryPolicy(attempts=3, total_seconds=0.5)
"""How long a request is repeated if another place may answer."""

ATTEMPTS = 2
"""How often in a row the places may fail for a reader that does not follow."""


def replica_sources(
    addresses: Sequence[tuple[str, Mapping[str, object]]],
    pattern: str | None,
    start_time: int | None = None,
    timeout: float | None = None,
) -> list[RecordSource]:
    """The sources of a log that is read from replicas alone. With several, none is waited for long."""
    retries = IMPATIENT if len(addresses) > 1 else None
    return [
        replica_source(*each, pattern, retries=retries, start_time=start_time, timeout=timeout) for each in addresses
    ]


class SeveralPlaces(RecordStream):
    """The records of a log, read from the first place that can be read. See ``CombinedReader`` for what it promises."""

    def __init__(
        self, sources: Sequence[RecordSource], bounds: ReadBounds, *, follow: bool, timeout: float | None = None
    ) -> None:
        """Prepare to read.

        Args:
            sources: The places. They begin at the start time of ``bounds``, if there is one.
            bounds: Where to begin and end.
            follow: Wait for new records. Without it, reading ends at the end of the first place, or, if that is away,
                of the next readable place.
            timeout: How many seconds ``read`` waits there before it raises NotYetAvailableError; None: for ever. The
                sources wait no longer, either.
        """
        super().__init__()
        self.url = sources[0].name
        start = 0 if bounds.start_time is not None else bounds.start
        attempts = None if follow else ATTEMPTS
        self._reader = CombinedReader(
            sources, start=start, end=bounds.end, follow=follow, attempts=attempts, timeout=timeout
        )
        self._end_time = bounds.end_time
        self._ended = False

    def read(self) -> Columns | None:
        """Read the next records, at least one; None at the end, and after ``close``.

        Raises:
            OffsetJumpError: The next records are gone from all places. The next call continues after them.
            NotYetAvailableError: No record arrived in time. Only when following; call again later.
            NothingToRestoreError, SourceMissingError: There is nothing at any place. A reader that follows waits.
            StoreError: No place can be read. A reader that follows waits, unless a person has to do something.
            DivergedError, CorruptionError: As ``LogReader`` and ``open_replica`` raise them.
        """
        columns = None if self._ended else self._reader.read()
        if columns is None or self._end_time is None:
            return columns
        if columns.timestamps is None:
            raise ConfigError("the log's records carry no timestamps to stop at: stop at a sequence")
        stop = columns.find_time(self._end_time)
        self._ended = stop < len(columns)
        return columns.slice(0, stop) if stop else None

    def sequence_after(self, columns: Columns) -> int:
        """The sequence after the last of records that ``read`` has returned."""
        return self._reader.sequence_after(columns)

    def close(self) -> None:
        self._reader.close()
