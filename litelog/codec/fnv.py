"""FNV-1a of 32 bits, of many runs of bytes at once.

state = 0x811c9dc5, and for each byte: state = (state ^ byte) * 0x01000193, modulo 2^32

A state depends on the one before, so the bytes of one run cannot be taken at once by the description. There are two
ways. Many runs: byte by byte across all runs, column by column. Few long runs: the lowest byte of the states depends on
nothing but lower bits, and each of its bits is a running XOR. Once all lowest bytes are known, the state is a sum of
known terms times powers of the prime.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]
    States = npt.NDArray[np.uint32]

BASIS = np.uint32(0x811C9DC5)
PRIME = np.uint32(0x01000193)

WORD_BYTES = 8
FEW_RUNS = 64
"""Below this number of runs, the bytes of a run at once are cheaper than a byte of all runs at once; measured."""

BLOCK_BYTES = 1 << 18
"""The most bytes that are taken at once, so that the arrays stay in the processor's cache; measured."""


def fnv1a(data: memoryview | bytes, starts: Int64s, ends: Int64s, states: States | None = None) -> States:
    """FNV-1a of each run of bytes of ``data``.

    Args:
        data: The bytes.
        starts: Where each run begins in them.
        ends: Where each run ends.
        states: The states after bytes that precede the runs; None: none do.

    Returns:
        The states after the runs.
    """
    array = np.frombuffer(data, np.uint8)
    lengths = ends - starts
    order = np.argsort(-(lengths // WORD_BYTES), kind="stable")
    at, left = starts[order], lengths[order]
    found = np.full(len(starts), BASIS) if states is None else states[order]
    _take_words(array, at, left, found)
    active = int(np.count_nonzero(left >= WORD_BYTES))
    if active:
        _take_long(array, at[:active], left[:active], found[:active])
    for _ in range(WORD_BYTES - 1):
        rest = np.flatnonzero(left > 0)
        if not len(rest):
            break
        found[rest] = (found[rest] ^ array[at[rest]]) * PRIME
        at[rest] += 1
        left[rest] -= 1
    result = np.empty_like(found)
    result[order] = found
    return result


def _take_words(array: npt.NDArray[np.uint8], at: Int64s, left: Int64s, states: States) -> None:
    """Take eight bytes of each run at a time, while there are many runs. The longest runs come first."""
    words = left // WORD_BYTES
    active = int(np.count_nonzero(words))
    if active < FEW_RUNS:
        return
    views = np.ndarray((len(array) - WORD_BYTES + 1,), "<u8", array, strides=(1,))
    done = 0
    ascending = words[:active][::-1].tolist()
    gone = 0
    while active >= FEW_RUNS:
        until = ascending[gone]
        places = at[:active]
        current = states[:active]
        for _ in range(until - done):
            columns = views[places].view(np.uint8).reshape(active, WORD_BYTES)
            for column in range(WORD_BYTES):
                np.bitwise_xor(current, columns[:, column], out=current)
                np.multiply(current, PRIME, out=current)
            places += WORD_BYTES
        left[:active] -= WORD_BYTES * (until - done)
        done = until
        while gone < len(ascending) and ascending[gone] == done:
            gone += 1
        active = len(ascending) - gone


def _take_long(array: npt.NDArray[np.uint8], at: Int64s, left: Int64s, states: States) -> None:
    """Take all bytes of a few runs, a block at a time."""
    most = max(WORD_BYTES, BLOCK_BYTES // len(at))
    while True:
        runs = np.flatnonzero(left > 0)
        if not len(runs):
            return
        counts = np.minimum(left[runs], most)
        bounds = np.cumsum(counts)
        begins = bounds - counts
        places = np.arange(int(bounds[-1])) + np.repeat(at[runs] - begins, counts)
        states[runs] = _advance(array[places], begins, counts, states[runs])
        at[runs] += counts
        left[runs] -= counts


def _advance(data: npt.NDArray[np.uint8], begins: Int64s, counts: Int64s, states: States) -> States:
    """The states after runs that lie back to back in ``data``."""
    lowest = np.zeros(len(data), np.uint8)
    """The lowest byte of the state before each byte: the bits that are known, and zeros."""
    mixed = lowest ^ data
    for bit in range(8):
        known = mixed & np.uint8((1 << bit) - 1)
        carried = (known * np.uint8(0x93)) >> np.uint8(bit)
        before = _running_xor((carried ^ (data >> np.uint8(bit))) & np.uint8(1))
        first = before[begins] ^ ((states >> np.uint32(bit)) & np.uint32(1)).astype(np.uint8)
        if len(begins) == 1:
            before ^= first
        else:
            before ^= np.repeat(first, counts)
        lowest |= before << np.uint8(bit)
        mixed = lowest ^ data
    change = mixed.astype(np.uint32) - lowest
    powers = _powers(1 << (int(counts.max()) + 1).bit_length())
    if len(begins) == 1:
        sums = np.add.reduce(change * powers[len(data) : 0 : -1], dtype=np.uint32)
    else:
        exponents = np.repeat(counts + begins, counts) - np.arange(len(data))
        sums = np.add.reduceat(change * powers[exponents], begins)
    after: States = states * powers[counts] + sums
    return after


def _running_xor(bits: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """The XOR of all bits before each one. ``bits`` are zeros and ones."""
    count = len(bits)
    words = np.zeros(count // 64 + 1, np.uint64)
    packed = np.packbits(bits, bitorder="little")
    words.view(np.uint8)[: len(packed)] = packed
    for shift in (1, 2, 4, 8, 16, 32):
        words ^= words << np.uint64(shift)
    parities = np.bitwise_xor.accumulate(words >> np.uint64(63))
    words[1:] ^= np.uint64(0) - parities[:-1]
    found = np.empty(count, np.uint8)
    found[:1] = 0
    found[1:] = np.unpackbits(words.view(np.uint8), count=count, bitorder="little")[:-1]
    return found


@cache
def _powers(count: int) -> States:
    """The first powers of the prime, from 1 on."""
    factors = np.full(count, PRIME)
    factors[0] = 1
    return np.multiply.accumulate(factors)
