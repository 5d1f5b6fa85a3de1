"""The entries of a snapshot, one for each log segment, and the columns that they are written as.

Specified in litelog/objects/README.md#snapshot-entries.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from collections.abc import Sequence
from itertools import groupby
from operator import add, le
from typing import TYPE_CHECKING, Any, cast, overload

from litelog.codec.decoding import MOST, abbreviate, is_valid_text
from litelog.codec.json_columns import (
    read_differences,
    read_gapped,
    read_plain,
    read_plain_gapped,
    write_column,
    write_differences,
    write_gapped,
)
from litelog.codec.lz4_frames import MAX_EXPANSION
from litelog.dataclass import dataclass
from litelog.errors import CorruptObjectError
from litelog.objects.layout import sealed_key
from litelog.objects.lazy_sequence import LazySequence
from litelog.objects.position import MAX_INDEX, Generation, generation
from litelog.objects.sealed_segment import MIN_OBJECT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from litelog.objects.sealed_segment import SealedFooter

DIGEST_BYTES = 32
"""The length of a SHA-256."""


@dataclass(frozen=True, slots=True)
class SnapshotEntry:
    """One log segment, and the sealed segment that holds it."""

    index: int
    """The log segment's index in the snapshot's generation."""
    generation: Generation
    """The sealed segment's generation: the snapshot's, or an earlier generation whose sealed segment holds the same
    bytes."""
    sealed_index: int
    """The log segment's index in that generation."""
    file: str
    size: int
    """The object's size in bytes."""
    length: int
    """The log segment's size in bytes."""
    digest: str
    """SHA-256, hex, of the log segment's bytes."""
    crc: int
    """Their CRC-32C."""
    first: int | None
    """The first record's sequence; None without records."""
    next: int | None
    records: int
    lowest: int | None
    """The lowest record timestamp, in microseconds since 1970; None without one."""
    highest: int | None
    shipped_first: int
    """When its first bytes were shipped, in microseconds since 1970; ``shipped_last``: its last bytes."""
    shipped_last: int
    exact: bool
    """Whether the sealed segment knows when each of its bytes was shipped."""

    @property
    def key(self) -> str:
        """The key of the sealed segment."""
        return sealed_key(self.generation, self.sealed_index)

    @property
    def path(self) -> str:
        """The log segment within the object, as errors name it."""
        return f"{self.key}/{self.file}"


def make_entry(footer: SealedFooter, size: int, index: int | None = None) -> SnapshotEntry:
    """The entry of a sealed segment whose object has ``size`` bytes. ``index``: the log segment's index in the
    snapshot's generation, if that is not the footer's generation."""
    return SnapshotEntry(
        index=footer.index if index is None else index,
        generation=footer.generation,
        sealed_index=footer.index,
        file=footer.file,
        size=size,
        length=footer.length,
        digest=footer.digest,
        crc=footer.crc,
        first=footer.first,
        next=footer.next,
        records=footer.records,
        lowest=footer.lowest,
        highest=footer.highest,
        shipped_first=footer.shipped[0],
        shipped_last=footer.shipped[1],
        exact=footer.marks.exact,
    )


def check_entry(entry: SnapshotEntry, footer: SealedFooter) -> None:
    """Check that a sealed segment matches a snapshot's entry. A CorruptObjectError names the sealed segment."""
    made = make_entry(footer, entry.size, entry.index)
    for name in SnapshotEntry.__slots__:
        expected, actual = getattr(entry, name), getattr(made, name)
        if expected != actual:
            raise CorruptObjectError(footer.key, f"{name}, which a snapshot names,", expected, actual)


def write_entries(entries: Sequence[SnapshotEntry]) -> dict[str, object]:
    """The entries as columns for JSON. Their indexes follow from the snapshot's.

    Most numbers are written as the difference from a known one: that of the entry before, or of another column.
    """
    columns: dict[str, list[Any]] = {
        name: [getattr(entry, name) for entry in entries] for name in SnapshotEntry.__slots__ if name != "index"
    }
    written: dict[str, object] = {name: write_column(columns[name]) for name in _PLAIN}
    written |= {name: write_differences(columns[name]) for name in _RISING}
    written |= {name: write_gapped(columns[name]) for name in _GAPPED}
    written["next"] = write_column(_less(columns["next"], _sum(columns["first"], columns["records"])))
    written["highest"] = write_column(_less(columns["highest"], columns["lowest"]))
    written["shipped_last"] = write_column(_less(columns["shipped_last"], columns["shipped_first"]))
    written["generation"] = _runs(columns["generation"])
    written["file"] = [_shorten(file, first) for file, first in zip(columns["file"], columns["first"], strict=True)]
    written["digest"] = b64encode(bytes.fromhex("".join(columns["digest"]))).decode()
    written["crc"] = b64encode(struct.pack(f"<{len(entries)}I", *columns["crc"])).decode()
    written["coarse"] = write_differences([number for number, exact in enumerate(columns["exact"]) if not exact])
    return written


class EntryColumns(LazySequence[SnapshotEntry]):
    """Many entries, in a fifth of the memory. An entry is made when a caller takes it.

    NumPy holds the columns. Only here and in ``_pack`` is it loaded: most snapshots are small, and most verbs of the
    command would start in half the time without it.
    """

    __slots__ = ("_columns", "_places")

    def __init__(self, columns: Mapping[str, Any], places: range) -> None:
        """``columns``: by the names of fields; numbers as lists, or packed as ``_pack`` does, digests as bytes, files
        as they are written. ``places``: those of the entries in the columns."""
        self._columns = columns
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, number: int) -> SnapshotEntry: ...

    @overload
    def __getitem__(self, number: slice) -> Sequence[SnapshotEntry]: ...

    def __getitem__(self, number: int | slice) -> SnapshotEntry | Sequence[SnapshotEntry]:
        if not isinstance(number, slice):
            at = self._places[number]
            return next(self._make(range(at, at + 1)))
        places = self._places[number]
        return EntryColumns(self._columns, places) if places.step == 1 else tuple(self)[number]

    def __iter__(self) -> Iterator[SnapshotEntry]:
        for start in range(0, len(self), _MADE_AT_ONCE):
            yield from self._make(self._places[start : start + _MADE_AT_ONCE])

    def part(self, start: int, stop: int) -> EntryColumns:
        """The entries with numbers [start, stop). They share the columns."""
        return EntryColumns(self._columns, self._places[start:stop])

    def array(self, name: str) -> Any:
        """A column of numbers as a NumPy array, with NONE for None. The generations, the files as they are written
        (``expand_file``) and ``exact`` are lists."""
        return self._columns[name][self._places.start : self._places.stop]

    def digests(self) -> bytes:
        """The digests, one after the other."""
        digests: bytes = self._columns["digest"]
        return digests[self._places.start * DIGEST_BYTES : self._places.stop * DIGEST_BYTES]

    def follows(self) -> Any:
        """For each entry, the sequence after all entries before it, as an array; NONE if none of them has one."""
        import numpy as np  # noqa: PLC0415

        ends = np.concatenate(([NONE], self.array("next")[:-1]))
        return ends[np.maximum.accumulate(np.where(ends == NONE, 0, np.arange(len(ends))))]

    def rise_from(self, first: int, stop: int) -> bool:
        """Whether the entries have the indexes [first, stop), and no first sequence lies before what it follows."""
        import numpy as np  # noqa: PLC0415

        firsts = self.array("first")
        rises = firsts >= np.maximum(self.follows(), 0)
        return self.array("index") == range(first, stop) and bool(np.all(rises | (firsts == NONE)))

    def _make(self, places: range) -> Iterator[SnapshotEntry]:
        names = [name for name in SnapshotEntry.__slots__ if name != "digest"]
        columns = {name: _unpack(self._columns[name][places.start : places.stop]) for name in names}
        columns["file"] = list(map(expand_file, columns["file"], columns["first"]))
        digits = 2 * DIGEST_BYTES
        text = self._columns["digest"][places.start * DIGEST_BYTES : places.stop * DIGEST_BYTES].hex()
        columns["digest"] = [text[at : at + digits] for at in range(0, len(text), digits)]
        return map(SnapshotEntry, *(columns[name] for name in SnapshotEntry.__slots__))


_MADE_AT_ONCE = 1024

NONE = -(1 << 63)
"""None in a packed column."""

MANY = 4096
"""A snapshot of this number of entries, or more, keeps columns once it is read. Fewer are faster as entries."""


def read_entries(first: int, count: int, written: object) -> Sequence[SnapshotEntry]:
    """The ``count`` entries from index ``first`` on that ``write_entries`` wrote. Raises ValueError for anything else.

    Checks each entry alone. The snapshot checks them against each other.
    """
    if not isinstance(written, dict) or set(written) != _COLUMNS:
        raise ValueError("segments are not a table of the columns of a snapshot's entries")
    keep = _pack if count >= MANY else list
    columns: dict[str, Any] = {"index": range(first, first + count)}
    numbers: Any = _read_arrays(written, count) if count >= MANY else None
    if numbers is None:
        numbers = {
            name: keep(column)
            for read in (_read_sizes, _read_sequences, _read_times)
            for name, column in read(written, count)
        }
    columns |= numbers
    columns["file"] = _read_files(written["file"], count)
    columns["generation"] = _read_runs(written["generation"], count)
    columns["digest"] = _read_bytes("digest", written["digest"], count * DIGEST_BYTES)
    columns["crc"] = keep(struct.unpack(f"<{count}I", _read_bytes("crc", written["crc"], 4 * count)))
    columns["exact"] = _read_exact(written["coarse"], count)
    entries = EntryColumns(columns, range(count))
    is_packed = not any(isinstance(columns[name], Sequence) for name in _NUMBERS)
    return entries if is_packed else tuple(entries)


def _read_arrays(written: Mapping[str, Any], count: int) -> Any:
    from litelog.objects.packed_entries import read_arrays  # noqa: PLC0415 - few entries are read without NumPy

    return read_arrays(written, count, _RANGES, MAX_EXPANSION)


def _read_sizes(written: Mapping[str, Any], count: int) -> Iterator[tuple[str, Sequence[Any]]]:
    size, length = (_bounded(name, read_plain(name, written[name], count)) for name in ("size", "length"))
    _require(all(map(le, length, (most * MAX_EXPANSION for most in size))), "length")
    yield from (("size", size), ("length", length))


def _read_sequences(written: Mapping[str, Any], count: int) -> Iterator[tuple[str, Sequence[Any]]]:
    yield "sealed_index", _bounded("sealed_index", read_differences("sealed_index", written["sealed_index"], count))
    records = _bounded("records", read_plain("records", written["records"], count))
    first = read_gapped("first", written["first"], count)
    _require(_gaps(first) == [number for number, held in enumerate(records) if not held], "records")
    yield from (("records", records), ("first", first))
    yield "next", _read_more("next", written["next"], _sum(first, records))


def _read_times(written: Mapping[str, Any], count: int) -> Iterator[tuple[str, Sequence[Any]]]:
    for low, high, read in (("lowest", "highest", read_gapped), ("shipped_first", "shipped_last", read_differences)):
        lows = _bounded(low, read(low, written[low], count))
        yield low, lows
        yield high, _bounded(high, _read_more(high, written[high], lows))


def _bounded(name: str, column: Sequence[Any]) -> Sequence[Any]:
    low, high = _RANGES.get(name, (None, None))
    _require(low is None or high is None or not column or low <= min(column) <= max(column) < high, name)
    return column


def _pack(column: Sequence[Any]) -> Any:
    """A column as an array of i64 with NONE for None; unchanged if it holds anything else."""
    import numpy as np  # noqa: PLC0415

    if type(column[0]) is str or NONE in column:
        return column
    try:
        return np.array([NONE if value is None else value for value in column] if None in column else column, np.int64)
    except OverflowError:
        return column


def _unpack(column: Any) -> Sequence[Any]:
    if isinstance(column, Sequence):
        return column
    values = column.tolist()
    return [None if value == NONE else value for value in values] if NONE in values else cast("list[Any]", values)


_PLAIN = ("size", "length", "records")
_RISING = ("sealed_index", "shipped_first")
_GAPPED = ("first", "lowest")
_COLUMNS = {*SnapshotEntry.__slots__, "coarse"} - {"index", "exact"}
_NUMBERS = {*SnapshotEntry.__slots__} - {"index", "generation", "file", "digest", "exact"}
_RANGES: dict[str, tuple[int, int]] = {
    "size": (MIN_OBJECT_BYTES, MOST),
    "length": (0, MOST),
    "records": (0, MOST),
    "sealed_index": (0, MAX_INDEX),
    "shipped_first": (0, MOST),
    "shipped_last": (0, MOST),
}
_PACKED = {"digest", "crc", "generation"}
ENTRY_VALUES = len(_COLUMNS - _PACKED)
"""How many JSON values an entry takes, if no column is packed."""

_SEQUENCE = "/"
"""Replaces the first sequence in 20 digits in a written file name, as most formats name their log segments so. It has
no other meaning, as no file name holds this character."""


def _shorten(file: str, first: int | None) -> str:
    if "/" in file or not file:
        raise ValueError(f"{abbreviate(file)} is not a file name")
    return file if first is None else file.replace(f"{first:020d}", _SEQUENCE)


def _read_files(written: object, count: int) -> list[str]:
    """The file names as they are written, equal ones as one text."""
    files = _require_list("file", written)
    _require(len(files) == count and set(map(type, files)) <= {str} and all(files), "file")
    _require(is_valid_text("/".join(files)), "file")
    known: dict[str, str] = {}
    return [known.setdefault(file, file) for file in files]


def expand_file(file: str, first: int | None) -> str:
    """The name of a log segment's file, of which a snapshot may hold a shorter form."""
    return file if first is None else file.replace(_SEQUENCE, f"{first:020d}")


def _gaps(column: Sequence[int | None]) -> list[int]:
    """The places of the values that are None."""
    return [number for number, value in enumerate(column) if value is None] if None in column else []


def _sum(column: Sequence[int | None], more: Sequence[int]) -> list[int | None]:
    """The sums of both columns; None where the first is None."""
    if None not in column:
        return list(map(add, column, more))
    return [None if value is None else value + by for value, by in zip(column, more, strict=True)]


def _less(column: Sequence[int | None], known: Sequence[int | None]) -> list[int | None]:
    """The excess of each value over the known one, or over 0 where that is None."""
    return [None if value is None else value - (less or 0) for value, less in zip(column, known, strict=True)]


def _read_more(name: str, written: object, known: Sequence[int | None]) -> list[int | None]:
    """The column that ``_less`` turned into ``written``: None exactly where the known value is None, except that
    ``next`` may be known where ``first`` is not."""
    steps = read_plain_gapped(name, written, len(known))
    gaps = _gaps(steps)
    _require(min((step for step in steps if step is not None), default=0) >= 0, name)
    unknown = _gaps(known)
    _require(gaps == unknown or (name == "next" and set(gaps) <= set(unknown)), name)
    return _sum(steps, [value or 0 for value in known])


def _runs(names: Sequence[str]) -> list[list[object]]:
    """[name, number of repetitions] for each run of the same name."""
    return [[name, len(list(group))] for name, group in groupby(names)]


def _read_runs(written: object, count: int) -> list[Generation]:
    names: list[Generation] = []
    for name, times in _require_list("generation", written):
        _require(type(times) is int and 0 < times <= count - len(names), "generation")
        names += [generation(name)] * times
    _require(len(names) == count, "generation")
    return names


def _read_bytes(name: str, written: object, size: int) -> bytes:
    if not isinstance(written, str):
        raise ValueError(f"{name} is not text")
    found = b64decode(written, validate=True)
    _require(len(found) == size, name)
    return found


def _read_exact(written: object, count: int) -> list[bool]:
    exact = [True] * count
    for number in read_differences("coarse", written):
        _require(0 <= number < count, "coarse")
        exact[number] = False
    return exact


def _require_list(name: str, written: object) -> list[Any]:
    if not isinstance(written, list):
        raise ValueError(f"{name} is not a list")
    return written


def _require(holds: bool, name: str) -> None:
    if not holds:
        raise ValueError(f"{name} of the log segments does not fit: it has too few or too many entries, or bad ones")
