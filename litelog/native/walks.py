"""The functions of the compiled library, over NumPy's arrays. Each returns None if the library is not there.

Their results are those of the NumPy code that stands at each call, which takes over where there is None.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from litelog.native.calls import call, read
from litelog.native.library import has_fast_checksums, load

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    import numpy.typing as npt

    from litelog.native.layouts import Field, FrameLayout

    Int64s = npt.NDArray[np.int64]

RECORD_COLUMNS, COMMAND_COLUMNS = 10, 6
MOST_HEADERS = 512
"""How many places are found at once."""


class TakenFrames(NamedTuple):
    """n frames, and what was read of them in one pass."""

    bounds: Int64s
    """Where each frame begins, and where the last one ends."""
    fields: Int64s
    """A row of n numbers for each field. A field of 8 bytes is an int64, whatever its width says."""
    values: memoryview | None
    """The values of all frames, back to back; None if they were not asked for."""
    places: Int64s
    """If so, two rows: where each value begins in ``values``, and its length."""


class TakenMessages(NamedTuple):
    """n messages of NetLog, and their records."""

    bounds: Int64s
    """Where each message begins, and where the last one ends."""
    suspects: Int64s
    """The numbers of the plain messages whose payload may be a set."""
    is_complete: bool
    """Whether the records of all messages are there: not if there is a compressed set, or a malformed one."""
    has_sets: bool
    records_after: Int64s
    """How many records there are up to each message's end."""
    values: memoryview | None
    """The values of all records, back to back; None if they were not asked for."""
    places: Int64s
    """If so, two rows: where each value begins in ``values``, and its length."""


def find_frames(data: memoryview, start: int, layout: FrameLayout) -> Int64s | None:
    """Find the whole frames from ``start`` on, up to the first with a length that cannot be, or a wrong checksum.

    Returns:
        Where each frame begins, and where the last one ends. None without the library, and also if it would compute
        checksums slowly.
    """
    taken = take_frames(data, start, layout, (), copies=False)
    return None if taken is None else taken.bounds


def take_frames(
    data: memoryview, start: int, layout: FrameLayout, fields: Sequence[Field], *, copies: bool
) -> TakenFrames | None:
    """As ``find_frames``, and read fields of each frame, and copy its value if ``copies`` says so, in the same pass."""
    library = load()
    if library is None or (layout.checksum and not has_fast_checksums()):
        return None
    capacity = max(0, len(data) - start) // layout.fewest_bytes
    bounds = np.empty(capacity + 1, np.int64)
    columns = np.empty((len(fields) + 2 * copies, capacity), np.int64)
    values = np.empty(max(0, len(data) - start) if copies else 0, np.uint8)
    given = (read(data), len(data), start, described(layout), described(tuple(fields)), len(fields))
    found = call(library.litelog_take_frames, *given, bounds, columns, capacity, values, len(values), int(copies))
    if found < 0:
        raise ValueError(f"{layout} with {fields} is not a layout of frames, or {start} not in {len(data)} bytes")
    bounds, columns = bounds[: found + 1].copy(), columns[:, :found].copy()
    numbers, places = columns[: len(fields)], columns[len(fields) :]
    filled = int(places[:, -1].sum()) if copies and found else 0
    return TakenFrames(bounds, numbers, values.data[:filled] if copies else None, places)


def take_messages(data: memoryview, start: int, layout: FrameLayout, *, copies: bool) -> TakenMessages | None:
    """Find NetLog's messages from ``start`` on, as ``find_frames``, up to the first with an unknown codec, and the
    records in them. None without the library, and also if it would compute checksums slowly."""
    library = load()
    if library is None or not has_fast_checksums():
        return None
    left = max(0, len(data) - start)
    capacity, most = left // layout.fewest_bytes, left // layout.other_bytes if copies else 0
    bounds, after, suspects = (np.empty(capacity + more, np.int64) for more in (1, 0, 0))
    columns, values = np.empty((2, most), np.int64), np.empty(left if copies else 0, np.uint8)
    filled = np.zeros(5, np.int64)
    given = (read(data), len(data), start, described(layout), bounds, after, suspects, capacity)
    found = call(library.litelog_take_messages, *given, columns, most, values, len(values), int(copies), filled)
    if found < 0:
        raise ValueError(f"{layout} is not a layout of NetLog's messages, or {start} not in {len(data)} bytes")
    records, value_bytes, suspected, read_messages, sets = filled.tolist()
    return TakenMessages(
        bounds=bounds[: found + 1].copy(),
        suspects=suspects[:suspected].copy(),
        is_complete=read_messages == found,
        has_sets=sets > 0,
        records_after=after[:found].copy(),
        values=values.data[:value_bytes] if copies else None,
        places=columns[:, :records].copy() if copies else columns,
    )


def find_records(data: memoryview, begins: Int64s, ends: Int64s, counts: Int64s) -> Int64s | None:
    """Find the records of Kafka's batches, which lie from ``begins`` to ``ends``, as many as ``counts`` says.

    Returns:
        An array of 10 rows: start, end, time delta, offset delta, start and length of the key, and of the value, start
        and number of the headers. A length is -1 for null. None without the library, and also if it is not sure that
        each batch holds its records and nothing else.
    """
    library = load()
    if library is None:
        return None
    total = int(counts.sum())
    columns = np.empty((RECORD_COLUMNS, total), np.int64)
    places = (places_of(each) for each in (begins, ends, counts))
    found = call(library.litelog_find_records, read(data), len(data), *places, len(counts), columns, total)
    return columns if found == total else None


def find_commands(data: memoryview, no_key: Int64s, second_key: Int64s, fewest_bytes: int) -> Int64s | None:
    """Find Redis's commands from the front of ``data`` on, up to the first that is not whole, or an annotation.

    Args:
        data: The bytes from the start of a commit on.
        no_key: The names of commands without a key, as numbers.
        second_key: Those of commands whose key is the second word after the name.
        fewest_bytes: The size of the smallest command.

    Returns:
        An array of 6 rows: start, end, start and length of the key (0 and -1 for none), name, number of words. None
        without the library.
    """
    library = load()
    if library is None:
        return None
    capacity = len(data) // fewest_bytes
    columns = np.empty((COMMAND_COLUMNS, capacity), np.int64)
    names = (no_key, len(no_key), second_key, len(second_key))
    found = call(library.litelog_find_commands, read(data), len(data), *names, columns, capacity)
    return columns[:, :found].copy()


def find_breaks(starts: Int64s, lengths: Int64s, most: int) -> Int64s | None:
    """The number of each entry that does not begin where the one before ends, the first entry among them, up to
    ``most``. None without the library."""
    library = load()
    if library is None:
        return None
    breaks = np.empty(min(most, len(starts)), np.int64)
    places = (places_of(starts), places_of(lengths))
    found = call(library.litelog_find_breaks, *places, len(starts), breaks, len(breaks))
    return breaks[:found].copy()


def find_headers(data: memoryview, begin: int, end: int) -> list[int] | None:
    """The places from ``begin`` to ``end``, exclusive, at which a batch of Kafka may begin, by its magic, length,
    offset and counts. A header of 61 bytes must lie in ``data`` at each. None without the library."""
    library = load()
    if library is None:
        return None
    places, found = np.empty(MOST_HEADERS, np.int64), list[int]()
    count = MOST_HEADERS
    while count == MOST_HEADERS:
        count = call(library.litelog_find_headers, read(data), len(data), begin, end, places, MOST_HEADERS)
        found += places[:count].tolist()
        begin = found[-1] + 1 if found else end
    return found


def find_message_heads(data: memoryview, start: int, most: int) -> list[tuple[int, int]] | None:
    """The places from ``start`` on at which a message of NetLog may begin that is there as a whole, and is not empty;
    and the length of its payload, up to ``most``. None without the library."""
    library = load()
    if library is None:
        return None
    columns, found = np.empty((2, MOST_HEADERS), np.int64), list[tuple[int, int]]()
    places, lengths = columns
    count = MOST_HEADERS
    while count == MOST_HEADERS:
        given = (read(data), len(data), start, most)
        count = call(library.litelog_find_message_heads, *given, places, lengths, MOST_HEADERS)
        found += zip(places[:count].tolist(), lengths[:count].tolist(), strict=True)
        start = found[-1][0] + 1 if found else start
    return found


def gather(data: memoryview, starts: Int64s, lengths: Int64s, offsets: npt.NDArray[np.int32], into: Any) -> bool:
    """Copy the entries at ``starts`` back to back into a writable buffer, and write where each begins and ends there.

    Args:
        data: The bytes of the entries.
        starts: Where each entry begins in them.
        lengths: How long each is; a negative one is empty.
        offsets: Takes a place for each entry, and one for the end of the last.
        into: Takes the bytes of all entries, below 2 GiB.

    Returns:
        False without the library.

    Raises:
        ValueError: An entry does not lie in ``data``, or ``into`` has another size.
    """
    library = load()
    if library is None:
        return False
    target, count = np.frombuffer(into, np.uint8), len(starts)
    places = (places_of(starts), places_of(lengths))
    found = call(library.litelog_gather, read(data), len(data), *places, count, offsets, target, len(target))
    if found != len(target):
        raise ValueError(f"{count} entries do not lie in {len(data)} bytes, or do not fill {len(target)}")
    return True


@lru_cache(maxsize=64)
def described(numbers: FrameLayout | tuple[Field, ...]) -> Int64s:
    """A layout, or fields, as the library reads them."""
    return np.array(numbers, np.int64)


def places_of(numbers: Int64s) -> Int64s:
    """The numbers as the library reads them."""
    return np.ascontiguousarray(numbers, np.int64)
