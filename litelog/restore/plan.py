"""Plans a restore: which objects of a replica, and up to where. Looks at listings and headers, changes nothing."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import groupby, takewhile
from typing import TYPE_CHECKING

from litelog.errors import ConfigError, NothingToRestoreError, ReplicaGapError
from litelog.position import Generation, Position, generation
from litelog.reading.generation_base import LISTINGS
from litelog.reading.generation_choice import find_claim, find_latest
from litelog.reading.wal_search import first_reaching, first_shipped, first_stamped
from litelog.replica_client import WalSegmentInfo
from litelog.restore.lookup import Lookup, ReplicaLookup
from litelog.restore.stand_in import StandInLookup

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from litelog.claim import Claim
    from litelog.formats import Commit, LogFormat
    from litelog.replica_client import ReplicaClient
    from litelog.restore.donors import Donors
    from litelog.wal_segment import WalHeader

UNKNOWN_SIZE = 0
"""Of an object that no listing shows."""


@dataclass(frozen=True, slots=True)
class Target:
    """What to restore: all that the latest generation holds, unless something says less. At most one bound."""

    generation: Generation | None = None
    """This one, and not the latest."""
    index: int | None = None
    """Up to the end of this log segment, which is included as far as it was shipped."""
    sequence: int | None = None
    """The longest run of commits from the start that hold no record above this sequence."""
    timestamp: int | None = None
    """Microseconds since 1970: all commits before the first one with a record stamped later. For a format without
    timestamps: all WAL segments shipped by then. A time behind the end means everything."""

    def __post_init__(self) -> None:
        bounds = [name for name in ("index", "sequence", "timestamp") if getattr(self, name) is not None]
        if len(bounds) > 1:
            raise ConfigError(f"a restore goes up to one bound, not to {' and '.join(bounds)} at once")


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A log segment that a restore writes. ``size`` is what its headers say, in bytes."""

    index: int
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What a restore reads, and where it stops. A value: made without changing anything, printed as it is."""

    replica: str
    claim: Claim
    pieces: tuple[WalSegmentInfo, ...]
    """The WAL segments to read, in order."""
    end: Position
    """Where the restored log ends: behind a commit of the last piece that holds any."""
    files: tuple[PlannedFile, ...]
    shipped: int
    """When the last piece was shipped, microseconds since 1970."""

    @property
    def size(self) -> int:
        """Bytes that are restored."""
        return sum(file.size for file in self.files)

    @property
    def object_bytes(self) -> int:
        """Bytes that are read."""
        return sum(piece.size for piece in self.pieces)

    def as_json(self) -> dict[str, object]:
        """The plan as JSON values: for programs."""
        return {
            "replica": self.replica,
            "generation": self.claim.generation,
            "log": self.claim.log,
            "format": self.claim.format,
            "owner": self.claim.owner,
            "end": str(self.end),
            "shipped": self.shipped,
            "bytes": self.size,
            "object_bytes": self.object_bytes,
            "pieces": [{"position": str(piece.position), "size": piece.size} for piece in self.pieces],
            "files": [asdict(file) for file in self.files],
        }

    def __str__(self) -> str:
        lines = [
            f"{self.replica}: generation {self.claim.generation}, log {self.claim.log}, format {self.claim.format}",
            f"up to {self.end}, shipped {_time(self.shipped)}",
            f"{self.size} bytes in {len(self.files)} files",
            f"from {self.object_bytes} bytes in {len(self.pieces)} objects",
            *(f"  {file.name}  {file.size}" for file in self.files),
        ]
        return "\n".join(lines)


def missing_piece(claim: Claim, pieces: Sequence[WalSegmentInfo]) -> ReplicaGapError | None:
    """The first hole that names alone show: indexes without holes from the claim's first on, each from offset 0 on."""
    index = claim.first - 1
    for piece in pieces:
        at = piece.position
        if at.index == index and piece is not pieces[0]:
            continue
        index += 1
        if (at.index, at.offset) != (index, 0):
            return ReplicaGapError(str(Position(at.generation, index, 0)), str(at))
    return None


def plan_restore(
    replica: str,
    claim: Claim,
    pieces: Sequence[WalSegmentInfo],
    target: Target,
    lookup: Lookup,
    log_format: LogFormat,
) -> RestorePlan:
    """The plan for ``target`` from a generation's listing. Pure but for what it looks up.

    NothingToRestoreError, saying what there is, for a target that the generation does not reach or that comes before
    all it holds.
    """
    here = f"{replica}: generation {claim.generation}"
    if not pieces:
        raise NothingToRestoreError(f"{here}: holds nothing yet")
    if target.index is not None:
        kept, end = _cut_at_index(here, pieces, target.index, lookup)
    elif target.sequence is not None:
        kept, end = _cut_at_sequence(here, pieces, target.sequence, lookup)
    elif target.timestamp is not None and log_format.has_timestamps:
        kept, end = _cut_at_timestamp(pieces, target.timestamp, lookup)
    elif target.timestamp is not None:
        kept = first_shipped([piece.position for piece in pieces], lookup.headers, target.timestamp + 1)
        end = _end_of(pieces, kept, lookup)
    else:
        kept = len(pieces)
        end = _end_of(pieces, kept, lookup)
    if end is None or (end.index, end.offset) == (claim.first, 0):
        raise NothingToRestoreError(f"{here}: {_first_held(pieces, lookup)}")
    _require_joint(pieces, kept, lookup)
    chosen = tuple(pieces[:kept])
    shipped = lookup.headers([chosen[-1].position])[0].shipped
    return RestorePlan(replica, claim, chosen, end, _files(chosen, end, lookup), shipped)


def find_plan(client: ReplicaClient, target: Target, log_format: LogFormat) -> RestorePlan:
    """Look at a replica and plan. ``log_format`` is the claim's (see ``find_generation``)."""
    return plan_generation(client, find_generation(client, target), target, log_format)


def find_generation(client: ReplicaClient, target: Target) -> Claim:
    """The claim of the generation that ``target`` means: the one it names, or the latest. It names the format."""
    return find_latest(client) if target.generation is None else find_claim(client, target.generation)


def plan_generation(
    client: ReplicaClient, claim: Claim, target: Target, log_format: LogFormat, donors: Donors | None = None
) -> RestorePlan:
    """Plan from one generation. ReplicaGapError if it shows that something is missing, which is not there when it is
    asked for either. ``donors``: plan around damage, as far as these have what was lost."""
    if claim.format != log_format.name:
        raise ConfigError(f"{client.url}: holds a log of format {claim.format}, not {log_format.name}")
    pieces, _ = list_pieces(client, claim)
    lookup: Lookup = ReplicaLookup(client, log_format)
    if donors is not None:
        lookup = StandInLookup(lookup, claim, pieces, log_format, donors)
    while True:
        try:
            gap = missing_piece(claim, pieces)
            if gap is not None:
                raise gap
            return plan_restore(client.url, claim, pieces, target, lookup, log_format)
        except ReplicaGapError as gap:
            _fill_in(pieces, gap, lookup)


def _fill_in(pieces: list[WalSegmentInfo], gap: ReplicaGapError, lookup: Lookup) -> None:
    """Add to ``pieces`` what a listing lacked, if it is there or can be stood in for; else raise ``gap``."""
    missed = WalSegmentInfo(Position.parse(gap.position), UNKNOWN_SIZE)
    at = bisect_left(pieces, missed.position, key=lambda piece: piece.position)
    if at < len(pieces) and pieces[at].position == missed.position:
        raise gap
    try:
        lookup.headers([missed.position])
    except ReplicaGapError:
        raise gap from None
    pieces.insert(at, missed)


def list_pieces(client: ReplicaClient, claim: Claim) -> tuple[list[WalSegmentInfo], ReplicaGapError | None]:
    """A generation's WAL segments, and the first hole that their names show, if one is there at every listing."""
    for _ in range(LISTINGS):
        pieces = list(client.wal_segments(generation(claim.generation)))
        gap = missing_piece(claim, pieces)
        if gap is None:
            break
    return pieces, gap


def _cut_at_index(
    here: str, pieces: Sequence[WalSegmentInfo], index: int, lookup: Lookup
) -> tuple[int, Position | None]:
    first, last = pieces[0].position.index, pieces[-1].position.index
    if not first <= index <= last:
        raise NothingToRestoreError(f"{here}: no index {index:x}; it holds indexes {first:x} to {last:x}")
    kept = sum(piece.position.index <= index for piece in pieces)
    return kept, _end_of(pieces, kept, lookup)


def _cut_at_sequence(
    here: str, pieces: Sequence[WalSegmentInfo], sequence: int, lookup: Lookup
) -> tuple[int, Position | None]:
    number = first_reaching([piece.position for piece in pieces], lookup.headers, sequence + 1)
    if number < len(pieces):
        return _cut_within(pieces, number, lookup, lambda commit: commit.next <= sequence + 1)
    reached = _next_sequence(pieces, lookup)
    if reached is None or reached <= sequence:
        ends = "no record" if reached is None else f"records up to sequence {reached - 1}"
        raise NothingToRestoreError(f"{here}: sequence {sequence} is not there; it holds {ends}")
    return len(pieces), _end_of(pieces, len(pieces), lookup)


def _cut_at_timestamp(pieces: Sequence[WalSegmentInfo], timestamp: int, lookup: Lookup) -> tuple[int, Position | None]:
    number = first_stamped([piece.position for piece in pieces], lookup.headers, timestamp + 1)
    if number == len(pieces):
        return number, _end_of(pieces, number, lookup)
    return _cut_within(pieces, number, lookup, lambda commit: commit.highest is None or commit.highest <= timestamp)


def _cut_within(
    pieces: Sequence[WalSegmentInfo], number: int, lookup: Lookup, belongs: Callable[[Commit], bool]
) -> tuple[int, Position | None]:
    """Cut the piece of that number behind its last commit that belongs, before the first that does not."""
    header = lookup.headers([pieces[number].position])[0]
    kept = list(takewhile(belongs, lookup.commits(header)))
    if not kept:
        return number, _end_of(pieces, number, lookup)
    return number + 1, Position(header.position.generation, header.index, kept[-1].end)


def _end_of(pieces: Sequence[WalSegmentInfo], kept: int, lookup: Lookup) -> Position | None:
    """Behind the bytes of the first ``kept`` pieces; None if that is none."""
    if kept == 0:
        return None
    header = lookup.headers([pieces[kept - 1].position])[0]
    return Position(header.position.generation, header.index, header.end)


def _require_joint(pieces: Sequence[WalSegmentInfo], kept: int, lookup: Lookup) -> None:
    """ReplicaGapError where something is missing right behind the pieces that are kept: what was asked for may end in
    it."""
    if kept < len(pieces):
        _require_next(lookup.headers([pieces[kept - 1].position])[0], pieces[kept].position)


def _require_next(header: WalHeader, position: Position) -> None:
    if header.next_slot < position:
        raise ReplicaGapError(str(header.next_slot), str(position))


def _next_sequence(pieces: Sequence[WalSegmentInfo], lookup: Lookup) -> int | None:
    """The sequence behind the last record; None if there is no record."""
    for piece in reversed(pieces):
        reached = lookup.headers([piece.position])[0].next
        if reached is not None:
            return reached
    return None


def _first_held(pieces: Sequence[WalSegmentInfo], lookup: Lookup) -> str:
    """What to say where the target comes before all that there is."""
    header = lookup.headers([pieces[0].position])[0]
    if header.first is None:
        return "holds no commit yet"
    stamped = "" if header.lowest is None else f", stamped {_time(header.lowest)}"
    return f"nothing that early; it begins with sequence {header.first}{stamped}, shipped {_time(header.shipped)}"


def _files(pieces: Sequence[WalSegmentInfo], end: Position, lookup: Lookup) -> tuple[PlannedFile, ...]:
    """The log segments that the pieces make up: their names and sizes are in each one's first and last header."""
    groups = [list(group) for _, group in groupby((piece.position for piece in pieces), key=lambda at: at.index)]
    edges = lookup.headers([at for group in groups for at in (group[0], group[-1])])
    files = []
    for number, (first, last) in enumerate(zip(edges[::2], edges[1::2], strict=True)):
        if number + 1 < len(groups):
            _require_next(last, groups[number + 1][0])
        if first.successor is None:
            size = end.offset if last.index == end.index else last.end
            files.append(PlannedFile(first.index, first.file, size))
    return tuple(files)


def _time(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat(timespec="seconds")
