"""Files and folders: system calls that Python lacks, and durable names."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    _Call = Callable[..., int]

OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

_BEGIN = 2  # SYNC_FILE_RANGE_WRITE
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE
_CANNOT = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV, errno.EINTR, errno.EPERM}
_HERE, _EXCHANGE = -100, 2  # AT_FDCWD, RENAME_EXCHANGE


def sync_folder(path: str) -> None:
    """Return when the names in the folder ``path`` are durable. Raises OSError."""
    descriptor = os.open(path, OPEN_FOLDER)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def allocate(file: int, length: int) -> None:
    """Reserve room for ``length`` bytes of the open ``file``, without changing its length.

    Raises OSError if there is no room. Does nothing if the file system cannot reserve any.
    """
    call = _fallocate()
    if call is not None and length > 0 and call(file, _KEEP_SIZE, 0, length):
        code = ctypes.get_errno()
        if code not in _CANNOT:
            raise OSError(code, os.strerror(code))


def exchange(one: str, two: str) -> None:
    """Exchange two names on one file system atomically: neither is missing at any moment.

    Raises OSError, also if the file system cannot do that.
    """
    call = _renameat2()
    if call is None:
        raise OSError(errno.ENOSYS, "this system cannot exchange two folders")
    if call(_HERE, os.fsencode(one), _HERE, os.fsencode(two), _EXCHANGE):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), one)


def begin_write_back(file: int, offset: int, length: int) -> None:
    """Begin to write ``length`` bytes of the open ``file`` from ``offset`` on. Does not wait, and promises nothing.

    Errors are left to the sync that must follow. Does nothing if the system has no such call.
    """
    call = _sync_file_range()
    if call is not None:
        call(file, offset, length, _BEGIN)


@cache
def _sync_file_range() -> _Call | None:
    return _find("sync_file_range", ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)


@cache
def _fallocate() -> _Call | None:
    if sys.maxsize <= 1 << 32:
        return None
    return _find("fallocate", ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


@cache
def _renameat2() -> _Call | None:
    return _find("renameat2", ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)


def _find(name: str, *argument_types: type[Any]) -> _Call | None:
    """A function of the C library, which sets ctypes' own errno; None if it does not exist."""
    library = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    call = getattr(library, name, None)
    if call is None:
        return None
    call.argtypes = argument_types
    call.restype = ctypes.c_int
    return call  # type: ignore[no-any-return]
