"""A stream's offsets, which Spark keeps in the checkpoint and compares as text, the steps between them, and the
items to read for these steps."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Self

from litelog.dataclass import dataclass
from litelog.errors import ConfigError, UnknownVersionError
from litelog.objects.claim import open_claimed_format
from litelog.objects.position import MAX_INDEX, MAX_OFFSET, Position, generation
from litelog.spark.options import Range
from litelog.spark.scan.packing import Item, SealedItem, WalItem
from litelog.spark.scan.partitions import COMPRESSION_RATIO, SealedPiece
from litelog.spark.scan.planning import plan_log
from litelog.spark.scan.task import open_log_format
from litelog.stores.replica_client import WalSegmentInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from litelog.objects.chain import ChainState
    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.spark.options import ReadOptions
    from litelog.spark.scan.inputs import ScanInput
    from litelog.spark.scan.partitions import PlannedLog


@dataclass(frozen=True, slots=True)
class _Step:
    """From ``start`` to ``stop``."""

    start: Position
    stop: Position
    raw: int
    """Uncompressed bytes of the log; an estimate for a WAL segment of which only the name is known."""
    sequence: int | None = None
    """The sequence that follows; None if that is not known."""
    records: int | None = None
    """How many records it holds; None if that is not known."""

    def until(self, stop: Position) -> Self:
        """The part before ``stop``, which lies inside it."""
        return replace(self, stop=stop, raw=stop.offset - self.start.offset, sequence=None, records=None)

    def carry(self, place: Position) -> Position:
        """Map a position of this generation to the generation that a move leads to; every other step leaves it as it
        is."""
        return place


@dataclass(frozen=True, slots=True)
class SealedStep(_Step):
    """A sealed segment, or a part of one."""

    entry: SnapshotEntry = field(kw_only=True)
    follows: int | None = None
    """The sequence after the previous log segment."""

    def after(self, part: StreamStep) -> SealedStep:
        """The rest after ``part``, its first part."""
        known = self.records is not None and part.records is not None
        records = self.records - part.records if known else None  # type: ignore[operator]
        return replace(self, start=part.stop, raw=self.raw - part.raw, records=records)


@dataclass(frozen=True, slots=True)
class WalStep(_Step):
    """A WAL segment, or a part of one."""

    segment: Position = field(kw_only=True)
    """Its own position."""
    is_read: bool = True
    """Whether its header was read. If not, ``stop`` is the position of the next name."""
    before: Position | None = None
    """Position of the previous WAL segment."""
    link: ChainState | None = None
    """State of the chain before it, if it is the first one after a snapshot."""
    shipped: int | None = None
    """When it was shipped, in microseconds since 1970; None if only its name is known."""


@dataclass(frozen=True, slots=True)
class MoveStep(_Step):
    """A **move**, without bytes: to the generation that continues this one, or past lost data."""

    raw: int = 0
    is_fork: bool = False
    """Whether it leads to a different history, where positions of this one mean nothing. Then ``sequence`` is the first
    one to read there; None: the first that it holds."""
    is_merge: bool = False
    """Whether positions mean nothing there because log segments were merged. No record differs."""
    renumbers: bool = False
    """Whether the same records may have different sequences afterwards."""

    def carry(self, place: Position) -> Position:
        if self.start.generation == self.stop.generation or place.generation != self.start.generation:
            return place
        if self.is_fork:
            return self.stop
        return Position(self.stop.generation, place.index + self.stop.index - self.start.index, place.offset)


StreamStep = SealedStep | WalStep | MoveStep
"""A step of one kind."""


def behind(offset: LogOffset, step: StreamStep) -> LogOffset:
    """The offset after ``step``, which began at ``offset``."""
    if isinstance(step, MoveStep) and step.renumbers:
        return LogOffset(step.stop, None)
    if isinstance(step, MoveStep) and step.is_fork:
        return LogOffset(step.stop, step.sequence)
    known = [sequence for sequence in (offset.sequence, step.sequence) if sequence is not None]
    return LogOffset(step.stop, max(known, default=None))


VERSION = 1


@dataclass(frozen=True, slots=True)
class LogOffset:
    """The place of a stream in a log: everything before it has been delivered."""

    position: Position
    sequence: int | None
    """No record with a lower sequence follows; None if that is not known."""


def encode(offsets: Mapping[str, LogOffset]) -> dict[str, Any]:
    """Encode as ``{"version", "logs": {log: {"generation", "index", "offset", "sequence"}}}``.

    Keys have a fixed order and logs are sorted by name, so equal offsets are equal text.
    """
    return {"version": VERSION, "logs": {name: _encode_log(offsets[name]) for name in sorted(offsets)}}


def encode_report(heads: Mapping[str, LogOffset], backlogs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Encode ``heads`` as ``encode`` does, each with its backlog. Spark only reports the result."""
    written = encode(heads)
    for name, log in written["logs"].items():
        log["backlog"] = dict(backlogs[name])
    return written


def _encode_log(offset: LogOffset) -> dict[str, Any]:
    at = offset.position
    return {"generation": at.generation, "index": at.index, "offset": at.offset, "sequence": offset.sequence}


def decode(written: Mapping[str, Any]) -> dict[str, LogOffset]:
    """Decode what ``encode`` returned.

    Raises UnknownVersionError for offsets of a newer litelog, and ConfigError for text that ``encode`` never writes.
    """
    version = written.get("version") if isinstance(written, dict) else None
    if type(version) is int and version > VERSION:
        raise UnknownVersionError("the stream's checkpoint", "offsets", VERSION, version)
    try:
        if type(version) is not int or version != VERSION:
            raise ValueError(f"version is {version!r}")
        return {name: _decode_log(offset) for name, offset in written["logs"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"the stream's checkpoint has no valid litelog offset: {error}") from None


def _decode_log(written: Mapping[str, Any]) -> LogOffset:
    index, offset, sequence = written["index"], written["offset"], written["sequence"]
    for name, number, most in (("index", index, MAX_INDEX), ("offset", offset, MAX_OFFSET)):
        if type(number) is not int or not 0 <= number <= most:
            raise ValueError(f"{name} is {number!r}")
    if sequence is not None and (type(sequence) is not int or sequence < 0):
        raise ValueError(f"sequence is {sequence!r}")
    return LogOffset(Position(generation(written["generation"]), index, offset), sequence)


def step_items(
    place: ScanInput,
    options: ReadOptions,
    claims: Mapping[Generation, Claim],
    start: LogOffset,
    steps: Sequence[StreamStep],
    stop: int | None = None,
) -> list[Item]:
    """The items to read from one log, in order, for the steps that begin at ``start``.

    ``stop``: the sequence at which the rows end, although later records are read.
    """
    items: list[Item] = []
    log: PlannedLog | None = None
    first = start.sequence
    for step in steps:
        if isinstance(step, MoveStep):
            log, first = None, step.sequence if step.is_fork else None if step.renumbers else first
            continue
        if log is None:
            claim = claims[step.start.generation]
            log_format = open_claimed_format(claim, lambda name: open_log_format(name, options.pattern))
            log = plan_log(place, options, log_format, claim, Range(first=first, stop=stop))
        if isinstance(step, SealedStep):
            items += _sealed_item(log, step)
        else:
            items.append(_wal_item(log, step))
    return items


def until(steps: Sequence[StreamStep], stop: Position) -> Iterator[StreamStep]:
    """``steps`` up to ``stop``, which may lie inside the last one."""
    for step in steps:
        if step.start >= stop:
            return
        stop = step.carry(stop)
        yield step if isinstance(step, MoveStep) or step.stop <= stop else step.until(stop)


def _sealed_item(log: PlannedLog, step: SealedStep) -> Iterator[SealedItem]:
    entry = step.entry
    stop = entry.length if step.stop.index > step.start.index else step.stop.offset
    whole = step.start.offset == 0 and stop == entry.length
    if whole or step.start.offset < stop:
        follows = step.follows if step.start.offset == 0 else None
        yield SealedItem(log, SealedPiece(entry, step.start.offset, stop, follows, exact=not whole))


def _wal_item(log: PlannedLog, step: WalStep) -> WalItem:
    return WalItem(
        log,
        WalSegmentInfo(step.segment, max(1, step.raw // COMPRESSION_RATIO)),
        step.raw,
        step.link,
        step.before,
        step.stop,
        starts_log=False,
        start=step.start if step.start != step.segment else None,
    )
