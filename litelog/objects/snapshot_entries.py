"""The entries of a snapshot, one for each log segment, and the columns that they are written as.

Specified in litelog/objects/README.md#snapshot-entries.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass
from itertools import groupby
from operator import add, le
from typing import TYPE_CHECKING, Any

import numpy as np

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
from litelog.errors import CorruptObjectError
from litelog.objects.layout import sealed_key
from litelog.objects.position import MAX_INDEX, Generation, generation
from litelog.objects.sealed_segment import MIN_OBJECT_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.objects.sealed_segment import SealedFooter

MAX_EXPANSION = 255
"""The highest compression ratio of LZ4. It bounds a log segment's length by the size of its sealed segment."""

_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class SnapshotEntry:
    """One log segment, and the sealed segment that holds it."""

    index: int
    """The log segment's index in the snapshot's generation."""
    generation: Generation
    """The sealed segment's generation: the snapshot's, or an earlier one whose sealed segment holds the same bytes."""
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
    """Check that a sealed segment is the one that a snapshot names. A CorruptObjectError names the sealed segment."""
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
    written["crc"] = b64encode(np.array(columns["crc"], "<u4").tobytes()).decode()
    written["coarse"] = write_differences([number for number, exact in enumerate(columns["exact"]) if not exact])
    return written


def read_entries(first: int, count: int, written: object) -> tuple[SnapshotEntry, ...]:
    """The ``count`` entries from index ``first`` on that ``write_entries`` wrote. Raises ValueError for anything else.

    Checks each entry by itself. The snapshot checks them against each other.
    """
    if not isinstance(written, dict) or set(written) != _COLUMNS:
        raise ValueError("segments are not a table of the columns of a snapshot's entries")
    columns: dict[str, Sequence[Any]] = {"index": range(first, first + count)}
    columns |= {name: read_plain(name, written[name], count) for name in _PLAIN}
    columns |= {name: read_differences(name, written[name], count) for name in _RISING}
    columns |= {name: read_gapped(name, written[name], count) for name in _GAPPED}
    _require(
        _gaps(columns["first"]) == [number for number, records in enumerate(columns["records"]) if not records],
        "records",
    )
    counted = _sum(columns["first"], columns["records"])
    columns["next"] = _read_more("next", written["next"], counted)
    columns["highest"] = _read_more("highest", written["highest"], columns["lowest"])
    columns["shipped_last"] = _read_more("shipped_last", written["shipped_last"], columns["shipped_first"])
    columns["generation"] = _read_runs(written["generation"], count)
    columns["file"] = _read_files(written["file"], columns["first"])
    text, digits = _read_bytes("digest", written["digest"], count * _DIGEST_BYTES).hex(), 2 * _DIGEST_BYTES
    columns["digest"] = [text[at : at + digits] for at in range(0, len(text), digits)]
    columns["crc"] = np.frombuffer(_read_bytes("crc", written["crc"], 4 * count), "<u4").tolist()
    columns["exact"] = _read_exact(written["coarse"], count)
    for name, low, high in _RANGES:
        column = columns[name]
        _require(not column or low <= min(column) <= max(column) < high, name)
    most = (size * MAX_EXPANSION for size in columns["size"])
    _require(all(map(le, columns["length"], most)), "length")
    return tuple(map(SnapshotEntry, *(columns[name] for name in SnapshotEntry.__slots__)))


_PLAIN = ("size", "length", "records")
_RISING = ("sealed_index", "shipped_first")
_GAPPED = ("first", "lowest")
_COLUMNS = {*SnapshotEntry.__slots__, "coarse"} - {"index", "exact"}
_RANGES = (
    ("size", MIN_OBJECT_BYTES, MOST),
    ("length", 0, MOST),
    ("records", 0, MOST),
    ("sealed_index", 0, MAX_INDEX),
    ("shipped_first", 0, MOST),
    ("shipped_last", 0, MOST),
)
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


def _read_files(written: object, firsts: Sequence[int | None]) -> list[str]:
    files = _require_list("file", written)
    _require(len(files) == len(firsts) and set(map(type, files)) <= {str} and all(files), "file")
    _require(is_valid_text("/".join(files)), "file")
    return [
        file if first is None else file.replace(_SEQUENCE, f"{first:020d}")
        for file, first in zip(files, firsts, strict=True)
    ]


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
