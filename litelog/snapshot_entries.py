"""What a snapshot says of each log segment: entries, and the columns that they are written as."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from litelog.deltas import differences, gapped_differences, read_differences, read_gapped, read_plain
from litelog.errors import CorruptObjectError
from litelog.layout import sealed_key
from litelog.position import MAX_INDEX, generation
from litelog.sealed_segment import MIN_OBJECT_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.sealed_segment import SealedFooter

_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class SnapshotEntry:
    """One log segment, and the sealed segment that holds it."""

    index: int
    """The log segment's in the snapshot's generation."""
    generation: str
    """The sealed segment's: the snapshot's, or an earlier one whose sealed segment holds the same bytes."""
    sealed_index: int
    """The log segment's index in that generation."""
    file: str
    size: int
    """Bytes of the object."""
    length: int
    """Bytes of the log segment."""
    digest: str
    """SHA-256, hex, of the log segment's bytes."""
    crc: int
    """Their CRC-32C."""
    first: int | None
    """The first record's sequence; None where there is no record."""
    next: int | None
    records: int
    lowest: int | None
    """The lowest record timestamp, microseconds since 1970; None where there is none."""
    highest: int | None
    shipped_first: int
    """When its first bytes were shipped, microseconds since 1970; ``shipped_last``: its last ones."""
    shipped_last: int
    exact: bool
    """Whether the sealed segment knows when each of its bytes were shipped."""

    @property
    def key(self) -> str:
        """The sealed segment's."""
        return sealed_key(generation(self.generation), self.sealed_index)


def make_entry(footer: SealedFooter, size: int, index: int | None = None) -> SnapshotEntry:
    """The entry of a sealed segment whose object has ``size`` bytes; ``index``: the log segment's in the snapshot's
    generation, where that is another one's than the footer's."""
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
    """That a sealed segment is the one that a snapshot names; CorruptObjectError by the sealed segment's key."""
    made = make_entry(footer, entry.size, entry.index)
    for name in SnapshotEntry.__slots__:
        expected, actual = getattr(entry, name), getattr(made, name)
        if expected != actual:
            raise CorruptObjectError(footer.key, f"{name}, which a snapshot names,", expected, actual)


def write_entries(entries: Sequence[SnapshotEntry]) -> dict[str, object]:
    """The entries as columns for JSON; their indexes follow from the snapshot's."""
    columns: dict[str, list[Any]] = {
        name: [getattr(entry, name) for entry in entries] for name in SnapshotEntry.__slots__ if name != "index"
    }
    written: dict[str, object] = {name: columns[name] for name in _PLAIN}
    written |= {name: differences(columns[name]) for name in _RISING}
    written |= {name: gapped_differences(columns[name]) for name in _GAPPED}
    written["generation"] = _runs(columns["generation"])
    written["file"] = columns["file"]
    written["digest"] = b64encode(bytes.fromhex("".join(columns["digest"]))).decode()
    written["coarse"] = differences([number for number, exact in enumerate(columns["exact"]) if not exact])
    return written


def read_entries(first: int, count: int, written: object) -> tuple[SnapshotEntry, ...]:
    """The ``count`` entries from index ``first`` on that ``write_entries`` wrote; ValueError for what are none."""
    if not isinstance(written, dict) or set(written) != _COLUMNS:
        raise ValueError("segments are no table, or have other columns than they should have")
    columns: dict[str, Sequence[Any]] = {"index": range(first, first + count)}
    columns |= {name: read_plain(name, written[name], count) for name in _PLAIN}
    columns |= {name: read_differences(name, written[name], count) for name in _RISING}
    columns |= {name: read_gapped(name, written[name], count) for name in _GAPPED}
    columns["generation"] = _read_runs(written["generation"], count)
    columns["file"] = _read_files(written["file"], count)
    columns["digest"] = _read_digests(written["digest"], count)
    coarse = read_differences("coarse", written["coarse"])
    exact = [True] * count
    for number in coarse:
        _require(0 <= number < count, "coarse names an entry that is not there")
        exact[number] = False
    columns["exact"] = exact
    _check_columns(columns)
    return tuple(map(SnapshotEntry, *(columns[name] for name in SnapshotEntry.__slots__)))


_PLAIN = ("size", "length", "crc", "records")
_RISING = ("sealed_index", "shipped_first", "shipped_last")
_GAPPED = ("first", "next", "lowest", "highest")
_COLUMNS = {*_PLAIN, *_RISING, *_GAPPED, "generation", "file", "digest", "coarse"}


def _runs(names: Sequence[str]) -> list[list[object]]:
    """[name, how many times] for each run of the same name."""
    runs: list[list[Any]] = []
    for name in names:
        if runs and runs[-1][0] == name:
            runs[-1][1] += 1
        else:
            runs.append([name, 1])
    return runs


def _read_runs(written: object, count: int) -> list[str]:
    _require(isinstance(written, list), "generation is no list")
    names: list[str] = []
    for name, times in written:  # type: ignore[attr-defined]
        _require(type(times) is int and 0 < times <= count - len(names), "generation has other entries than the rest")
        names += [generation(name)] * times
    _require(len(names) == count, f"generation has {len(names)} entries, not {count}")
    return names


def _read_files(written: object, count: int) -> list[str]:
    _require(isinstance(written, list) and len(written) == count, "file is no list of as many as there are entries")
    assert isinstance(written, list)
    _require(set(map(type, written)) <= {str} and all(written), "file holds what is no name")
    return written


def _read_digests(written: object, count: int) -> list[str]:
    _require(isinstance(written, str), "digest is no text")
    assert isinstance(written, str)
    joined = b64decode(written, validate=True)
    _require(len(joined) == count * _DIGEST_BYTES, f"digest holds {len(joined)} bytes for {count} entries")
    text, digits = joined.hex(), 2 * _DIGEST_BYTES
    return [text[at : at + digits] for at in range(0, len(text), digits)]


def _check_columns(columns: dict[str, Sequence[Any]]) -> None:
    """What must hold of each entry by itself, and of each with the one before."""
    for name, low, high in (
        ("size", MIN_OBJECT_BYTES, 1 << 63),
        ("length", 0, 1 << 63),
        ("crc", 0, 1 << 32),
        ("records", 0, 1 << 63),
        ("sealed_index", 0, MAX_INDEX),
        ("shipped_first", 0, 1 << 63),
        ("shipped_last", 0, 1 << 63),
    ):
        column = columns[name]
        _require(not column or low <= min(column) <= max(column) < high, f"{name} is out of range")
    follows = 0
    for first, behind, records in zip(columns["first"], columns["next"], columns["records"], strict=True):
        _require((first is None) == (records == 0), "an entry has records without a sequence, or the reverse")
        if first is not None:
            _require(follows <= first < (behind or 0), f"sequence {first} does not follow {follows}")
        _require(behind is None or behind >= follows, f"next sequence {behind} is before {follows}")
        follows = follows if behind is None else behind
    for one, other in (("lowest", "highest"), ("shipped_first", "shipped_last")):
        for start, stop in zip(columns[one], columns[other], strict=True):
            good = stop is None if start is None else stop is not None and start <= stop
            _require(good, f"{one} and {other} are no range")


def _require(holds: bool, reason: str) -> None:
    if not holds:
        raise ValueError(reason)
