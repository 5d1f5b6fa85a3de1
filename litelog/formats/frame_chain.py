"""Finds the whole commits of formats whose headers state the length, and maybe a checksum, of each: see FrameLayout."""

from __future__ import annotations

import struct
import zlib
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from litelog.codec.checksum import crc32c
from litelog.codec.joined_checksum import join_equal
from litelog.formats.commit_tail import CHECKSUM_BYTES, RESIDUE
from litelog.native import walks
from litelog.native.layouts import Checksum
from litelog.native.walks import TakenFrames

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from litelog.native.layouts import Field, FrameLayout

    Int64s = npt.NDArray[np.int64]

MOST_ALIKE = 1024
"""The most commits of one size that are found at once, so that temporary arrays stay small."""

FEW_ALIKE, PAUSE = 16, 256
"""After a row of fewer than FEW_ALIKE commits, the next PAUSE commits are found one by one."""

FEW_COMMITS = 16
"""The checksums of fewer commits than this are compared one by one."""

_LENGTH = {False: struct.Struct("<I"), True: struct.Struct(">I")}


def find_frames(data: memoryview, start: int, layout: FrameLayout) -> Int64s:
    """The bounds of the whole commits from ``start`` on, up to the first whose length cannot be, or whose checksum is
    wrong.

    Args:
        data: The buffer.
        start: Where a commit begins in it.
        layout: How commits state length and checksum, and nothing else that is checked.

    Returns:
        Where each commit begins, and where the last one ends.
    """
    found = walks.find_frames(data, start, layout)
    if found is not None:
        return found
    bounds = _follow_lengths(data, start, layout)
    return bounds[: _count_right(data, bounds, layout) + 1]


def take_frames(
    data: memoryview, start: int, layout: FrameLayout, fields: Sequence[Field], *, copies: bool
) -> TakenFrames:
    """As ``find_frames``, and what ``walks.take_frames`` reads of each commit. Without the compiled library, nothing is
    copied: then ``values`` is None."""
    taken = walks.take_frames(data, start, layout, fields, copies=copies)
    if taken is not None:
        return taken
    bounds = find_frames(data, start, layout)
    numbers = np.empty((len(fields), len(bounds) - 1), np.int64)
    for row, (at, width) in zip(numbers, fields, strict=True):
        kind = f"{'>' if layout.is_big_endian else '<'}{'iu'[width > 0]}{abs(width)}"
        row[:] = read_numbers(data, kind, bounds[:-1] + at).astype(np.int64)
    return TakenFrames(bounds, numbers, None, np.empty((0, len(bounds) - 1), np.int64))


def read_numbers(data: memoryview, kind: str, places: Int64s) -> npt.NDArray[Any]:
    """The numbers at ``places``. ``kind`` is NumPy's name of their type, for example "<u8"."""
    if not len(places):
        return np.empty(0, kind)
    every = np.ndarray((len(data) - np.dtype(kind).itemsize + 1,), kind, data, strides=(1,))
    return every[places]


def _follow_lengths(data: memoryview, start: int, layout: FrameLayout) -> Int64s:
    """The bounds of the commits from ``start`` on, by their lengths alone."""
    size, unpack = len(data), _LENGTH[layout.is_big_endian].unpack_from
    parts: list[Int64s] = []
    singles = [start]
    position, last, before, pause = start, size - layout.fewest_bytes, -1, 0
    while position <= last:
        total = unpack(data, position + layout.length_at)[0] + layout.other_bytes
        if not layout.fewest_bytes <= total <= min(layout.most_bytes, size - position):
            break
        if total == before and not pause:
            row = _find_row(data, position, total, layout)
            parts += [np.array(singles[:-1], np.int64), row]
            position = int(row[-1]) + total
            singles, before, pause = [position], -1, PAUSE if len(row) < FEW_ALIKE else 0
            continue
        position += total
        singles.append(position)
        before, pause = total, max(pause - 1, 0)
    return np.concatenate([*parts, np.array(singles, np.int64)])


def _find_row(data: memoryview, position: int, total: int, layout: FrameLayout) -> Int64s:
    """Where the whole commit at ``position`` begins, and those after it that are whole and of the same size."""
    count = min((len(data) - position) // total, MOST_ALIKE)
    places = position + total * np.arange(count, dtype=np.int64)
    lengths = read_numbers(data, ">u4" if layout.is_big_endian else "<u4", places + layout.length_at)
    other = lengths != lengths[0]
    return places[: int(other.argmax())] if other.any() else places


def _count_right(data: memoryview, bounds: Int64s, layout: FrameLayout) -> int:
    """The number of commits at the front whose checksums are right."""
    count = len(bounds) - 1
    if layout.checksum is Checksum.NONE or not count:
        return count
    trailing = layout.checksum_at == -CHECKSUM_BYTES and not layout.is_big_endian and not layout.checked_from
    if trailing and layout.checksum is Checksum.CRC32C and count >= FEW_COMMITS:
        # If each of the checksums is right, the checksum over all of the bytes follows from them.
        begin, ends = int(bounds[0]), bounds[1:]
        if crc32c(data[begin : int(ends[-1])]) == join_equal(RESIDUE, ends):
            return count
    compute = crc32c if layout.checksum is Checksum.CRC32C else zlib.crc32
    unpack, from_, at = _LENGTH[layout.is_big_endian].unpack_from, layout.checked_from, layout.checksum_at
    cut = -at if at < 0 else 0
    places = bounds.tolist()
    for number, (begin, end) in enumerate(pairwise(places)):
        if compute(data[begin + from_ : end - cut]) != unpack(data, end + at if at < 0 else begin + at)[0]:
            return number
    return count
