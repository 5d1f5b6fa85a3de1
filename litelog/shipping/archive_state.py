"""A daemon's state of a generation's sealed segments and snapshots, and the times when bytes were shipped.

The first part is saved as text in the daemon's state. The times are kept in memory: a few bytes for each WAL segment.
"""

from __future__ import annotations

import json
import logging
from array import array
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from litelog.codec.decoding import build, parse_json
from litelog.dataclass import dataclass
from litelog.events import fields as event_fields
from litelog.objects.frame_table import ShipTimes
from litelog.objects.position import Generation, generation
from litelog.objects.snapshot_entries import SnapshotEntry  # noqa: TC001
from litelog.retention.facts import SourceTrim  # noqa: TC001 - ``build`` looks for both
from litelog.system.private_files import LIMITS

if TYPE_CHECKING:
    from litelog.objects.wal_segment import WalHeader

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShippedSegment:
    """A log segment that was shipped to its end, and that no snapshot names yet."""

    index: int
    file: str
    length: int
    crc: int
    """CRC-32C of its bytes, as its ``final`` states it."""
    previous: str
    """SHA-256 of the object before its first WAL segment."""
    chain: str
    """SHA-256 of its last WAL segment."""
    shipped: int
    """When its last WAL segment was shipped, in microseconds since 1970."""
    sequence: int | None = None
    """The sequence that its first commit must have; None: any."""
    epoch: int = 0
    sealed: SnapshotEntry | None = None
    """Its entry, once its sealed segment is durable."""


@dataclass(frozen=True, slots=True)
class Opening:
    """The log segment that is being shipped: what its ``ShippedSegment`` will state once it is finished."""

    index: int
    previous: str
    sequence: int | None
    epoch: int


@dataclass(frozen=True, slots=True)
class Covered:
    """WAL segments below index ``next`` of ``generation``: a snapshot covers them."""

    generation: Generation
    next: int
    since: float
    """When that snapshot became durable, in seconds of the machine's steady clock."""


@dataclass(frozen=True, slots=True)
class ArchiveState:
    """Immutable: each change makes a new value. ``finished`` is in the order of the indexes."""

    generation: Generation
    snapshot: int | None = None
    """The index of the newest durable snapshot; None while it is not known."""
    opening: Opening | None = None
    finished: tuple[ShippedSegment, ...] = ()
    covered: tuple[Covered, ...] = ()
    boot: str = ""
    """The boot id of the steady clock in which ``covered`` counts."""
    drops: tuple[SourceTrim, ...] = ()
    """The times at which the source was found to have dropped everything below an index."""

    def with_finished(self, *segments: ShippedSegment) -> ArchiveState:
        """Add or replace log segments; omit those that a snapshot names."""
        by_index = {segment.index: segment for segment in (*self.finished, *segments)}
        first = self.snapshot or 0
        return replace(self, finished=tuple(by_index[index] for index in sorted(by_index) if index >= first))

    def with_snapshot(self, index: int) -> ArchiveState:
        """The state after the snapshot at ``index`` became durable."""
        return replace(self, snapshot=index).with_finished()

    @property
    def sealed(self) -> tuple[ShippedSegment, ...]:
        """The log segments that the next snapshot can name: those after the newest one, up to the first that is not
        sealed."""
        ready: list[ShippedSegment] = []
        for segment in self.finished:
            if segment.sealed is None or segment.index != (self.snapshot or 0) + len(ready):
                break
            ready.append(segment)
        return tuple(ready)


def shipped_segment(opening: Opening, final: WalHeader, digest: str, sealed: SnapshotEntry | None) -> ShippedSegment:
    """Return the log segment whose last WAL segment is ``final``; ``digest``: SHA-256 of ``final``; ``sealed``: the
    entry of the sealed segment that ``final`` stands for."""
    return ShippedSegment(
        index=final.index,
        file=final.file,
        length=final.end if sealed is None else sealed.length,
        crc=final.crc_total if sealed is None else sealed.crc,
        previous=opening.previous,
        chain=digest,
        shipped=final.shipped,
        sequence=opening.sequence,
        epoch=opening.epoch,
        sealed=sealed,
    )


def write_archive(state: ArchiveState) -> str:
    """Return the state as text."""
    return json.dumps(asdict(state), separators=(",", ":"))


def read_archive(text: str | None, path: str) -> ArchiveState | None:
    """Return the state that ``write_archive`` wrote; None, with a log line that names the file ``path``, for text that
    is not a valid state."""
    try:
        return _parse(parse_json(text.encode(), LIMITS)) if text else None
    except ValueError as error:
        message = (
            "%s: its part about sealed segments cannot be used: %s; it is treated as lost, and read from the replica"
        )
        _logger.warning(message, path, error, extra=event_fields("state-lost", path=path))
        return None


def resume_archive(kept: ArchiveState | None, generation: Generation, boot: str, now: float) -> ArchiveState:
    """Return the state that was kept, if it is of ``generation``; else an empty one.

    ``now``: seconds of the steady clock. If the machine was restarted since (``boot`` differs), every wait starts
    again.
    """
    if kept is None or kept.generation != generation:
        return ArchiveState(generation, boot=boot)
    if boot and kept.boot == boot:
        return replace(kept, covered=tuple(replace(old, since=min(old.since, now)) for old in kept.covered))
    return replace(kept, boot=boot, covered=tuple(replace(old, since=now) for old in kept.covered))


def _parse(fields: object) -> ArchiveState:
    """Return the state that ``fields`` describe. Raises ValueError."""
    state = build(ArchiveState, fields, {Generation: generation})
    indexes = [segment.index for segment in state.finished]
    if any(index < 0 for index in (*indexes, state.snapshot or 0)) or indexes != sorted(set(indexes)):
        raise ValueError("the indexes are not in order")
    return state


NO_MARKS = ShipTimes((), (), exact=False)


class ShipTimeLog:
    """The marks of the log segments that are not sealed yet."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[array[int], array[int], bool]] = {}

    def add(self, header: WalHeader) -> None:
        """Add a durable WAL segment. If the first WAL segment of an index does not start it, earlier marks are
        missing."""
        if header.offset == 0 or header.index not in self._kept:
            self._kept[header.index] = (array("q"), array("q"), header.offset == 0)
        offsets, times, _ = self._kept[header.index]
        if header.length:
            offsets.append(header.end)
            times.append(header.shipped)

    def of(self, index: int) -> ShipTimes:
        """Return the marks of an index."""
        if index not in self._kept:
            return NO_MARKS
        offsets, times, exact = self._kept[index]
        return ShipTimes(tuple(offsets), tuple(times), exact)

    def drop(self, index: int) -> None:
        """Forget the marks of an index, which is sealed."""
        self._kept.pop(index, None)
