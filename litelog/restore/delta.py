"""Restoring over an older copy of a log: its log segments that are whole are kept, and the folder is exchanged."""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from litelog.errors import LockedError
from litelog.log.source import INDEX_SUFFIXES
from litelog.log.tombstone import NAME as TOMBSTONE_NAME
from litelog.restore.output import OutputError
from litelog.system.regular_files import NotRegularError, open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from litelog.formats import LogFormat
    from litelog.restore.output import OutputFolder
    from litelog.restore.plan import RestorePlan, SealedPiece

_CHUNK_BYTES = 1 << 20
_LOCK = ".lock"
"""What a writer of the log holds locked."""


@contextmanager
def locked_copy(path: str) -> Iterator[int]:
    """The descriptor of an older copy's folder, in which no writer can be at work; -1 where there is none.

    LockedError where one is; OutputError where that cannot be told.
    """
    try:
        folder, lock = _open_locked(path)
    except OSError as error:
        raise OutputError(path, f"the older copy cannot be opened: {error.strerror or error}") from error
    try:
        yield folder
    finally:
        for descriptor in (lock, folder):
            if descriptor >= 0:
                os.close(descriptor)


def _open_locked(path: str) -> tuple[int, int]:
    """The descriptors of a folder and of its locked file; -1 for what is not there."""
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1, -1
    lock = -1
    try:
        lock = open_regular(_LOCK, os.O_RDWR | os.O_NOFOLLOW, dir_fd=folder)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        pass
    except OSError as error:
        for descriptor in (lock, folder):
            if descriptor >= 0:
                os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise LockedError(os.path.join(path, _LOCK), f"{path}: a writer's log") from error
        raise
    return folder, lock


def keep_whole(old: int, folder: OutputFolder, plan: RestorePlan, log_format: LogFormat, parallelism: int) -> None:
    """Link into ``folder`` the log segments of an older copy whose SHA-256 is the one that the plan names, and all its
    files that are no log segments, but for what describes those that are replaced. OutputError for what can be neither.
    """
    wanted = {piece.entry.file: piece for part in plan.parts for piece in part.sealed if piece.is_whole}
    names = os.listdir(old)
    others = [name for name in names if log_format.segment_order(name) is None]
    for name in others:
        if not stat.S_ISREG(os.stat(name, dir_fd=old, follow_symlinks=False).st_mode):
            raise OutputError(folder.path, f"holds {name!r}, which is neither a log segment nor a file")
    same = [(name, wanted[name]) for name in names if name in wanted]
    with ThreadPoolExecutor(parallelism, "compare") as pool:
        kept = [name for name, holds in pool.map(lambda pair: (pair[0], _holds(old, *pair)), same) if holds]
    for name in kept:
        folder.adopt(old, name, wanted[name].entry.digest)
    for name in others:
        if not _describes_replaced(name, kept, log_format):
            folder.adopt(old, name)


def _describes_replaced(name: str, kept: Sequence[str], log_format: LogFormat) -> bool:
    """Whether a file tells where another history's records and times lie, or where that began: the index of a log
    segment that is not ``kept``, or the tombstone."""
    stem, suffix = os.path.splitext(name)
    if suffix in INDEX_SUFFIXES and log_format.self_numbered:  # beside others' log segments it may be anybody's
        return all(os.path.splitext(segment)[0] != stem for segment in kept)
    return name == TOMBSTONE_NAME and log_format.has_log_id


def _holds(old: int, name: str, piece: SealedPiece) -> bool:
    try:
        file = open_regular(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=old)
    except NotRegularError:
        return False
    try:
        if os.fstat(file).st_size != piece.entry.length:
            return False
        digest, at = hashlib.sha256(), 0
        while data := os.pread(file, _CHUNK_BYTES, at):
            digest.update(data)
            at += len(data)
        return digest.hexdigest() == piece.entry.digest
    finally:
        os.close(file)
