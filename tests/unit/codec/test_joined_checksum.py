"""The joined CRC-32C of runs equals that of all of their bytes, and shows a changed run."""

from __future__ import annotations

import numpy as np
import pytest

from litelog.codec.checksum import crc32c
from litelog.codec.joined_checksum import join_equal

RESIDUE = 0x48674BC7
"""The CRC of any bytes followed by their own CRC."""

SIZES = (
    [0],
    [5],
    [0, 0, 0],
    [1, 300, 0, 7],
    [65_532, 65_531, 65_533, 262_140, 262_141],
    [900_000, 3, 200_000, 1, 1],
    [30] * 9_000,
)


def runs(sizes: list[int], seed: int = 7) -> list[bytes]:
    random = np.random.default_rng(seed)
    bodies = [random.bytes(size) for size in sizes]
    return [body + crc32c(body).to_bytes(4, "little") for body in bodies]


@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: f"{len(sizes)}-runs-of-{sum(sizes)}-bytes")
def test_the_checksum_of_joined_runs_is_that_of_their_bytes(sizes: list[int]) -> None:
    parts = runs(sizes)
    ends = np.cumsum([len(part) for part in parts]) + 26  # they may begin anywhere
    assert join_equal(RESIDUE, ends) == crc32c(b"".join(parts))


def test_a_bit_in_any_run_changes_it() -> None:
    parts = runs([100, 20, 3_000, 70_000, 1])
    data, ends = b"".join(parts), np.cumsum([len(part) for part in parts])
    expected = join_equal(RESIDUE, ends)
    for end in ends.tolist():
        broken = bytearray(data)
        broken[end - 5] ^= 0x10
        assert crc32c(broken) != expected


def test_another_split_of_the_same_bytes_has_another_checksum() -> None:
    parts = runs([100, 20, 30])
    ends = np.cumsum([len(part) for part in parts])
    assert join_equal(RESIDUE, np.array([ends[0] - 1, ends[1], ends[2]])) != crc32c(b"".join(parts))
