"""The compiled CRC-32C of joined bytes, without the bytes."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from litelog.native.library import loaded

if TYPE_CHECKING:
    import ctypes


def combine(first: int, second: int, second_length: int) -> int | None:
    """As ``combine`` of ``codec/checksum.py``. None unless the process has loaded the library: to load it takes longer
    than many of these."""
    library = loaded()
    if library is None or second_length > _MOST:
        return None
    return int(_function(library)(first, second, second_length))


_MOST = (1 << 63) - 1


@cache
def _function(library: ctypes.CDLL) -> ctypes._NamedFuncPointer:
    import ctypes  # noqa: PLC0415  # takes as long as the start of a small command

    function = library.litelog_combine
    function.restype, function.argtypes = ctypes.c_int64, [ctypes.c_int64] * 3
    return function
