"""Kafka's batches, checked, and the rows of their records, in one pass of the compiled library.

``formats/kafka`` does the same with NumPy where the library is missing, and for batches that it leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from litelog.native.library import has_fast_checksums, load
from litelog.native.walks import call, read

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Sequence

    import numpy.typing as npt

    from litelog.native.walks import Field, FrameLayout

    Int64s = npt.NDArray[np.int64]

HEADER_BYTES = 61
_LENGTH, _COUNT = slice(8, 12), slice(57, 61)
_FEWEST_RECORD_BYTES = 7
_ROW_COLUMNS, _COLUMNS = 7, 11
_KEY_START, _KEY_LENGTH = 5, 6

_ROWS, _VALUE_BYTES, _KEY_BYTES, _KEYS, _NULLS, _HEADED, _TAKEN, _IS_FULL, _COUNTS = range(9)
"""The numbers that say how far the rows are filled, in the order of ``kafka.h``."""


class BatchRows(NamedTuple):
    """n batches of Kafka, and the rows of their records. Places of keys and values are in ``content``."""

    bounds: Int64s
    """Where each batch begins, and where the last one ends."""
    fields: Int64s
    """A row of n numbers for each field."""
    rows_after: Int64s
    """How many rows there are up to the end of each batch."""
    taken: int
    """How many batches have their rows: those before the first batch that is compressed, or not plainly right."""
    rows: Int64s
    """An array of 7 rows: sequence, time in microseconds, start and length of the value, where it lies in the piece,
    start and length of the key. A length is -1 for null."""
    headed: Int64s
    """An array of 4 rows, with a column for each record that has headers: its number, start and end of its headers in
    the piece, and their number."""
    content: memoryview
    """The values, back to back, and the keys."""
    value_bytes: int
    """How many bytes at the front of ``content`` are values."""
    has_keys: bool
    has_nulls: bool
    """Whether values are null."""


def take_batches(data: memoryview, layout: FrameLayout, fields: Sequence[Field]) -> BatchRows | None:
    """Find Kafka's batches from the front of ``data`` on, as ``walks.take_frames``, and write rows for their records.

    Returns:
        The batches, whose checksums are right. Control batches have no rows. None without the library, and also if it
        would compute checksums slowly.
    """
    library = load()
    if library is None or not has_fast_checksums():
        return None
    content, filled = np.empty(2 * len(data), np.uint8), np.zeros(_COUNTS, np.int64)
    parts: list[BatchRows] = []
    position = 0
    while not parts or filled[_IS_FULL]:
        filled[[_ROWS, _HEADED, _TAKEN, _IS_FULL]] = 0
        most, capacity = (guess << len(parts) for guess in _guess(data, position))
        part = _take_part(library, data, position, (layout, fields), most, capacity, content, filled)
        parts.append(part)
        position = int(part.bounds[-1])
    return parts[0] if len(parts) == 1 else _join(parts, len(data))


def _take_part(
    library: ctypes.CDLL,
    data: memoryview,
    start: int,
    described: tuple[FrameLayout, Sequence[Field]],
    most: int,
    capacity: int,
    content: npt.NDArray[np.uint8],
    filled: Int64s,
) -> BatchRows:
    """The batches from ``start`` on: up to ``capacity`` of them, with up to ``most`` rows."""
    size, (layout, fields) = len(data), described
    bounds, after = np.empty(capacity + 1, np.int64), np.empty(capacity, np.int64)
    numbers, rows = np.empty((len(fields), capacity), np.int64), np.empty((_COLUMNS, most), np.int64)
    given = (read(data), size, start, np.array(layout, np.int64), np.array(fields, np.int64), len(fields))
    into = (bounds, numbers, after, capacity, rows, most, content, size, size, filled)
    found = call(library.litelog_take_batches, *given, *into)
    if found < 0:
        raise ValueError(f"{layout} is not a layout of Kafka's batches")
    values, keys = int(filled[_VALUE_BYTES]), bool(filled[_KEYS])
    return BatchRows(
        bounds=bounds[: found + 1],
        fields=numbers[:, :found],
        rows_after=after[:found],
        taken=int(filled[_TAKEN]),
        rows=rows[:_ROW_COLUMNS, : int(filled[_ROWS])],
        headed=rows[_ROW_COLUMNS:, : int(filled[_HEADED])].copy(),
        content=content.data[: size + int(filled[_KEY_BYTES]) if keys else values],
        value_bytes=values,
        has_keys=keys,
        has_nulls=bool(filled[_NULLS]),
    )


def _guess(data: memoryview, at: int) -> tuple[int, int]:
    """How many records and how many batches there are from ``at`` on, if all batches are like the first one; at least
    as many records as that one states, if its length allows them."""
    left = len(data) - at
    if left < HEADER_BYTES:
        return 0, 0
    head = data[at : at + HEADER_BYTES]
    length, count = max(int.from_bytes(head[_LENGTH], "big"), HEADER_BYTES), int.from_bytes(head[_COUNT], "big")
    batches = left // length * 17 // 16 + 64
    return min(left // _FEWEST_RECORD_BYTES, count * left // length * 17 // 16 + count + 64), batches


def _join(parts: list[BatchRows], keys_at: int) -> BatchRows:
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
        fields=np.concatenate([part.fields for part in parts], axis=1),
        rows_after=np.concatenate(after),
        taken=taken,
        rows=np.concatenate([part.rows for part in parts], axis=1),
        headed=np.concatenate(headed, axis=1),
    )
