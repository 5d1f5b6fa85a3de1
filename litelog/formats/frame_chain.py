"""Finds where commits begin whose headers state their lengths, and reads nothing else of them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

MOST_ALIKE = 1024
"""The most commits of one size that are found at once, so that temporary arrays stay small."""

FEW_ALIKE, PAUSE = 16, 256
"""After a row of fewer than FEW_ALIKE commits, the next PAUSE commits are found one by one."""

_LENGTH = {"<": struct.Struct("<I"), ">": struct.Struct(">I")}


def find_frames(data: memoryview, start: int, length_at: int, other_bytes: int, order: str = "<") -> Int64s:
    """The bounds of the commits from ``start`` on, up to the first that is not whole. Reads only their lengths.

    Args:
        data: The buffer.
        start: Where a commit begins in it.
        length_at: Where a commit states the length of its body, in 32 bits.
        other_bytes: How many bytes a commit has besides its body, at least ``length_at + 4``.
        order: "<" for little-endian, ">" for big-endian.

    Returns:
        Where each commit begins, and where the last one ends.
    """
    size, unpack = len(data), _LENGTH[order].unpack_from
    parts: list[Int64s] = []
    singles = [start]
    position, last, before, pause = start, size - other_bytes, -1, 0
    while position <= last:
        total = unpack(data, position + length_at)[0] + other_bytes
        if total == before and not pause and position + total <= size:
            row = _find_row(data, position, length_at, total, order)
            parts += [np.array(singles[:-1], np.int64), row]
            position = int(row[-1]) + total
            singles, before, pause = [position], -1, PAUSE if len(row) < FEW_ALIKE else 0
            continue
        position += total
        if position > size:
            break
        singles.append(position)
        before, pause = total, max(pause - 1, 0)
    return np.concatenate([*parts, np.array(singles, np.int64)])


def read_numbers(data: memoryview, kind: str, places: Int64s) -> npt.NDArray[Any]:
    """The numbers at ``places``. ``kind`` is NumPy's name of their type, for example "<u8"."""
    if not len(places):
        return np.empty(0, kind)
    every = np.ndarray((len(data) - np.dtype(kind).itemsize + 1,), kind, data, strides=(1,))
    return every[places]


def _find_row(data: memoryview, position: int, length_at: int, total: int, order: str) -> Int64s:
    """Where the whole commit at ``position`` begins, and those after it that are whole and of the same size."""
    count = min((len(data) - position) // total, MOST_ALIKE)
    places = position + total * np.arange(count, dtype=np.int64)
    lengths = read_numbers(data, f"{order}u4", places + length_at)
    other = lengths != lengths[0]
    return places[: int(other.argmax())] if other.any() else places
