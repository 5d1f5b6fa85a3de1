"""Asks the kernel for room on the disk, and to begin writing, so that the sync at the end finds little left to do."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_BEGIN = 2  # SYNC_FILE_RANGE_WRITE
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE


def allocate(file: int, length: int) -> None:
    """Have room for ``length`` bytes of the open ``file``, whose own length stays as it is.

    OSError where there is no room; nothing happens where the file system cannot reserve any.
    """
    call = _fallocate()
    if call is not None and length > 0 and call(file, _KEEP_SIZE, 0, length):
        code = ctypes.get_errno()
        if code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise OSError(code, os.strerror(code))


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


@cache
def _fallocate() -> Callable[[int, int, int, int], int] | None:
    library = ctypes.CDLL(None, use_errno=True)
    call = getattr(library, "fallocate", None) if sys.platform == "linux" and sys.maxsize > 1 << 32 else None
    if call is None:
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    call.restype = ctypes.c_int
    return call  # type: ignore[no-any-return]
