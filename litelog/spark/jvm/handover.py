"""Writes a plan for the columnar reader: sealed segments that Java may read, and parts that only Python reads."""

from __future__ import annotations

import base64
import io
import json
import pickle
import zlib
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litelog.formats.litelog import LitelogFormat
from litelog.formats.log_format import MAX_SEQUENCE
from litelog.objects.chain import ChainState, Identity
from litelog.objects.claim import Claim, Relation
from litelog.objects.layout import Fencing
from litelog.objects.position import Position, epoch_of
from litelog.objects.snapshot_entries import SnapshotEntry
from litelog.spark.options import Mode, Range
from litelog.spark.scan.partitions import LocalPiece, PlannedLog, SealedPiece, WalPiece, make_sealed_piece
from litelog.spark.scan.schema import type_of
from litelog.spark.scan.task import kept_store
from litelog.stores.object_store import Signing
from litelog.stores.registry import local_folder, scheme_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from litelog.spark.scan.partitions import LogPart, Partition, Piece
    from litelog.spark.scan.schema import Column

MAX_PLAN_BYTES = 64 << 20
"""The longest plan that is passed as an option. If a plan is longer, Python reads its logs."""

SIGNED_SECONDS = 3600
"""How long a signed URL of one object is valid. Python reads what Java did not read in this time."""

_PARTS = frozenset(
    (part.__module__, part.__name__)
    for part in (
        *(PlannedLog, WalPiece, LocalPiece, make_sealed_piece, Range, Mode),
        *(Claim, Relation, Fencing, Position, ChainState, Identity),
    )
) | {("array", "array"), ("array", "_array_reconstructor")}
"""What a pickled part of a plan may name."""

LEAST, MOST = -(1 << 63), (1 << 63) - 1
"""The bounds of a query that asks for all sequences or times."""

_entry_values = attrgetter(*SnapshotEntry.__slots__)


def describe_columns(columns: Sequence[Column]) -> list[list[Any]]:
    """The columns as Java expects them: name, type, whether there may be nulls."""
    return [[column.title, type_of(column), column.nullable] for column in columns]


def plan_lines(partitions: Sequence[Partition], columns: Sequence[Column]) -> Iterator[str]:
    """A plan as lines of JSON: one about all of it, and then the parts of each task. ``ReadPlan.java`` describes the
    fields of ``Log``, ``Part`` and ``Facts``."""
    held: dict[int, _LogParts] = {}
    for partition in partitions:
        for part in partition.parts:
            if id(part.log) not in held:
                held[id(part.log)] = _LogParts(len(held), part.log)
    logs = [parts.log for parts in held.values()]
    head = {
        "schema": describe_columns(columns),
        "logs": [_describe_log(log) for log in logs],
        "by_time": all(log.format == LitelogFormat.name and log.mode is Mode.FAILFAST for log in logs),
        "by_sequence": all(not log.divisible and log.mode is Mode.FAILFAST and log.committed is None for log in logs),
    }
    yield json.dumps(head)
    for partition in partitions:
        yield json.dumps([one for part in partition.parts for one in held[id(part.log)].describe(part)])


def is_columnar(partitions: Sequence[Partition]) -> bool:
    """Whether Java may read any of the partitions by itself."""
    parts = (part for partition in partitions for part in partition.parts)
    return any(
        isinstance(piece, SealedPiece) and _is_plain(piece) and is_readable(part.log)
        for part in parts
        for piece in part.pieces[:1]
    )


def compress_plan(partitions: Sequence[Partition], columns: Sequence[Column]) -> bytes:
    """The lines of a plan, compressed: at any time, memory holds no more than this and one task's part."""
    compress = zlib.compressobj(1)
    packed = [compress.compress(line.encode()) for line in plan_lines(partitions, columns)]
    return b"".join([*packed, compress.flush()])


def pack_plan(partitions: Sequence[Partition], columns: Sequence[Column]) -> str | None:
    """A plan as the option ``plan`` holds it; None if it is too long."""
    packed = base64.b64encode(compress_plan(partitions, columns)).decode()
    return packed if len(packed) <= MAX_PLAN_BYTES else None


def pickled(value: object) -> str:
    """A value that only Python reads, as text."""
    return base64.b64encode(pickle.dumps(value)).decode()


def unpickled(text: str) -> Any:
    """The value that ``pickled`` wrote. Makes only parts of plans, since users of SQL can write a plan, too."""
    return _PlanReader(io.BytesIO(base64.b64decode(text))).load()


class _PlanReader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _PARTS:
            raise pickle.UnpicklingError(f"a plan does not hold {module}.{name}")
        return super().find_class(module, name)


def _describe_log(log: PlannedLog) -> dict[str, Any]:
    generation = None if log.claim is None else log.generation
    return {
        "pickled": pickled(log),
        "name": log.name,
        "generation": generation,
        "epoch": 0 if generation is None else epoch_of(generation),
        "bounds": _inclusive(log.range),
    }


def is_readable(log: PlannedLog) -> bool:
    """Whether Java may read sealed segments of the log: those in folders, and in stores that sign URLs."""
    if log.folder is not None or log.format != LitelogFormat.name or log.mode is not Mode.FAILFAST:
        return False
    return object_url(log, log.replica_claim.key) is not None


def object_url(log: PlannedLog, key: str) -> str | None:
    """The URL by which Java reads an object of the replica: of a file, or a signed one, which anyone can use for an
    hour. None if Java can read none of its objects."""
    store = kept_store(log.url, log.store)
    if isinstance(store, Signing):
        return store.sign(key, SIGNED_SECONDS)
    folder = local_folder(store.url) if scheme_of(log.url) == "file" else None
    return None if folder is None else Path(folder, key).absolute().as_uri()


def _inclusive(wanted: Range) -> dict[str, int]:
    first, since = (LEAST if bound is None else bound for bound in (wanted.first, wanted.since))
    last, until = (MOST if bound is None else bound - 1 for bound in (wanted.stop, wanted.until))
    return {"first": first, "last": last, "since": max(since, LEAST), "until": min(max(until, LEAST), MOST)}


def facts_of(numbers: Sequence[int]) -> dict[str, int]:
    """What is known of records: their first sequence, the next one, how many there are, and their times."""
    first, following, records, lowest, highest = numbers
    return {"first": first, "last": following - 1, "records": records, "lowest": lowest, "highest": highest}


class _LogParts:
    """Describes the parts of one log, in their order."""

    def __init__(self, number: int, log: PlannedLog) -> None:
        self.log = log
        self._number = number
        self._readable = is_readable(log)
        self._first = 0
        """No later piece holds a lower sequence."""

    def describe(self, part: LogPart) -> Iterator[dict[str, Any]]:
        """Each sealed segment that Java may read by itself, and all pieces between two of these as one part. Sealed
        segments without records are left out."""
        held: list[Piece] = []
        for piece in part.pieces:
            if not (self._readable and isinstance(piece, SealedPiece) and _is_plain(piece)):
                held.append(piece)
                continue
            if held:
                yield self._rest(held)
                held = []
            if piece.entry.records:
                yield self._sealed(piece)
        if held:
            yield self._rest(held)

    def _sealed(self, piece: SealedPiece) -> dict[str, Any]:
        entry = piece.entry
        self._first = max(self._first, entry.first or 0)
        numbers = (entry.first or 0, entry.next or 0, entry.records, entry.lowest or 0, entry.highest or 0)
        return {
            "log": self._number,
            "pieces": _write_sealed(piece),
            "key": entry.key,
            "index": entry.index,
            "bytes": piece.stop - piece.start,
            "facts": facts_of(numbers),
        }

    def _rest(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        self._first = max(self._first, _first(pieces[0]))
        return {
            "log": self._number,
            "pieces": pickled(tuple(pieces)),
            "key": None,
            "index": 0,
            "bytes": sum(map(_size, pieces)),
            "facts": facts_of((self._first, MOST, 1, LEAST, MOST)),
        }


def _is_plain(piece: SealedPiece) -> bool:
    entry = piece.entry
    numbers = (entry.index, entry.sealed_index, entry.next or 0, entry.lowest or 0, entry.highest or 0)
    known = entry.records == 0 or None not in (entry.first, entry.next, entry.lowest, entry.highest)
    return not piece.exact and known and all(abs(number) <= MAX_SEQUENCE for number in numbers)


def _write_sealed(piece: SealedPiece) -> str:
    """The piece as JSON, which takes less room in a compressed plan than a pickled one."""
    entry = dict(zip(SnapshotEntry.__slots__, _entry_values(piece.entry), strict=True))
    return json.dumps({**entry, "start": piece.start, "stop": piece.stop, "follows": piece.follows})


def read_pieces(written: str) -> tuple[Piece, ...]:
    """The pieces of a part of a plan."""
    if not written.startswith("{"):
        return tuple(unpickled(written))
    facts = json.loads(written)
    start, stop, follows = (facts.pop(name) for name in ("start", "stop", "follows"))
    return (SealedPiece(SnapshotEntry(**facts), start, stop, follows),)


def cut_piece(piece: SealedPiece, start: int, stop: int) -> SealedPiece:
    """The part of a sealed piece in bytes [start, stop) of the log segment, on commit boundaries."""
    return replace(piece, start=start, stop=stop, follows=piece.follows if start == 0 else None)


def _first(piece: Piece) -> int:
    """A sequence that is not higher than that of the piece's first record."""
    if isinstance(piece, WalPiece):
        return 0 if piece.link is None or piece.link.next is None else piece.link.next
    first = piece.entry.first if isinstance(piece, SealedPiece) else piece.first
    return first or 0


def _size(piece: Piece) -> int:
    if isinstance(piece, WalPiece):
        return sum(piece.sizes)
    return piece.stop - piece.start if isinstance(piece, SealedPiece) else 1 << 20
