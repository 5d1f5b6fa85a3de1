"""The addresses that the compiled library gets: those of the caller's own buffers, whatever these are."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from litelog.native.calls import address_of, call, make_numbers, read

CONTENT = b"0123456789abcdef"


def memcmp() -> Any:
    """A function of the C library that reads from two addresses."""
    return ctypes.CDLL(None).memcmp


@pytest.mark.parametrize(
    "data",
    [memoryview(CONTENT), memoryview(b"..." + CONTENT)[3:], memoryview(bytearray(CONTENT)), np.array([*CONTENT], "u1")],
    ids=["bytes", "a part of bytes", "writable", "an array"],
)
def test_the_bytes_of_any_buffer_are_read(data: Any) -> None:
    given = read(data) if type(data) is memoryview else data
    assert call(memcmp(), given, CONTENT, len(CONTENT)) == 0
    assert call(memcmp(), given, CONTENT[:-1] + b"x", len(CONTENT)) != 0


def test_whole_bytes_are_given_as_they_are() -> None:
    assert read(memoryview(CONTENT)) is CONTENT


@pytest.mark.parametrize(
    "data",
    [
        memoryview(CONTENT)[::2],
        memoryview(bytearray(CONTENT))[::2],
        np.zeros(9, "u1")[::2],
        np.frombuffer(CONTENT, "u1")[::2],
    ],
    ids=["bytes", "writable", "an array", "a read-only array"],
)
def test_bytes_that_do_not_lie_one_after_the_other_are_refused(data: Any) -> None:
    with pytest.raises(BufferError):
        address_of(data)
    with pytest.raises(BufferError):
        read(memoryview(data))


def test_numbers_are_written_where_they_lie() -> None:
    numbers = make_numbers(3)
    copy = ctypes.CDLL(None).memcpy
    call(copy, numbers[1:], (7).to_bytes(8, "little"), 8)
    assert numbers.tolist() == [0, 7, 0]
    assert make_numbers(0).tolist() == [0]


def test_none_is_no_address() -> None:
    assert call(memcmp(), None, None, 0) == 0
