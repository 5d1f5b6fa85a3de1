"""Keeps writers and truncations away from a log while its files are replaced."""

from __future__ import annotations

import fcntl
import os
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from litelog.errors import LockedError, SourceError, SourceMissingError
from litelog.log.writer import LOCK_NAME
from litelog.system.files import OPEN_FOLDER, is_open_for_writing, open_regular
from litelog.system.private_files import open_lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from litelog.formats import LogFormat


@contextmanager
def locked_log(folder: str, log_format: LogFormat) -> Iterator[None]:
    """Hold the writer's lock and the lock of truncations.

    Other programs' logs have no writer's lock, except where a mirror made one: see ``require_no_writer``.

    Raises:
        LockedError: A writer, a mirror or a truncation has the log.
        SourceError: The folder cannot be opened, or is another user's.
    """
    with ExitStack() as stack:
        try:
            opened = os.open(folder, OPEN_FOLDER)
            stack.callback(os.close, opened)
            _take(opened, folder, f"the truncation of {folder}")
            path = os.path.join(folder, LOCK_NAME)
            with suppress(FileNotFoundError):
                lock = _open_lock(path, opened, log_format)
                stack.callback(os.close, lock)
                _take(lock, path, f"the log {folder}")
        except (FileNotFoundError, NotADirectoryError) as error:
            raise SourceMissingError(folder, "no such folder") from error
        except OSError as error:
            raise SourceError(f"{error.filename or folder}: cannot be locked: {error.strerror or error}") from error
        yield


def require_no_writer(folder: str, names: Iterable[str]) -> None:
    """Raise LockedError if the file system shows that a program has any of these log segments open for writing, and
    SourceError if one cannot be opened."""
    for name in names:
        path = os.path.join(folder, name)
        try:
            descriptor = open_regular(path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise SourceError(f"{path}: cannot be opened: {error.strerror or error}") from error
        try:
            if is_open_for_writing(descriptor):
                raise LockedError(path, f"{path}, which a program has open for writing,")
        finally:
            os.close(descriptor)


def _open_lock(path: str, folder: int, log_format: LogFormat) -> int:
    """Open the writer's lock. In litelog's own format, creates a missing one, for the owner of the folder: root may
    repair a log whose writer is another user. Raises FileNotFoundError in other formats."""
    if os.path.lexists(path) or not log_format.has_log_id:
        return open_regular(path, os.O_RDWR | os.O_NOFOLLOW)
    lock = open_lock(path)
    status = os.fstat(folder)
    with suppress(PermissionError):
        os.fchown(lock, status.st_uid, status.st_gid)
    return lock


def _take(descriptor: int, path: str, what: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LockedError(path, what) from None
