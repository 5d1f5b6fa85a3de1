"""The log segments of a damaged log: which of their bytes are good, and which places are to be repaired."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import CorruptCommitError
from litelog.log.source import READ_BYTES, SegmentFolder
from litelog.system.clock import SystemClock
from litelog.verify.local_report import LocalAnomalyKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.formats import LogFormat
    from litelog.log.source import OpenSegment
    from litelog.verify.local_report import LocalAnomaly, LocalReport

_WITHOUT_BYTES = (LocalAnomalyKind.GAP, LocalAnomalyKind.ORDER, LocalAnomalyKind.FORK, LocalAnomalyKind.MISSING)
"""Kinds of anomalies that may leave all bytes of a log segment good."""


@dataclass(frozen=True, slots=True)
class DamagedPlace:
    """Bytes [start, stop) of a log segment that are not good commits."""

    anomaly: LocalAnomaly
    start: int
    stop: int
    reaches_end: bool
    """Whether the log segment ends with it, so that more may be missing there."""


class LocalFiles:
    """The files of a log, as a check has found them."""

    def __init__(self, folder: str, log_format: LogFormat, report: LocalReport) -> None:
        self.folder = folder
        self.format = log_format
        self._names = SegmentFolder(folder, log_format, SystemClock(), reports=False)
        self.names = list(self._names.all())
        self._places: dict[str, list[DamagedPlace]] = {}
        for anomaly in report.anomalies:
            if has_bytes(anomaly):
                self._places.setdefault(anomaly.file, []).append(self._place_of(anomaly))

    def places(self, name: str) -> list[DamagedPlace]:
        """The damaged places of a log segment, in order."""
        return self._places.get(name, [])

    @contextmanager
    def opened(self, name: str) -> Iterator[OpenSegment | None]:
        """Open a log segment to read its logical bytes; None if none can be read. Raises FileNotFoundError, and
        SourceError."""
        try:
            segment = self._names.open(name)
        except CorruptCommitError:
            yield None
            return
        with segment:
            yield segment

    def size(self, name: str) -> int:
        """The number of a log segment's logical bytes; 0 if none can be read."""
        with self.opened(name) as segment:
            return 0 if segment is None else segment.size()

    def end_without_zeros(self, name: str) -> int:
        """The number of a log segment's bytes before the zeros at its end: preallocation, or what a power cut left."""
        with self.opened(name) as segment:
            end = 0 if segment is None else segment.size()
            while segment is not None and end:
                start = max(0, end - READ_BYTES)
                left = segment.read(start, end - start).rstrip(b"\0")
                if left:
                    return start + len(left)
                end = start
        return 0

    def pieces(self, name: str, start: int, stop: int) -> Iterator[bytes]:
        """Yield the bytes [start, stop) of a log segment, piece by piece."""
        with self.opened(name) as segment:
            while segment is not None and start < stop and (data := segment.read(start, min(READ_BYTES, stop - start))):
                yield data
                start += len(data)

    def good(self, name: str, stop: int) -> list[tuple[int, int]]:
        """The ranges of good bytes of a log segment up to ``stop``, in order; none of them is empty."""
        at, ranges = 0, []
        for place in self.places(name):
            ranges.append((at, min(place.start, stop)))
            at = place.stop
        ranges.append((at, min(self.size(name), stop)))
        return [(start, end) for start, end in ranges if start < end]

    def neighbours(self, name: str) -> list[str]:
        """The log segments next to a name: the one before it, then the one after it, if they exist."""
        order = self.format.segment_order(name) or ()
        ordered = [(self.format.segment_order(each) or (), each) for each in self.names if each != name]
        before = [each for key, each in ordered if key < order]
        after = [each for key, each in ordered if key > order]
        return [*before[-1:], *after[:1]]

    def before(self, name: str) -> str | None:
        """The log segment before ``name``; None if it is the oldest one."""
        at = self.names.index(name)
        return self.names[at - 1] if at else None

    def _place_of(self, anomaly: LocalAnomaly) -> DamagedPlace:
        size = self.size(anomaly.file)
        if anomaly.end is None:  # nothing in the file can be read as a commit
            return DamagedPlace(anomaly, 0, size, reaches_end=True)
        return DamagedPlace(anomaly, anomaly.offset, anomaly.end, reaches_end=anomaly.end >= size)


def has_bytes(anomaly: LocalAnomaly) -> bool:
    """Whether an anomaly is harmful, and there are bytes that are not good commits."""
    return anomaly.harmful and (anomaly.end is not None or anomaly.kind not in _WITHOUT_BYTES)
