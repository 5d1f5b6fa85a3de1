"""Linux calls that Python lacks: room on the disk, beginning to write before the sync, two folders exchanged."""

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
_CANNOT = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV, errno.EINTR, errno.EPERM}
_HERE, _EXCHANGE = -100, 2  # AT_FDCWD, RENAME_EXCHANGE


def allocate(file: int, length: int) -> None:
    """Have room for ``length`` bytes of the open ``file``, whose own length stays as it is.

    OSError where there is no room; nothing happens where the file system cannot reserve any.
    """
    call = _fallocate()
    if call is not None and length > 0 and call(file, _KEEP_SIZE, 0, length):
        code = ctypes.get_errno()
        if code not in _CANNOT:
            raise OSError(code, os.strerror(code))


def exchange(one: str, two: str) -> None:
    """Exchange what lies under two names of one file system, at once: there is no moment at which either is missing.

    OSError, also where the file system cannot.
    """
    call = _renameat2()
    if call is None:
        raise OSError(errno.ENOSYS, "this system cannot exchange two folders")
    if call(_HERE, os.fsencode(one), _HERE, os.fsencode(two), _EXCHANGE):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), one)


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


@cache
def _renameat2() -> Callable[[int, bytes, int, bytes, int], int] | None:
    library = ctypes.CDLL(None, use_errno=True)
    call = getattr(library, "renameat2", None) if sys.platform == "linux" else None
    if call is None:
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    call.restype = ctypes.c_int
    return call  # type: ignore[no-any-return]
