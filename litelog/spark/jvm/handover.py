"""Writes a plan for the columnar reader: sealed segments that Java may read, and parts that only Python reads."""

from __future__ import annotations

import base64
import io
import json
import os
import pickle
import zlib
from operator import attrgetter
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
"""How long a URL is valid with which Java reads one object of a store. Python reads what takes longer."""

_PARTS = frozenset(
    (part.__module__, part.__name__)
    for part in (
        *(PlannedLog, WalPiece, LocalPiece, make_sealed_piece, Range, Mode),
        *(Claim, Relation, Fencing, Position, ChainState, Identity),
    )
) | {("array", "array"), ("array", "_array_reconstructor")}
"""What a pickled part of a plan may name."""

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_entry_values = attrgetter(*SnapshotEntry.__slots__)


def describe_columns(columns: Sequence[Column]) -> list[list[Any]]:
    """The columns as Java expects them: name, type, whether there may be nulls."""
    return [[column.title, type_of(column), column.nullable] for column in columns]


def plan_lines(partitions: Sequence[Partition], columns: Sequence[Column]) -> Iterator[str]:
    """A plan as lines of JSON: one about all of it, and then the parts of each task. ``ReadPlan.java`` describes the
    fields of ``Log`` and ``Part``."""
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
        "by_sequence": all(not log.divisible and log.mode is Mode.FAILFAST for log in logs),
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
    """The value that ``pickled`` wrote. Makes nothing but parts of plans: users of SQL can write a plan, too."""
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
        "folder": _folder(log),
        "generation": generation,
        "epoch": 0 if generation is None else epoch_of(generation),
        "range": _inclusive(log.range),
    }


def is_readable(log: PlannedLog) -> bool:
    """Whether Java may read sealed segments of the log: those in folders, and in stores that sign URLs."""
    if log.folder is not None or log.format != LitelogFormat.name or log.mode is not Mode.FAILFAST:
        return False
    return _folder(log) is not None or signed_url(log, log.replica_claim.key) is not None


def _folder(log: PlannedLog) -> str | None:
    """The folder of a replica in a file system; None if it is elsewhere."""
    if scheme_of(log.url) != "file":
        return None
    folder = local_folder(kept_store(log.url, {}).url)
    return None if folder is None else os.path.abspath(folder)


def signed_url(log: PlannedLog, key: str) -> str | None:
    """A URL that reads an object of the replica for an hour, for everyone who has it; None if its store signs none."""
    store = kept_store(log.url, log.store)
    return store.sign(key, SIGNED_SECONDS) if isinstance(store, Signing) else None


def _inclusive(wanted: Range) -> list[int]:
    first, since = (_LEAST if bound is None else bound for bound in (wanted.first, wanted.since))
    last, until = (_MOST if bound is None else bound - 1 for bound in (wanted.stop, wanted.until))
    return [first, last, max(since, _LEAST), min(max(until, _LEAST), _MOST)]


class _LogParts:
    """Describes the parts of one log, in their order."""

    def __init__(self, number: int, log: PlannedLog) -> None:
        self.log = log
        self._number = number
        self._readable = is_readable(log)
        self._first = 0
        """No later piece holds a lower sequence."""

    def describe(self, part: LogPart) -> Iterator[dict[str, Any]]:
        """Each sealed segment that Java may read by itself, and all pieces between two of these as one part."""
        held: list[Piece] = []
        for piece in part.pieces:
            if not (self._readable and isinstance(piece, SealedPiece) and _is_plain(piece)):
                held.append(piece)
                continue
            if held:
                yield self._rest(held)
                held = []
            yield {"log": self._number, "key": piece.entry.key, "entry": _describe_piece(piece)}
            self._first = max(self._first, piece.entry.first or 0)
        if held:
            yield self._rest(held)

    def _rest(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        self._first = max(self._first, _first(pieces[0]))
        size = sum(_size(piece) for piece in pieces)
        return {"log": self._number, "pieces": pickled(tuple(pieces)), "bytes": size, "from": self._first}


def _is_plain(piece: SealedPiece) -> bool:
    entry = piece.entry
    numbers = (entry.index, entry.sealed_index, entry.next or 0, entry.lowest or 0, entry.highest or 0)
    timed = entry.records == 0 or None not in (entry.lowest, entry.highest)
    return not piece.exact and timed and all(abs(number) <= MAX_SEQUENCE for number in numbers)


def _describe_piece(piece: SealedPiece) -> dict[str, Any]:
    entry = dict(zip(SnapshotEntry.__slots__, _entry_values(piece.entry), strict=True))
    return {**entry, "start": piece.start, "stop": piece.stop, "follows": piece.follows}


def read_piece(entry: dict[str, Any]) -> SealedPiece:
    """The piece that a plan described, with the bytes that Java asks for."""
    facts = {name: entry[name] for name in SnapshotEntry.__slots__}
    follows = entry["follows"] if entry["start"] == 0 else None
    return SealedPiece(SnapshotEntry(**facts), entry["start"], entry["stop"], follows)


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
