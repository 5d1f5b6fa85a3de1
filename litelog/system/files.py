"""Files and folders: system calls that Python lacks, durable names, and opening regular files only.

Opening a named pipe would wait, and opening a device may start something.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import signal
import stat
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

from litelog.system.clock import read_boot_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from typing_extensions import Buffer

    _Call = Callable[..., int]


OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

_BEGIN = 2  # SYNC_FILE_RANGE_WRITE
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE
_UNSUPPORTED = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV, errno.EINTR, errno.EPERM}
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

    Raises OSError without enough room. Does nothing if the file system cannot reserve any.
    """
    call = _fallocate()
    if call is not None and length > 0 and call(file, _KEEP_SIZE, 0, length):
        code = ctypes.get_errno()
        if code not in _UNSUPPORTED:
            raise OSError(code, os.strerror(code))


def exchange(left: str, right: str) -> None:
    """Exchange two names on one file system atomically: neither is missing at any moment.

    Raises OSError, also if the file system cannot do that.
    """
    call = _renameat2()
    if call is None:
        raise OSError(errno.ENOSYS, "this system cannot exchange two folders")
    if call(_HERE, os.fsencode(left), _HERE, os.fsencode(right), _EXCHANGE):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), left)


def write_at(file: int, data: Buffer, offset: int) -> int:
    """Write all of ``data`` at byte ``offset``, in several calls if the system takes only part. Returns its length."""
    left = memoryview(data)
    length = len(left)
    while left:
        written = os.pwrite(file, left, offset)
        left, offset = left[written:], offset + written
    return length


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


_ALWAYS = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a symbolic link",
}
_MAYBE_NOT_REGULAR = {
    errno.ENXIO: True,  # a pipe without a reader, a socket, a device without a driver
    errno.ENODEV: True,
    errno.EISDIR: True,
    errno.ELOOP: False,  # O_NOFOLLOW, and a link; or a circle of links
}
"""The errors of an open that may mean that a file is not regular. The value says whether to follow links to see it."""


class NotRegularError(OSError):
    """A file name does not lead to a regular file. ``strerror`` says what it leads to."""

    def __init__(self, path: str, kind: str) -> None:
        self.is_folder = kind == _KINDS[stat.S_IFDIR]
        super().__init__(errno.EINVAL, f"is {kind}, not a regular file", path)


class TooLargeError(OSError):
    """A file is larger than a file of its kind can be."""

    def __init__(self, path: str, limit: int) -> None:
        super().__init__(errno.EFBIG, f"is larger than {limit} bytes", path)


def find_other_kind(mode: int) -> str | None:
    """The kind of a file with that ``st_mode``, such as "a named pipe"; None for a regular file."""
    kind = stat.S_IFMT(mode)
    return None if kind == stat.S_IFREG else _KINDS.get(kind, "something else")


def open_regular(path: str, flags: int = os.O_RDONLY, mode: int = 0o600, *, dir_fd: int | None = None) -> int:
    """As ``os.open``, but never waits, and raises NotRegularError for anything other than a regular file.

    Links are followed unless ``flags`` has O_NOFOLLOW. O_TRUNC takes effect after the check that the file is regular.
    """
    truncate = flags & os.O_TRUNC
    try:
        descriptor = _open(path, (flags & ~truncate) | _ALWAYS, mode, dir_fd)
    except OSError as error:
        if error.errno in _MAYBE_NOT_REGULAR:
            kind = _find_kind_by_name(path, dir_fd, follow=_MAYBE_NOT_REGULAR[error.errno])
            if kind is not None:
                raise NotRegularError(path, kind) from error
        raise
    try:
        kind = find_other_kind(os.fstat(descriptor).st_mode)
        if kind is not None:
            raise NotRegularError(path, kind)
        if truncate:
            os.ftruncate(descriptor, 0)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: str, limit: int, *, flags: int = 0, dir_fd: int | None = None) -> bytes:
    """Read a whole regular file. TooLargeError if it has more than ``limit`` bytes; OSError as ``open_regular``."""
    with os.fdopen(open_regular(path, os.O_RDONLY | flags, dir_fd=dir_fd), "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        body = bytearray()
        while size <= limit and len(body) <= limit and (piece := file.read(min(limit + 1 - len(body), 1 << 20))):
            body += piece
    if size > limit or len(body) > limit:
        raise TooLargeError(path, limit)
    return bytes(body)


def _open(path: str, flags: int, mode: int, dir_fd: int | None) -> int:
    """Open without waiting, except for another program's lease on a regular file, as file servers hold them."""
    try:
        return os.open(path, flags, mode, dir_fd=dir_fd)
    except BlockingIOError:
        if not hasattr(os, "O_PATH"):
            raise
        place = os.open(path, os.O_PATH | os.O_CLOEXEC | (flags & os.O_NOFOLLOW), dir_fd=dir_fd)
    try:
        kind = find_other_kind(os.fstat(place).st_mode)
        if kind is not None:
            raise NotRegularError(path, kind)
        return os.open(f"/proc/self/fd/{place}", flags & ~(os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CREAT | os.O_EXCL))
    finally:
        os.close(place)


def _find_kind_by_name(path: str, dir_fd: int | None, *, follow: bool) -> str | None:
    try:
        return find_other_kind(os.stat(path, dir_fd=dir_fd, follow_symlinks=follow).st_mode)
    except OSError:
        return None


def has_folder(folder: str, names: Iterable[str]) -> bool:
    """Whether ``folder`` holds a folder with any of these names."""
    return any(os.path.isdir(os.path.join(folder, name)) for name in names)


def is_open_for_writing(descriptor: int) -> bool:
    """Whether any process has the file of ``descriptor``, which is open for reading, open for writing.

    False also if the file system cannot show that, as over a network, or for another user's file.
    """
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)  # ignored, should someone open it just now
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except BlockingIOError:
        return True
    except (OSError, AttributeError):
        return False
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def folder_id(path: str) -> str | None:
    """Identifies a folder until the next boot, by whatever path or mount it is reached: another folder, also on another
    machine, has another id. None if it is not there, or if the boot is not known."""
    boot = read_boot_id()
    try:
        found = os.stat(path)
    except OSError:
        return None
    text = f"{boot} {found.st_dev} {found.st_ino}"
    return hashlib.sha256(text.encode()).hexdigest()[:16] if boot else None
