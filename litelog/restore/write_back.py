"""Tells the kernel to begin writing bytes to the disk, so that the sync at the end finds little left to do."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_BEGIN = 2  # SYNC_FILE_RANGE_WRITE


def begin_write_back(file: int, offset: int, length: int) -> None:
    """Begin to write ``length`` bytes of the open ``file`` from ``offset`` on; does not wait, and promises nothing.

    Errors are left to the sync that must follow. Does nothing where the system has no such call.
    """
    call = _system_call()
    if call is not None:
        call(file, offset, length, _BEGIN)


@cache
def _system_call() -> Callable[[int, int, int, int], int] | None:
    call = getattr(ctypes.CDLL(None), "sync_file_range", None) if sys.platform == "linux" else None
    if call is None:
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    call.restype = ctypes.c_int
    return call  # type: ignore[no-any-return]
