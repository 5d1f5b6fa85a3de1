"""The folder that a restore fills: under a temporary name next to the output, and synced and renamed once it is whole.

A restore over an older copy of the log keeps that copy's whole log segments, and exchanges the two folders.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from litelog.errors import LitelogError, LockedError, OutputExistsError
from litelog.events import fields
from litelog.formats.capabilities import INDEX_SUFFIXES
from litelog.log.sequence_base import TOMBSTONE_NAME
from litelog.restore.journal import JOURNAL_NAME, Journal, read_journal
from litelog.system.files import NotRegularError, exchange, open_regular, sync_folder
from litelog.system.private_files import find_owner
from litelog.units import format_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from litelog.formats import LogFormat
    from litelog.objects.side_files import SideFile
    from litelog.restore.plan import RestorePlan, SealedSpan

_logger = logging.getLogger(__name__)

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_TAKEN = {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}
_CANNOT_EXCHANGE = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}
_PROBES = (".litelog-exchange-1", ".litelog-exchange-2")
_PROBE = ".litelog-probe"

PRIVATE_MODE = 0o700
"""The mode of the temporary folder: before it is published, no other user may put anything there, despite the umask."""

_OTHERS_WRITE = 0o022

_BLOCK = 512
"""The unit of ``st_blocks``, in bytes."""

MAX_LOCK_ATTEMPTS = 100
"""How often a restore makes the temporary folder again after another restore has renamed it."""


class OutputError(LitelogError):
    """A restore cannot write to its output."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class ForeignOutputError(OutputError):
    """Another user owns or replaced the folder that a restore would write to. It changed nothing of that user's."""


class OutputFolder:
    """A folder that appears under its name whole and durable, or not at all.

    ``path`` may be absent or an empty folder. Files that a killed restore left under the temporary name are kept until
    ``keep_only`` if ``journal`` describes them. Use it as a context: at the end, it removes an unpublished folder.
    Several threads may call ``create``.

    Other users may write to the parent. So a restore refuses a folder that another user made under the temporary name,
    empties a folder that others could have written to, and checks that the published folder is the folder that it
    filled.
    """

    def __init__(self, path: str, *, replace: bool = False) -> None:
        """``replace``: ``path`` may hold an older copy, which ``publish`` exchanges with this one in one step."""
        self.path = os.path.abspath(path)
        self._parent, name = os.path.split(self.path)
        if not name:
            raise OutputError(self.path, "is the root folder; name a new one")
        self.temporary = os.path.join(self._parent, f".{name}.litelog-restoring")
        self._folder = -1
        self._published = self._is_kept = False
        self._replace = replace
        self._adopted: set[str] = set()
        self._kept: set[str] = set()
        self.journal = Journal(-1)
        """The ranges that an earlier restore, and this one, have verified."""

    def __enter__(self) -> OutputFolder:
        self._check_free()
        try:
            self._folder = self._lock()
            self._require_ours()
            self._check_free()  # a restore that held the lock before us may have published
            self.journal = Journal(self._folder, read_journal(self._folder, self.temporary))
            self.keep_only(self.journal.files)
            if self._replace and os.path.isdir(self.path):
                self._require_exchange()
        except ForeignOutputError:
            self._close()
            raise
        except OSError as error:
            if self._folder >= 0:
                _remove_empty(self.temporary)
            self._close()
            what = f"{error.filename!r}: " if error.filename not in (None, self.temporary) else ""
            reason = f"cannot be made in {self._parent}: {what}{error.strerror or error}"
            raise OutputError(self.path, reason) from error
        except LitelogError:
            self._discard()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not (self._published or self._is_kept):
            self._discard()
        self._close()

    def create(self, name: str) -> int:
        """Open the file ``name`` for reading and writing: a new file, or the kept one. Returns its
        descriptor."""
        if name in self._kept:
            return self.reopen(name)
        return os.open(name, _FILE_FLAGS, 0o666, dir_fd=self._folder)

    def write_file(self, file: SideFile) -> None:
        """Write a side file, synced, in place of a kept one: an older copy may share its content."""
        with suppress(FileNotFoundError):
            os.unlink(file.name, dir_fd=self._folder)
        with os.fdopen(os.open(file.name, _FILE_FLAGS, 0o666, dir_fd=self._folder), "wb") as written:
            written.write(file.body)
            written.flush()
            os.fsync(written.fileno())

    def reopen(self, name: str) -> int:
        """Open the file ``name``, which exists, for reading and writing. Returns its descriptor."""
        return open_regular(name, _FILE_FLAGS & ~(os.O_CREAT | os.O_EXCL), dir_fd=self._folder)

    def keep_only(self, names: set[str]) -> None:
        """Remove the files that an earlier restore left, except those in ``names`` that the journal describes."""
        kept = names & self.journal.files
        self._kept = set()
        for name in os.listdir(self._folder):
            linked = os.stat(name, dir_fd=self._folder, follow_symlinks=False).st_nlink > 1
            if name in self._adopted or (name in kept and not linked):
                self._kept.add(name)
            elif name != JOURNAL_NAME or not kept:
                self._remove(name)

    def adopt(self, old: int, name: str, digest: str | None = None) -> None:
        """Link the file ``name`` of an older copy into this folder. ``old``: the descriptor of the copy's folder.

        ``digest``: the SHA-256 of a log segment, which is then checked as if an earlier restore had left it; None for
        any other file.
        """
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._folder)
        os.link(name, name, src_dir_fd=old, dst_dir_fd=self._folder, follow_symlinks=False)
        self._adopted.add(name)
        self._kept.add(name)
        if digest is not None:
            self.journal.adopt(name, digest)

    def require_space(self, size: int) -> None:
        """Raise OutputError unless the file system has room for ``size`` bytes, less the bytes of kept files."""
        held = sum(os.stat(name, dir_fd=self._folder, follow_symlinks=False).st_blocks for name in self._kept) * _BLOCK
        disk = os.fstatvfs(self._folder)
        free = disk.f_bavail * disk.f_frsize
        if size - held > free:
            needed = f"needs {format_size(size - held)}, and its file system has {format_size(free)} free"
            raise OutputError(self.path, f"{needed}; nothing was left behind")

    def clear(self) -> None:
        """Remove all files that were created."""
        for name in os.listdir(self._folder):
            self._remove(name)

    def _remove(self, name: str) -> None:
        """Remove a file, or a folder that is empty."""
        try:
            os.unlink(name, dir_fd=self._folder)
        except IsADirectoryError:
            os.rmdir(name, dir_fd=self._folder)

    def publish(self) -> None:
        """Make the folder durable under its name. All its files must have been synced.

        Raises:
            OutputExistsError: the name was taken meanwhile.
            ForeignOutputError: another user put a folder under the temporary name.
            OutputError: the last sync failed. The output is whole, but a power cut may undo it.
        """
        self.journal.close()
        with suppress(FileNotFoundError):
            os.unlink(JOURNAL_NAME, dir_fd=self._folder)
        os.fchmod(self._folder, self._find_mode())
        os.fsync(self._folder)
        if not _same(self._folder, self.temporary):
            raise ForeignOutputError(self.temporary, "was replaced while the restore wrote to it")
        if self._replace and os.path.isdir(self.path):
            old = os.open(self.path, _FOLDER_FLAGS)
            try:
                exchange(self.temporary, self.path)
                self._published = True
                self._require_published()
                self._sync_parent()
                self._remove_old(old)
            finally:
                os.close(old)
            return
        try:
            os.rename(self.temporary, self.path)
        except OSError as error:
            if error.errno in _TAKEN:
                raise OutputExistsError(self.path) from error
            raise
        self._published = True
        self._require_published()
        self._sync_parent()

    def _require_published(self) -> None:
        """Check that the folder under the output's name is the folder that was filled: if others may write to the
        parent, and it is not sticky, another user can rename the folder at any moment."""
        if not _same(self._folder, self.path):
            raise ForeignOutputError(self.path, "is not what was restored: another user replaced it")

    def _find_mode(self) -> int:
        """The mode that a new folder gets, from the umask or from its parent."""
        os.mkdir(_PROBE, dir_fd=self._folder)
        mode = os.stat(_PROBE, dir_fd=self._folder, follow_symlinks=False).st_mode
        os.rmdir(_PROBE, dir_fd=self._folder)
        return stat.S_IMODE(mode)

    def _require_ours(self) -> None:
        """Raise ForeignOutputError unless this user owns the temporary folder; empty it if others could write to
        it."""
        status = os.fstat(self._folder)
        if status.st_uid != os.geteuid() and status.st_uid != self._find_owner():
            whose = f"belongs to user {status.st_uid}, and not to the user that restores ({os.geteuid()})"
            raise ForeignOutputError(self.temporary, f"{whose}: remove it, or choose another -o")
        os.fchmod(self._folder, stat.S_IMODE(status.st_mode) & ~0o077)
        if status.st_mode & _OTHERS_WRITE:
            message = "%s: others could write to what an earlier restore left: it is not used"
            _logger.warning(message, self.temporary, extra=fields("not-resumed", path=self.temporary))
            self.clear()

    def _find_owner(self) -> int | None:
        """The owner of new files in the temporary folder (``find_owner``)."""
        try:
            with suppress(FileNotFoundError):
                self._remove(_PROBE)
        except OSError:
            return None
        return find_owner(_PROBE, self._folder)

    def _require_exchange(self) -> None:
        """Raise OutputError if the file system cannot exchange two names, before anything is read."""
        for name in _PROBES:
            os.close(os.open(name, _FILE_FLAGS, 0o600, dir_fd=self._folder))
        try:
            exchange(*(os.path.join(self.temporary, name) for name in _PROBES))
        except OSError as error:
            if error.errno not in _CANNOT_EXCHANGE:
                raise
            raise OutputError(
                self.path,
                f"its file system cannot exchange two folders at once ({error.strerror}), so an older copy cannot be "
                "replaced: it is unchanged; restore to a new folder instead",
            ) from error
        for name in _PROBES:
            os.unlink(name, dir_fd=self._folder)

    def _remove_old(self, old: int) -> None:
        """Remove the replaced copy, which now has the temporary name. If that fails, the next restore removes the rest,
        as after a kill. ``old``: the descriptor of the copy's folder."""
        with suppress(OSError):
            for name in os.listdir(old):
                os.unlink(name, dir_fd=old)
            os.rmdir(self.temporary)

    def _check_free(self) -> None:
        """Raise OutputExistsError unless the name is free, or names an empty folder that a rename can replace."""
        try:
            if os.path.islink(self.path) or not os.path.isdir(self.path):
                if os.path.lexists(self.path):
                    raise OutputExistsError(self.path)
            elif os.path.ismount(self.path):
                raise OutputError(self.path, "is a mount point, which nothing can be renamed to; name a folder in it")
            elif os.listdir(self.path) and not self._replace:
                raise OutputExistsError(self.path)
            if not os.path.isdir(self._parent):
                raise OutputError(self._parent, "no such folder; a restore creates only the last folder of its path")
        except OSError as error:
            raise OutputError(self.path, error.strerror or str(error)) from error

    def _lock(self) -> int:
        """Create or open the temporary folder, and lock it for this restore. Returns its descriptor."""
        for _ in range(MAX_LOCK_ATTEMPTS):
            made = False
            with suppress(FileExistsError):
                os.mkdir(self.temporary, PRIVATE_MODE)
                made = True
            try:
                folder = os.open(self.temporary, _FOLDER_FLAGS)
            except FileNotFoundError:
                continue
            except OSError as error:
                if made:
                    _remove_empty(self.temporary)
                if error.errno in (errno.ENOTDIR, errno.ELOOP):
                    raise OutputError(self.temporary, "is not a folder: remove it, or choose another -o") from error
                raise
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _same(folder, self.temporary):
                    return folder
            except BlockingIOError as error:
                os.close(folder)
                raise LockedError(self.temporary, f"{self.path}: another restore's temporary folder") from error
            except OSError:
                os.close(folder)
                if made:
                    _remove_empty(self.temporary)
                raise
            os.close(folder)
        raise LockedError(self.temporary, f"{self.path}: the temporary folder, which other restores keep renaming,")

    def keep(self) -> None:
        """Leave what was written to the next restore, as a kill does."""
        self._is_kept = True

    def _discard(self) -> None:
        """Remove the written files. Leaves those that cannot be removed to the next restore, as the first error matters
        more."""
        if self._folder >= 0:
            with suppress(OSError):
                self.clear()
                os.rmdir(self.temporary)
        self._close()

    def _sync_parent(self) -> None:
        try:
            sync_folder(self._parent)
        except OSError as error:
            raise OutputError(
                self._parent,
                f"cannot be synced ({error.strerror}): the output is whole, but may not outlast a power cut",
            ) from error

    def _close(self) -> None:
        self.journal.close()
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1


def _remove_empty(path: str) -> None:
    with suppress(OSError):
        os.rmdir(path)


def _same(folder: int, path: str) -> bool:
    try:
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(folder), there)


_CHUNK_BYTES = 1 << 20
_LOCK = ".lock"
"""The file that a writer of the log holds locked."""


@contextmanager
def locked_copy(path: str) -> Iterator[int]:
    """Open the folder of an older copy, and keep writers out of it. Yields its descriptor; -1 without a folder.

    Raises LockedError if a writer uses it, and OutputError if it cannot be opened.
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
    """Open a folder, and lock its lock file. Returns both descriptors; -1 for what does not exist."""
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
    """Link log segments and other files of an older copy into ``folder``: the log segments with the SHA-256 that the
    plan names, and all other files except those that describe replaced log segments. Raises OutputError if the copy
    holds anything else.
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
    """Whether a file describes data of the older copy that is replaced: the index of a log segment that is not
    ``kept``, or the tombstone."""
    stem, suffix = os.path.splitext(name)
    if suffix in INDEX_SUFFIXES and log_format.self_numbered:  # in other formats, the file may be another program's
        return all(os.path.splitext(segment)[0] != stem for segment in kept)
    return name == TOMBSTONE_NAME and log_format.has_log_id


def _holds(old: int, name: str, piece: SealedSpan) -> bool:
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
