"""Kafka's batches, checked, and the rows of their records, in one pass of the compiled library.

``formats/kafka`` does the same with NumPy where the library is missing, and for batches that it leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from litelog.native.calls import call, read
from litelog.native.library import has_fast_checksums, load
from litelog.native.walks import described

if TYPE_CHECKING:
    import ctypes

    import numpy.typing as npt

    from litelog.native.layouts import FrameLayout

    Int64s = npt.NDArray[np.int64]

HEADER_BYTES = 61
_LENGTH, _COUNT = slice(8, 12), slice(57, 61)
_FEWEST_RECORD_BYTES = 7
_ROW_COLUMNS, _COLUMNS = 7, 11
_KEY_START, _KEY_LENGTH = 5, 6

_ROWS, _VALUE_BYTES, _KEY_BYTES, _KEYS, _NULLS, _HEADED, _TAKEN, _IS_FULL, _IS_UNSURE = range(9)
"""The numbers that say how far the rows are filled, in the order of ``kafka.h``. Those of BatchTotals follow."""

_FIRST_TOTAL, _LAST_OFFSET, _COUNTS = 9, 10, 16
_MIN, _MAX = -(1 << 63), (1 << 63) - 1


class BatchTotals(NamedTuple):
    """What the headers of batches that follow each other say together. Of earliest to has_older, only those of batches
    with records."""

    next: int
    """The lowest offset that may follow."""
    epoch: int
    records: int
    """A batch without records counts as one."""
    earliest: int
    """The lowest of the batches' highest times, in milliseconds; above ``latest`` if no batch has records."""
    latest: int
    has_older: bool
    """Whether records may be older than ``earliest``."""


class TakenBatches(NamedTuple):
    """n batches of Kafka, and the rows of their records. Places of keys and values are in ``content``."""

    bounds: Int64s
    """Where each batch begins, and where the last one ends."""
    attributes: Int64s
    producers: Int64s
    rows_after: Int64s
    """How many rows there are up to the end of each batch."""
    taken: int
    """How many batches have their rows: those before the first batch that is compressed, or not plainly right; negative
    if none were asked for."""
    rows: Int64s
    """An array of 7 rows: sequence, time in microseconds, start and length of the value, where it lies in the piece,
    start and length of the key. A length is -1 for null."""
    headed: Int64s
    """An array of 4 rows, with a column for each record that has headers: its number, start and end of its headers in
    the piece, and their number."""
    content: memoryview
    """The values, back to back, and the keys."""
    has_keys: bool
    has_nulls: bool
    """Whether values are null."""
    totals: BatchTotals | None
    """None if one of the batches is not plainly one that may follow those before it."""


def take_batches(
    data: memoryview, layout: FrameLayout, expected: tuple[int, int, int], *, with_rows: bool
) -> TakenBatches | None:
    """Find Kafka's batches from the front of ``data`` on, as ``walks.find_frames``, and write rows for their records.

    Args:
        data: The bytes from the start of a batch on.
        layout: How batches state their length and their checksum.
        expected: The lowest offset of the first batch, the highest offset of all, and the lowest epoch.
        with_rows: Whether rows are wanted.

    Returns:
        The batches, whose checksums are right. Control batches have no rows. None without the library, and also if it
        would compute checksums slowly.
    """
    library = load()
    if library is None or not has_fast_checksums():
        return None
    content = np.empty(2 * len(data) if with_rows else 0, np.uint8)
    lowest, highest, epoch = expected
    start = [0] * _IS_UNSURE + [0, lowest, highest, epoch, 0, _MAX, _MIN, 0]
    start[_TAKEN] = 0 if with_rows else -1
    filled = np.array(start, np.int64)
    parts: list[TakenBatches] = []
    position, is_full = 0, True
    while is_full:
        if parts:
            filled[[_ROWS, _HEADED, _IS_FULL]] = 0
            filled[_TAKEN] = start[_TAKEN]
        most, capacity = _guess(data, position, len(parts))
        part, is_full = _take_part(library, data, position, layout, most if with_rows else 0, capacity, content, filled)
        parts.append(part)
        position = int(part.bounds[-1])
    return parts[0] if len(parts) == 1 else _join(parts, len(data))


def _take_part(
    library: ctypes.CDLL,
    data: memoryview,
    start: int,
    layout: FrameLayout,
    most: int,
    capacity: int,
    content: npt.NDArray[np.uint8],
    filled: Int64s,
) -> tuple[TakenBatches, bool]:
    """The batches from ``start`` on: up to ``capacity`` of them, with up to ``most`` rows. And whether there are more
    of them."""
    size, room = len(data), len(content) // 2
    numbers, rows = np.empty(4 * capacity + 1, np.int64), np.empty((_COLUMNS, most), np.int64)
    bounds, (attributes, producers, after) = numbers[3 * capacity :], numbers[: 3 * capacity].reshape(3, capacity)
    given = (read(data), size, start, described(layout), bounds, attributes, producers, after, capacity)
    found = call(library.litelog_take_batches, *given, rows, most, content, room, room, filled)
    if found < 0:
        raise ValueError(f"{layout} is not a layout of Kafka's batches")
    counts: list[int] = filled.tolist()
    keys, totals = counts[_KEYS] > 0, counts[_FIRST_TOTAL:]
    del totals[_LAST_OFFSET - _FIRST_TOTAL]
    following, epoch, records, earliest, latest, older = totals
    return TakenBatches(
        bounds=bounds[: found + 1],
        attributes=attributes[:found],
        producers=producers[:found],
        rows_after=after[:found],
        taken=counts[_TAKEN],
        rows=rows[:_ROW_COLUMNS, : counts[_ROWS]],
        headed=rows[_ROW_COLUMNS:, : counts[_HEADED]].copy(),
        content=content.data[: size + counts[_KEY_BYTES] if keys else counts[_VALUE_BYTES]],
        has_keys=keys,
        has_nulls=counts[_NULLS] > 0,
        totals=None if counts[_IS_UNSURE] else BatchTotals(following, epoch, records, earliest, latest, older > 0),
    ), counts[_IS_FULL] > 0


def _guess(data: memoryview, at: int, before: int) -> tuple[int, int]:
    """How many records and how many batches there are from ``at`` on, if all batches are like the first one; at least
    as many records as that one states, if its length allows them. Twice as many for each of the guesses ``before``,
    which were too low, but never more than the bytes can hold."""
    left = len(data) - at
    if left < HEADER_BYTES:
        return 0, 0
    head = data[at : at + HEADER_BYTES]
    length, count = max(int.from_bytes(head[_LENGTH], "big"), HEADER_BYTES), int.from_bytes(head[_COUNT], "big")
    records, batches = count * left // length * 17 // 16 + count + 64, left // length * 17 // 16 + 64
    return min(left // _FEWEST_RECORD_BYTES, records << before), min(left // HEADER_BYTES, batches << before)


def _join(parts: list[TakenBatches], keys_at: int) -> TakenBatches:
    """The parts as one. ``keys_at``: where keys begin in the content."""
    last, rows, taken = parts[-1], 0, 0
    after, headed = [], []
    for part in parts:
        if last.has_keys and not part.has_keys:
            part.rows[_KEY_START], part.rows[_KEY_LENGTH] = keys_at, -1
        after.append(part.rows_after + rows)
        headed.append(part.headed + np.array([[rows], [0], [0], [0]]))
        rows += part.rows.shape[1]
        taken += part.taken
    return last._replace(
        bounds=np.concatenate([*(part.bounds[:-1] for part in parts), last.bounds[-1:]]),
        attributes=np.concatenate([part.attributes for part in parts]),
        producers=np.concatenate([part.producers for part in parts]),
        rows_after=np.concatenate(after),
        taken=taken,
        rows=np.concatenate([part.rows for part in parts], axis=1),
        headed=np.concatenate(headed, axis=1),
    )
