"""CRC-32C of many joined runs of bytes whose own CRC is known: one pass over all of them checks each.

A change in one run changes the CRC of all. Changes in several runs can cancel each other out with a probability of
2**-32, as changes within one run can.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from litelog.codec.checksum import combine

if TYPE_CHECKING:
    import numpy.typing as npt

_BLOCK_BITS = 18  # a table of 1 MiB


def join_equal(value: int, ends: npt.NDArray[np.int64]) -> int:
    """CRC-32C of joined runs of bytes that end at ``ends``, ascending, if each run has the CRC ``value``."""
    after = ends[-1] - ends[::-1]
    shifted = _shifted(value)[after & ((1 << _BLOCK_BITS) - 1)]
    blocks = after >> _BLOCK_BITS
    firsts = np.flatnonzero(np.diff(blocks, prepend=-1))
    sums = np.bitwise_xor.reduceat(shifted, firsts).tolist()
    joined, block = 0, int(blocks[-1])
    for number, part in zip(reversed(blocks[firsts].tolist()), reversed(sums), strict=True):
        joined = combine(joined, 0, (block - number) << _BLOCK_BITS) ^ part
        block = number
    return combine(joined, 0, block << _BLOCK_BITS)


@cache
def _shifted(value: int) -> npt.NDArray[np.uint32]:
    """The addition of a run with the CRC ``value`` to the CRC of all, by the number of bytes after it."""
    shifted = np.array([value], np.uint32)
    while len(shifted) < 1 << _BLOCK_BITS:
        columns = [combine(1 << bit, 0, len(shifted)) for bit in range(32)]
        more = np.zeros(len(shifted), np.uint32)
        for low in range(0, 32, 8):
            table = np.zeros(1, np.uint32)
            for column in columns[low : low + 8]:
                table = np.concatenate([table, table ^ np.uint32(column)])
            more ^= table[shifted >> np.uint32(low) & np.uint32(0xFF)]
        shifted = np.concatenate([shifted, more])
    return shifted
