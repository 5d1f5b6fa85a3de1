"""Commits of litelog's own format, checked, and the rows of their records, in one pass of the compiled library.

``formats/litelog`` does the same with NumPy where the library is missing, and for commits that it leaves. What only
checks commits loads no NumPy.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from litelog.native.calls import address_of, call, make_numbers, read
from litelog.native.library import has_fast_checksums, load

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

_KEYED = 1
_FLAGS_AT = 23
_COLUMNS, _KEYED_COLUMNS = 4, 6
_EPOCH = 1
_MAX, _MOST_EPOCH = (1 << 63) - 1, (1 << 64) - 1
_WORD_BYTES = 8


class CommitBodies(NamedTuple):
    """The records of commits."""

    columns: Int64s
    """Rows: sequence, time, start and length of the value; and of the key, if any commit has keys."""
    firsts: Int64s
    """The number of each commit's first record."""
    lowest: int
    highest: int
    """The bounds of the times."""


class FoundCommits(NamedTuple):
    """At least one commit. The columns of each fill its body."""

    positions: list[int]
    """Where each commit begins."""
    end: int
    """Where the last one ends."""
    next: int
    """The sequence after its last record."""
    epoch: int
    times: tuple[int, int]
    """The lowest and the highest time of a record."""


class TakenCommits(NamedTuple):
    """The same commits, and their records."""

    run: FoundCommits
    bodies: CommitBodies


def check_bodies(data: memoryview, positions: Sequence[int], total: int) -> tuple[int, int] | None:
    """Check the ``total`` records of the commits at ``positions``, whose headers and checksums are right.

    Returns:
        The lowest and the highest time of a record. None without the library, and if it is not sure that the columns of
        each commit fill its body.
    """
    library = load()
    if library is None or total < 1:
        return None
    places, firsts, times = make_numbers(len(positions)), make_numbers(len(positions)), make_numbers(2)
    for number, position in enumerate(positions):
        places[number] = position
    given = (read(data), len(data), places, len(positions), 1, None, total, firsts, times)
    return (times[0], times[1]) if call(library.litelog_take_bodies, *given) == total else None


def take_bodies(data: memoryview, positions: Sequence[int], total: int) -> CommitBodies | None:
    """Read these records. None as ``check_bodies``."""
    import numpy as np  # noqa: PLC0415 - a daemon only checks

    library = load()
    if library is None or total < 1:
        return None
    keyed = _have_keys(data, positions)
    columns, firsts = _make_columns(total, keyed=keyed), np.empty(len(positions), np.int64)
    places, bounds = np.array(positions, np.int64), np.empty(2, np.int64)
    given = (read(data), len(data), places, len(places), int(keyed))
    if call(library.litelog_take_bodies, *given, columns, total, firsts, bounds) != total:
        return None
    return CommitBodies(columns, firsts, int(bounds[0]), int(bounds[1]))


def find_commits(
    data: memoryview, start: int, sequence: int | None, epoch: int, most_bytes: int
) -> FoundCommits | None:
    """Find the commits from ``start`` on, up to the first that is not plainly right, also in its columns.

    Args:
        data: The buffer.
        start: Where a commit begins in it.
        sequence: That of the first record; None: the one that the first commit states.
        epoch: The lowest epoch.
        most_bytes: Of a commit.

    Returns:
        None if there is none; without the library; and if it would compute checksums slowly.
    """
    found = _find(data, start, sequence, epoch, most_bytes, with_columns=False)
    return None if found is None else found[0]


def take_commits(
    data: memoryview, start: int, sequence: int | None, epoch: int, most_bytes: int
) -> TakenCommits | None:
    """As ``find_commits``, and read the records."""
    found = _find(data, start, sequence, epoch, most_bytes, with_columns=True)
    if found is None:
        return None
    import numpy as np  # noqa: PLC0415 - a daemon only checks

    run, columns, firsts = found
    return TakenCommits(run, CommitBodies(columns, np.frombuffer(firsts, np.int64), *run.times))


def _find(
    data: memoryview, start: int, sequence: int | None, epoch: int, most_bytes: int, *, with_columns: bool
) -> tuple[FoundCommits, Any, memoryview] | None:
    """The commits; the columns of their records, if they are wanted; and the number of each commit's first record."""
    library = load()
    if library is None or not has_fast_checksums():
        return None
    count, take = _functions(library)
    source, size, run = address_of(data), len(data), make_numbers(6)
    at = address_of(run)
    capacity = count(source, size, start, at, at + _WORD_BYTES)
    if not capacity:
        return None
    total, flags = run[0], run[1]
    expected = _expect(data, start, sequence)
    if expected is None:
        return None
    keyed = bool(flags & _KEYED)
    columns = _make_columns(total, keyed=keyed) if with_columns else None
    numbers, run[0], run[_EPOCH] = make_numbers(2 * capacity + 1), expected, _as_signed(epoch)
    places = address_of(numbers)
    into = (address_of(columns), total, places, places + _WORD_BYTES * (capacity + 1), capacity, at)
    found = take(source, size, start, most_bytes, keyed, *into)
    if not found:
        return None
    following, newest, lowest, highest = run[:4].tolist()
    *positions, end = numbers[: found + 1].tolist()
    if columns is not None and found < capacity:
        columns = columns[: _COLUMNS if keyed and not _have_keys(data, positions) else None, : following - expected]
    commits = FoundCommits(positions, end, following, newest & _MOST_EPOCH, (lowest, highest))
    return commits, columns, numbers[capacity + 1 :][:found]


class CheckedCommits(NamedTuple):
    """At least one commit, all of which are right."""

    commits: int
    last: int
    """Where the last one begins."""
    end: int
    """Where it ends."""
    records: int
    next: int
    """The sequence after its last record."""
    epoch: int
    lowest: int
    highest: int
    """The bounds of the times."""
    crc: int
    """The CRC-32C of the buffer up to ``end``."""


def check_commits(
    data: memoryview, start: int, sequence: int | None, epoch: int, most_bytes: int
) -> CheckedCommits | None:
    """Make all checks of ``find_commits``, and count what they find. Arguments and None as there."""
    library = load()
    if library is None or not has_fast_checksums():
        return None
    expected = _expect(data, start, sequence)
    if expected is None:
        return None
    run, facts = make_numbers(4), make_numbers(4)
    run[0], run[_EPOCH] = expected, _as_signed(epoch)
    count = call(library.litelog_check_commits, read(data), len(data), start, most_bytes, run, facts)
    if not count:
        return None
    following, newest, lowest, highest = run.tolist()
    last, end, records, crc = facts.tolist()
    return CheckedCommits(count, last, end, records, following, newest & _MOST_EPOCH, lowest, highest, crc)


def _expect(data: memoryview, start: int, sequence: int | None) -> int | None:
    """The sequence that the commit at ``start`` must have. None if no record can have it."""
    expected = int.from_bytes(data[start : start + 8], "little") if sequence is None else sequence
    return expected if expected <= _MAX else None


def _as_signed(epoch: int) -> int:
    """An epoch, of 64 bits, as a signed number with the same bits."""
    return epoch - (epoch > _MAX) * (_MOST_EPOCH + 1)


@cache
def _functions(library: ctypes.CDLL) -> tuple[ctypes._NamedFuncPointer, ctypes._NamedFuncPointer]:
    """The two functions that find commits."""
    import ctypes  # noqa: PLC0415  # takes as long as the start of a small command

    address, number = ctypes.c_void_p, ctypes.c_int64
    count, take = library.litelog_count_commits, library.litelog_take_commits
    count.restype = take.restype = number
    count.argtypes = [address, number, number, address, address]
    take.argtypes = [address, *[number] * 4, address, number, address, address, number, address]
    return count, take


def _have_keys(data: memoryview, positions: Sequence[int]) -> bool:
    return any(data[position + _FLAGS_AT] & _KEYED for position in positions)


def _make_columns(records: int, *, keyed: bool) -> Int64s:
    import numpy as np  # noqa: PLC0415 - a daemon only checks

    return np.empty((_KEYED_COLUMNS if keyed else _COLUMNS, records), np.int64)
