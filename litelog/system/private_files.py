"""Folders and files that only their owner may read, despite the umask. A daemon keeps its state in them."""

from __future__ import annotations

import errno
import logging
import os
import pwd
import secrets
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from litelog.codec.decoding import JsonLimits, parse_json
from litelog.events import fields
from litelog.system.files import open_regular, read_regular, sync_folder

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER_MODE = 0o700
FILE_MODE = 0o600
OTHERS = 0o077
"""The rights of all users except the owner."""

LIMITS = JsonLimits(size=64 << 20, values=8 << 20, texts=4 << 20, containers=2 << 20, depth=8)
"""The limits of a state file: a hundred times what a log of ten thousand log segments needs."""

_logger = logging.getLogger(__name__)


_NEW = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def make_private(path: str) -> None:
    """Make the folder ``path``, and missing folders above it, for this user alone.

    If others may enter an existing folder, it is closed to them, and a warning is logged. Raises OSError if another
    user owns it.
    """
    _make(path)
    status = os.stat(path)
    probe = os.path.join(path, f".owner-{secrets.token_hex(8)}")
    if status.st_uid != os.geteuid() and status.st_uid != find_owner(probe):
        raise _not_ours(path, status.st_uid)
    _close_to_others(path, status.st_mode)


def make_private_root(path: str, is_ours: Callable[[str], bool]) -> None:
    """Make the folder ``path``, which will hold private folders, as ``make_private`` does.

    An existing folder may be a volume that root owns, or may hold names that are not ``is_ours``, which others need.
    Then its mode stays, and only the folders that litelog makes in it are private.
    """
    _make(path)
    status = os.stat(path)
    if status.st_uid == os.geteuid():
        if all(map(is_ours, os.listdir(path))) and not status.st_mode & stat.S_ISVTX:
            _close_to_others(path, status.st_mode)
    elif status.st_uid and os.geteuid():
        raise _not_ours(path, status.st_uid)


def write_private(path: str, body: bytes, *, durable: bool = True) -> None:
    """Replace the file ``path`` atomically with ``body``. Raises OSError.

    ``durable``: return only when it would outlast a power cut.
    """
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, temporary_name(name))
    with suppress(FileNotFoundError):
        os.unlink(temporary)
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    with os.fdopen(file, "wb") as opened:
        os.fchmod(opened.fileno(), FILE_MODE)  # the umask may have taken the owner's own rights
        opened.write(body)
        opened.flush()
        if durable:
            os.fdatasync(opened.fileno())
    os.rename(temporary, path)
    if durable:
        sync_folder(folder)


def temporary_name(name: str) -> str:
    """The name of a file that is being written, and that a crash may leave."""
    return f".{name}.tmp"


def open_lock(path: str) -> int:
    """Open the private file ``path`` for locking; create it if it is missing. Raises OSError."""
    descriptor = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, FILE_MODE)
    status = os.fstat(descriptor)
    if stat.S_IMODE(status.st_mode) != FILE_MODE and status.st_uid == os.geteuid():
        os.fchmod(descriptor, FILE_MODE)
    return descriptor


def read_json(path: str, limits: JsonLimits = LIMITS) -> Any:
    """Parse the JSON file ``path``. Raises OSError, and ValueError if it is not JSON, or exceeds ``limits``."""
    return parse_json(read_regular(path, limits.size), limits)


def _make(path: str) -> None:
    """As ``os.makedirs``, with folders that only their owner may enter."""
    try:
        os.mkdir(path, FOLDER_MODE)
    except FileNotFoundError:
        parent = os.path.dirname(path.rstrip("/"))
        if not parent or os.path.isdir(parent):
            raise
        _make(parent)
        _make(path)
    except FileExistsError:
        if not os.path.isdir(path):
            raise NotADirectoryError(errno.ENOTDIR, "is not a folder", path) from None
    else:
        os.chmod(path, FOLDER_MODE)  # the umask may have taken the owner's own rights


def find_owner(name: str, dir_fd: int | None = None) -> int | None:
    """The owner of files that this process makes in a folder; None if it may not make any. On some file systems that is
    another user, as for root on NFS. ``name``: a new file name there; the file is removed again."""
    try:
        file = os.open(name, _NEW | os.O_EXCL, FILE_MODE, dir_fd=dir_fd)
    except OSError:
        return None
    try:
        return os.fstat(file).st_uid
    finally:
        os.close(file)
        os.unlink(name, dir_fd=dir_fd)


def _close_to_others(path: str, mode: int) -> None:
    if mode & OTHERS:
        os.chmod(path, stat.S_IMODE(mode) & ~OTHERS)
        message = "%s: others could enter it (mode %04o); only its owner can from now on"
        _logger.warning(message, path, stat.S_IMODE(mode), extra=fields("state-closed", path=path))


def _not_ours(path: str, owner: int) -> OSError:
    what = f"belongs to {_name(owner)}, and this runs as {_name(os.geteuid())}"
    return PermissionError(errno.EPERM, what, path)


def _name(user: int) -> str:
    try:
        return f"user {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"user {user}"
