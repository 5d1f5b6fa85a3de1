"""The compiled SHA-256 takes whole blocks only, of one run and of two."""

from __future__ import annotations

import hashlib

import pytest

from litelog.native.digests import State, can_hash

pytestmark = pytest.mark.skipif(not can_hash(), reason="no SHA-256 is compiled for this processor")


def padded(data: bytes) -> memoryview:
    """The blocks of a message, as FIPS 180-4, 5.1.1 pads it."""
    zeros = b"\0" * ((-len(data) - 9) % 64)
    return memoryview(data + b"\x80" + zeros + (8 * len(data)).to_bytes(8, "big"))


@pytest.mark.parametrize("size", [0, 3, 55, 56, 64, 1000])
def test_one_run_and_two_give_the_digests_of_hashlib(size: int) -> None:
    data, other = b"a" * size, b"b" * size
    alone, first, second = State(), State(), State()
    alone.take(padded(data))
    first.take_with(padded(data), second, padded(other))
    found = [state.digest().hex() for state in (alone, first, second)]
    assert found == [hashlib.sha256(each).hexdigest() for each in (data, data, other)]


def test_a_part_of_a_block_is_refused() -> None:
    with pytest.raises(ValueError, match="not whole blocks"):
        State().take(memoryview(bytes(65)))
