"""The file store: objects as files under one root folder, each of them whole and durable, or not there at all.

How an object is made: an unnamed file in the object's folder (O_TMPFILE), its bytes, fdatasync, a hard link under the
object's name, fsync of the folder. An unnamed file is gone when its process is, so a crash leaves nothing behind. Where
a file system has none, and for a put that may replace, the file has a name that starts with TEMPORARY, in the same
folder. A crash may leave such a file: listings skip it, nothing removes it (its writer may be alive on another host),
and it may be deleted by hand whenever no daemon writes to the replica.

What is not promised: links in the root's tree that lead to folders are not followed by listings; a file that another
program puts there is as durable as that program made it.
"""

from __future__ import annotations

import errno
import itertools
import os
import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, cast
from urllib.parse import quote, unquote, urlsplit

from litelog.errors import ConfigError, ExistsError, NotFoundError, StoreError
from litelog.stores.object_store import ByteRange, ByteStream, NotOfferedError, ObjectInfo, require_key, require_prefix
from litelog.stores.registry import redact
from litelog.system.files import begin_write_back
from litelog.system.regular_files import NotRegularError, open_regular
from replica_clients.file.folders import DurableFolders

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.stores.object_store import Root
    from replica_clients.file.folders import RootIdentity

TEMPORARY = ".litelog-"
"""What the names of temporary files start with, and no part of a key may."""

MAX_BUFFERS = 1024
"""Buffers in one write: Linux's IOV_MAX."""

HELD_BYTES = 4 << 20
"""Bytes in one write, of a body that has more: a stream's are held that long, and then begin their way to the disk."""

FOLDER_ATTEMPTS = 10
"""How often a put makes its folder anew when somebody removes it meanwhile: retention does so once, at most."""

_NO_OBJECT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_NO_UNNAMED_FILES = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL}
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}
_WHAT_TO_DO = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space, or raise the quota",
    errno.EACCES: "give the user that litelog runs as the right to read and write there",
    errno.EPERM: "give the user that litelog runs as the right to read and write there",
    errno.EROFS: "mount it writable",
    errno.EMFILE: "raise the limit of open files (ulimit -n, LimitNOFILE=)",
    errno.ENOTDIR: "a file is in the place of a folder: move it away",
}
_NEEDS_HELP = {errno.EACCES, errno.EPERM, errno.EROFS}
"""What does not pass by itself."""


class _NoLinksError(OSError):
    """The file system has no hard links, so there is no create-only put."""


def open_store(url: str, options: Mapping[str, object]) -> FileStore:
    """The store at a path or ``file://`` URL; a relative path counts from the working folder. It takes no options."""
    if options:
        raise ConfigError(f"a file replica takes no options, but was given {', '.join(sorted(options))}")
    if not url.startswith("file:"):
        return FileStore(url)
    parts = urlsplit(url)
    if parts.netloc not in {"", "localhost"} or not parts.path.startswith("/") or parts.query or parts.fragment:
        raise ConfigError(f"{redact(url)}: not a file URL; write file:///folder (%3F for ? and %23 for # in names)")
    return FileStore(unquote(parts.path, errors="surrogateescape"))


class FileStore:
    """An ObjectStore in a folder, and Rooted. A missing root is an empty store for readers. The first put makes it, and
    no later one does: a root that is missing then, or another one, is a store that is not available."""

    fences = True

    def __init__(self, root: str, *, unnamed: bool = True) -> None:
        if not root or "\0" in root:
            raise ConfigError(f"not a folder's path: {root!r}")
        self.root = os.path.abspath(root)
        self.url = f"file://{quote(self.root, errors='surrogateescape')}"
        self._folders = DurableFolders(self.root)
        self._flags = getattr(os, "O_TMPFILE", 0) if unnamed and os.path.isdir("/proc/self/fd") else 0
        self._token = secrets.token_hex(8)
        self._count = itertools.count()

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        _require_ours(key)
        parent, _, name = key.rpartition("/")
        with self._mapped("put", key):
            for _ in range(FOLDER_ATTEMPTS):
                with suppress(FileNotFoundError):  # the folder was removed meanwhile
                    return self._put(key, parent, name, body, create_only)
        raise StoreError("put", key, f"{self.root}: its folder is removed again and again, or is a link to nothing")

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        _require_ours(key)
        with self._mapped("open", key):
            try:
                descriptor = open_regular(os.path.join(self.root, key))
            except _NO_OBJECT:
                raise NotFoundError(key) from None
            except NotRegularError as error:
                if error.is_folder:
                    raise NotFoundError(key) from None
                raise
            return cast("BinaryIO", FileReader(descriptor, byte_range or ByteRange(0)))

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return self._walk(require_prefix(prefix), prefix, start_after or "")

    def delete(self, keys: Iterable[str]) -> None:
        for parent, group in itertools.groupby(keys, lambda key: key.rpartition("/")[0]):
            for key in group:
                _require_ours(key)
                with self._mapped("delete", key), suppress(*_NO_OBJECT):
                    self._folders.unlink(key)
            with self._mapped("delete", parent):
                self._folders.settle(parent)

    def close(self) -> None:
        """Nothing is held between calls."""

    def look_at_root(self) -> RootIdentity | None:
        with self._mapped("look at", ""):
            return self._folders.look()

    def keep_to_root(self, root: Root, anchor: str) -> None:
        _require_ours(anchor)
        self._folders.keep_to(cast("RootIdentity | None", root), anchor)

    def _put(self, key: str, parent: str, name: str, body: Iterable[Buffer], create_only: bool) -> None:
        folder = self._folders.open(parent)
        try:
            self._publish(folder, name, body, create_only)
        except FileExistsError:
            os.fsync(folder)  # its maker may have died before that
            raise ExistsError(key) from None
        finally:
            os.close(folder)

    def _publish(self, folder: int, name: str, body: Iterable[Buffer], create_only: bool) -> None:
        """Make the file ``name`` of ``body``. FileExistsError, FileNotFoundError: of the name, of the folder."""
        file, temporary = self._create(folder, named=not create_only)
        try:
            write_whole(file, body)
            os.fdatasync(file)
            if create_only:
                self._link(temporary or f"/proc/self/fd/{file}", name, folder)
            elif temporary:
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            os.close(file)
            if temporary:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
        try:
            os.fsync(folder)
        except OSError:
            if create_only:  # a second try would find the name taken, and an fsync that says all is well
                with suppress(OSError):
                    os.unlink(name, dir_fd=folder)
            raise

    def _create(self, folder: int, named: bool) -> tuple[int, str | None]:
        """A new file's descriptor, and its name if it has one."""
        flags = os.O_WRONLY | os.O_CLOEXEC
        if self._flags and not named:
            try:
                return os.open(".", flags | self._flags, 0o666, dir_fd=folder), None
            except OSError as error:
                if error.errno in _NO_UNNAMED_FILES:
                    self._flags = 0
                elif error.errno != errno.EPERM:  # what ext4 says in a folder that was removed, as does a real lack of
                    raise  # rights: a named file tells them apart
        name = f"{TEMPORARY}{os.getpid()}-{self._token}-{next(self._count)}.tmp"
        return os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder), name

    def _link(self, source: str, name: str, folder: int) -> None:
        unnamed = source.startswith("/")
        try:
            os.link(source, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=unnamed)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            reason = "its file system makes no hard links: choose one that does (ext4, xfs, btrfs, zfs, NFS)"
            raise _NoLinksError(errno.EOPNOTSUPP, reason) from error

    def _walk(self, folder: str, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        """The objects in ``folder`` (empty, or with its slash) and below, in order, from one sorted scan of each."""
        for key, entry in self._scan(folder, prefix, start_after):
            if key.endswith("/"):
                yield from self._walk(key, prefix, start_after)
                continue
            try:
                size = entry.stat(follow_symlinks=False).st_size
            except FileNotFoundError:
                continue  # deleted since the scan
            except OSError as error:
                raise self._failure("list", key, error) from error
            yield ObjectInfo(key, size)

    def _scan(self, folder: str, prefix: str, start_after: str) -> Sequence[tuple[str, os.DirEntry[str]]]:
        """What of a folder may lie in a listing: (key, entry), in order; a folder's key ends with a slash.

        The slash makes names sort as the keys under them do ("a.b" before "a/b"). A folder that lies wholly before
        ``start_after`` is left out, so nobody reads it.
        """
        found = []
        with (
            self._mapped("list", folder),
            suppress(FileNotFoundError, NotADirectoryError),
            os.scandir(os.path.join(self.root, folder)) as entries,
        ):
            for entry in entries:
                if entry.name.startswith(TEMPORARY) or not (entry.name.isascii() or _is_text(entry.name)):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    key = f"{folder}{entry.name}/"
                    wanted = key > start_after or start_after.startswith(key)
                    wanted = wanted and (key.startswith(prefix) or prefix.startswith(key))
                else:
                    key = f"{folder}{entry.name}"
                    wanted = key > start_after and key.startswith(prefix) and entry.is_file(follow_symlinks=False)
                if wanted:
                    found.append((key, entry))
        found.sort(key=lambda pair: pair[0])
        return found

    @contextmanager
    def _mapped(self, operation: str, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._failure(operation, key, error) from error

    def _failure(self, operation: str, key: str, error: OSError) -> StoreError:
        if isinstance(error, _NoLinksError):
            return NotOfferedError(operation, key, f"{self.root}: {error.strerror}")
        advice = _WHAT_TO_DO.get(error.errno or 0)
        reason = f"{self.root}: {error.strerror or error}{f'; {advice}' if advice else ''}"
        passes = error.errno not in _NEEDS_HELP and not isinstance(error, NotRegularError)
        return StoreError(operation, key, reason, retryable=passes)


def write_whole(file: int, body: Iterable[Buffer]) -> None:
    """Write buffers one behind the other, without putting them together first, nor holding more than a few."""
    views: list[memoryview] = []
    held = written = 0
    for buffer in body:
        if (view := memoryview(buffer)).nbytes:
            view = view.cast("B")
            views.append(view)
            held += len(view)
        if held >= HELD_BYTES or len(views) == MAX_BUFFERS:
            _write_views(file, views)
            begin_write_back(file, written, held)
            views, written, held = [], written + held, 0
        del buffer, view
    _write_views(file, views)


def _write_views(file: int, views: list[memoryview]) -> None:
    while views:
        written = os.writev(file, views[:MAX_BUFFERS])
        done = 0
        while done < len(views) and written >= len(views[done]):
            written -= len(views[done])
            done += 1
        views = views[done:]
        if written:
            views[0] = views[0][written:]


def _require_ours(key: str) -> None:
    require_key(key)
    if TEMPORARY in key and any(part.startswith(TEMPORARY) for part in key.split("/")):
        raise ValueError(f"keys may not start with {TEMPORARY}: {key!r}")


def _is_text(name: str) -> bool:
    """Whether a file's name is UTF-8: Python shows other bytes as surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


class FileReader(ByteStream):
    """``byte_range`` of an open file, which it closes. ``read(n)`` takes memory for what is there, not for n bytes."""

    def __init__(self, descriptor: int, byte_range: ByteRange) -> None:
        self._descriptor = descriptor
        self._at = byte_range.start
        size = os.fstat(descriptor).st_size
        end = size if byte_range.length is None else min(size, self._at + byte_range.length)
        self._left = max(0, end - self._at)

    def read(self, size: int | None = -1, /) -> bytes:
        """``size`` bytes, or all that are left where they are fewer or ``size`` is negative."""
        want = self._left if size is None or size < 0 else min(size, self._left)
        pieces: list[bytes] = []
        while want:
            piece = os.pread(self._descriptor, want, self._at)
            if not piece:
                raise OSError(f"file ends at byte {self._at}, {self._left} bytes early")
            pieces.append(piece)
            self._at += len(piece)
            self._left -= len(piece)
            want -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer).cast("B")[: self._left]
        if not len(view):
            return 0
        count = os.preadv(self._descriptor, [view], self._at)
        if not count:
            raise OSError(f"file ends at byte {self._at}, {self._left} bytes early")
        self._at += count
        self._left -= count
        return count

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self._descriptor)
