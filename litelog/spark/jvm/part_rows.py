"""The parts of a plan as rows of equal size. Java reads some of their columns, and returns a row to Python with each
request about its part.

There is a row for each sealed segment that Java may read, and one for what lies between two of these. Runs of objects
become rows by columns: no value is made for each object.
"""

from __future__ import annotations

import json
from array import array
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from litelog.dataclass import dataclass
from litelog.formats.log_format import MAX_SEQUENCE
from litelog.objects.position import Generation, Position, generation
from litelog.objects.snapshot_entries import DIGEST_BYTES, NONE, SnapshotEntry, expand_file
from litelog.spark.jvm.conditions import LEAST, MOST
from litelog.spark.jvm.pickles import pickled, unpickled
from litelog.spark.scan.partitions import SealedPiece, WalPiece
from litelog.spark.scan.runs import LazyPieces, SealedRun, WalRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    import numpy.typing as npt

    from litelog.objects.snapshot_entries import EntryColumns
    from litelog.reading.wal_names import WalNames
    from litelog.spark.scan.partitions import LogPart, Piece, PlannedLog
    from litelog.spark.scan.runs import Run

    Rows = npt.NDArray[np.void]


class Kind(IntEnum):
    """The reader of a part, and what its extra bytes hold."""

    SEALED = 0
    """Java reads a sealed segment. The extra bytes name its generation and its file, as JSON."""
    WAL = 1
    """Python reads WAL segments. The extra bytes name these, the one before them and the one after them."""
    OTHER = 2
    """Python reads pieces. The extra bytes are their pickle."""


PART = np.dtype(
    [
        *((name, "<i4") for name in ("task", "log", "kind", "extra_bytes")),
        *((name, "<i8") for name in ("extra", "index", "bytes", "first", "last", "records", "lowest", "highest")),
        *((name, "<i8") for name in ("sealed_index", "start", "follows", "size", "length")),
        *((name, "<i8") for name in ("shipped_first", "shipped_last")),
        *(("crc", "<u4"), ("exact", "<i4"), ("digest", f"V{DIGEST_BYTES}")),
    ]
)
"""A row. ``ReadPlan.java`` reads the columns before ``sealed_index``. ``extra``: where the extra bytes of the part
begin, among those of all parts. ``last``: inclusive. From ``sealed_index`` on the columns describe a sealed segment."""

_NAME = np.dtype([(name, "<u8") for name in ("index", "offset", "size")])
"""The name of a WAL segment among the extra bytes."""

_COPIED = (
    *("first", "records", "lowest", "highest"),
    *("sealed_index", "size", "length", "shipped_first", "shipped_last", "crc"),
)
"""Numbers that a row holds as an entry of a snapshot does."""

_ROWS_AT_ONCE = 1 << 15


@dataclass(slots=True)
class _Span:
    """Adjacent runs of one log, up to ``stop``: each of ``tasks`` begins to read at one of ``starts``."""

    number: int
    run: Run
    tasks: list[int]
    starts: list[int]
    stop: int

    def take(self, task: int, number: int, run: Run) -> bool:
        """Add a run if it continues this span."""
        mine = self.run
        if isinstance(mine, SealedRun) and isinstance(run, SealedRun):
            is_next = mine.entries is run.entries
        else:
            is_next = isinstance(mine, WalRun) and isinstance(run, WalRun) and mine.names is run.names
        if not is_next or self.number != number or self.stop != run.start:
            return False
        self.tasks.append(task)
        self.starts.append(run.start)
        self.stop = run.stop
        return True


class PartRows:
    """The rows of a plan, and their extra bytes. Parts are added in order, and the last call is ``close``."""

    def __init__(self) -> None:
        self.count = 0
        self.extras: list[bytes] = []
        """The extra bytes of all rows, one after the other."""
        self._extra_bytes = 0
        self._made: list[list[tuple[Any, ...]] | Callable[[], Iterator[Rows]]] = []
        self._span: _Span | None = None
        self._firsts: dict[int, int] = {}
        """For each log, a sequence that is not higher than that of any later record."""
        self._plain: dict[int, bool] = {}

    @property
    def nbytes(self) -> int:
        """The bytes of the rows and of the extra bytes."""
        return self.count * PART.itemsize + self._extra_bytes

    def arrays(self) -> Iterator[Rows]:
        """Yield the rows. They are made while they are taken."""
        for made in self._made:
            if isinstance(made, list):
                yield np.array(made, PART)
            else:
                yield from made()

    def add(self, task: int, number: int, part: LogPart, *, is_readable: bool) -> None:
        """Add what a task reads of the log with a number. ``is_readable``: Java may read its sealed segments."""
        pieces = part.pieces
        if not is_readable:
            self.close()
            self._add_rest(task, number, tuple(pieces))
            return
        for some in pieces.parts if isinstance(pieces, LazyPieces) else (tuple(pieces),):
            if isinstance(some, tuple) or not self._has_columns(some):
                self.close()
                self._add_pieces(task, number, some if isinstance(some, tuple) else tuple(some.pieces()))
            elif self._span is None or not self._span.take(task, number, some):
                self.close()
                self._span = _Span(number, some, [task], [some.start], some.stop)

    def _has_columns(self, run: Run) -> bool:
        """Whether the run becomes rows without its pieces. The first and the last WAL segments of a log do not."""
        if isinstance(run, WalRun):
            return run.start > 0 and run.stop < len(run.names)
        key = id(run.entries)
        if key not in self._plain:
            self._plain[key] = _are_plain(run.entries)
        return self._plain[key]

    def close(self) -> None:
        """End the span that was added to."""
        span, self._span = self._span, None
        if span is None:
            return
        if isinstance(span.run, SealedRun):
            entries = span.run.entries.part(span.starts[0], span.stop)
            numbers = {pair: number for number, pair in enumerate(dict.fromkeys(_names(entries)))}
            extras = np.array([self._add_extra(json.dumps(pair).encode()) for pair in numbers])
            self._made.append(partial(_sealed_rows, span, span.run, numbers, extras))
            self.count += int(np.count_nonzero(entries.array("records") > 0))
            self._raise_first(span.number, int(entries.array("first").max()))
        else:
            extra = self._add_wal(span, span.run.names)
            self._made.append(partial(_wal_rows, span, span.run.names, extra, self._first(span.number)))
            self.count += len(span.tasks)

    def _add_wal(self, span: _Span, wal: WalNames) -> int:
        """Add the names of WAL segments from the one before the span to the one after it. Returns where they begin."""
        start, stop = span.starts[0] - 1, span.stop + 1
        names = np.empty(stop - start, _NAME)
        names["index"], names["offset"] = wal.indexes[start:stop], wal.offsets[start:stop]
        names["size"] = wal.sizes[start:stop]
        return self._add_extra(names.tobytes())[0]

    def _add_extra(self, extra: bytes) -> tuple[int, int]:
        """Returns where the bytes begin, and how many there are."""
        self.extras.append(extra)
        self._extra_bytes += len(extra)
        return self._extra_bytes - len(extra), len(extra)

    def _first(self, number: int) -> int:
        return self._firsts.get(number, 0)

    def _raise_first(self, number: int, first: int) -> None:
        self._firsts[number] = max(self._first(number), first)

    def _add_row(self, *values: Any) -> None:
        if not self._made or not isinstance(self._made[-1], list):
            self._made.append([])
        last = self._made[-1]
        assert isinstance(last, list)
        last.append(values)
        self.count += 1

    def _add_pieces(self, task: int, number: int, pieces: tuple[Piece, ...]) -> None:
        """Each sealed segment that Java may read, and all pieces between two of these as one part. Sealed segments
        without records are left out."""
        held: list[Piece] = []
        for piece in pieces:
            if not (isinstance(piece, SealedPiece) and is_plain(piece)):
                held.append(piece)
                continue
            self._add_rest(task, number, tuple(held))
            held = []
            if piece.entry.records:
                self._add_sealed(task, number, piece)
        self._add_rest(task, number, tuple(held))

    def _add_sealed(self, task: int, number: int, piece: SealedPiece) -> None:
        one = piece.entry
        self._raise_first(number, one.first or 0)
        extra, extra_bytes = self._add_extra(json.dumps((one.generation, one.file)).encode())
        size = piece.stop - piece.start
        facts = (one.index, size, one.first, (one.next or 0) - 1, one.records, one.lowest, one.highest)
        place = (one.sealed_index, piece.start, NONE if piece.follows is None else piece.follows, one.size, one.length)
        rest = (one.shipped_first, one.shipped_last, one.crc, one.exact, bytes.fromhex(one.digest))
        self._add_row(task, number, Kind.SEALED, extra_bytes, extra, *facts, *place, *rest)

    def _add_rest(self, task: int, number: int, pieces: tuple[Piece, ...]) -> None:
        if not pieces:
            return
        self._raise_first(number, _lowest_sequence(pieces[0]))
        extra, extra_bytes = self._add_extra(pickled(pieces))
        facts = (0, sum(map(_size, pieces)), self._first(number), MOST, 1, LEAST, MOST)
        self._add_row(task, number, Kind.OTHER, extra_bytes, extra, *facts, *(0,) * 9, bytes(DIGEST_BYTES))


def _names(entries: EntryColumns) -> Iterator[tuple[str, str]]:
    """The generation of each sealed segment, and its file as a snapshot writes it."""
    return zip(entries.array("generation"), entries.array("file"), strict=True)


def _sealed_rows(span: _Span, run: SealedRun, numbers: dict[tuple[str, str], int], extras: Any) -> Iterator[Rows]:
    """A row for each sealed segment of a span that has records. ``extras``: where the extra bytes of each pair of names
    begin, and how many there are."""
    tasks = np.repeat(span.tasks, np.diff([*span.starts, span.stop]))
    for start in range(span.starts[0], span.stop, _ROWS_AT_ONCE):
        stop = min(span.stop, start + _ROWS_AT_ONCE)
        entries = run.entries.part(start, stop)
        rows = np.zeros(stop - start, PART)
        rows["task"] = tasks[start - span.starts[0] :][: stop - start]
        rows["log"] = span.number
        places = extras[np.fromiter(map(numbers.__getitem__, _names(entries)), np.intp, len(rows))]
        rows["extra"], rows["extra_bytes"] = places[:, 0], places[:, 1]
        for name in (*_COPIED, "exact"):
            rows[name] = entries.array(name)
        rows["index"] = np.arange(len(rows)) + entries.array("index")[0]
        rows["last"] = entries.array("next") - 1
        rows["bytes"] = rows["length"]
        rows["follows"] = run.follows[start:stop]
        rows["digest"] = np.frombuffer(entries.digests(), PART["digest"])
        yield rows[rows["records"] > 0]


def _wal_rows(span: _Span, wal: WalNames, extra: int, first: int) -> Iterator[Rows]:
    """A row for each task of a span. ``extra``: where the names begin among the extra bytes."""
    edges = np.array([*span.starts, span.stop])
    sizes = np.frombuffer(wal.sizes, np.uint64)[edges[0] : edges[-1]]
    rows = np.zeros(len(span.tasks), PART)
    rows["task"], rows["log"], rows["kind"] = span.tasks, span.number, Kind.WAL
    rows["extra"] = extra + (edges[:-1] - edges[0]) * _NAME.itemsize
    rows["extra_bytes"] = (np.diff(edges) + 2) * _NAME.itemsize
    rows["bytes"] = np.add.reduceat(sizes, edges[:-1] - edges[0])
    rows["first"], rows["last"], rows["records"] = first, MOST, 1
    rows["lowest"], rows["highest"] = LEAST, MOST
    yield rows


def read_pieces(row: bytes, extra: bytes, log: PlannedLog) -> tuple[Piece, ...]:
    """The pieces of the part that a row and its extra bytes describe."""
    values = dict(zip(PART.names or (), np.frombuffer(row, PART)[0].item(), strict=True))
    if values["kind"] == Kind.OTHER:
        return tuple(unpickled(extra))
    if values["kind"] == Kind.WAL:
        return (_read_wal(extra, log.generation),)
    first, start = values["first"], values["start"]
    follows = None if values["follows"] == NONE else values["follows"]
    name, file = json.loads(extra)
    entry = SnapshotEntry(
        generation=generation(name),
        file=expand_file(file, first),
        digest=bytes(values["digest"]).hex(),
        index=values["index"],
        next=values["last"] + 1,
        exact=bool(values["exact"]),
        **{name: values[name] for name in _COPIED},
    )
    return (SealedPiece(entry, start, start + values["bytes"], follows),)


def _read_wal(extra: bytes, name: Generation) -> WalPiece:
    names = np.frombuffer(extra, _NAME)
    before, stop = (Position(name, *names[["index", "offset"]][number].item()) for number in (0, -1))
    indexes, offsets, sizes = (array("Q", names[column][1:-1].tolist()) for column in ("index", "offset", "size"))
    return WalPiece(indexes, offsets, sizes, None, before, stop, starts_log=False)


def _are_plain(entries: EntryColumns) -> bool:
    """Whether ``is_plain`` holds for each whole sealed segment that has records."""
    held = entries.array("records") > 0
    numbers = (entries.array(name)[held] for name in ("sealed_index", "first", "next", "lowest", "highest"))
    return entries.array("index")[-1] <= MAX_SEQUENCE and all(bool((one >= -MAX_SEQUENCE).all()) for one in numbers)


def is_plain(piece: SealedPiece) -> bool:
    """Whether a row can hold the piece."""
    entry = piece.entry
    numbers = (entry.index, entry.sealed_index, entry.next or 0, entry.lowest or 0, entry.highest or 0)
    known = entry.records == 0 or None not in (entry.first, entry.next, entry.lowest, entry.highest)
    return not piece.exact and known and all(abs(number) <= MAX_SEQUENCE for number in numbers)


def _lowest_sequence(piece: Piece) -> int:
    """A sequence that is not higher than that of the piece's first record."""
    if isinstance(piece, WalPiece):
        return 0 if piece.link is None or piece.link.next is None else piece.link.next
    first = piece.entry.first if isinstance(piece, SealedPiece) else piece.first
    return first or 0


def _size(piece: Piece) -> int:
    if isinstance(piece, WalPiece):
        return sum(piece.sizes)
    return piece.stop - piece.start if isinstance(piece, SealedPiece) else 1 << 20
