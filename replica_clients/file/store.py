"""The file store: objects as files under one root folder. Each object is whole and durable, or does not exist.

To create an object, the store opens an unnamed file in the object's folder (O_TMPFILE), writes the bytes, calls
fdatasync, hard-links the object's name, and calls fsync on the folder. An unnamed file disappears with its process, so
a crash leaves nothing. Some file systems have no unnamed files; on them, and for a put that may replace, the file has a
name that starts with TEMPORARY, in the same folder. A crash may leave such a file. Listings skip it. The store never
removes it, since its writer may be alive on another host. You may delete it while no daemon writes to the replica.

Not promised: listings do not follow links to folders in the root's tree; a file that another program puts there is only
as durable as that program made it.
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
from litelog.stores.object_store import (
    ByteRange,
    ByteStream,
    NotSupportedError,
    ObjectInfo,
    require_key,
    require_prefix,
)
from litelog.stores.registry import redact
from litelog.system.files import NotRegularError, begin_write_back, open_regular
from replica_clients.file.folders import DurableFolders

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.stores.object_store import Root
    from replica_clients.file.folders import RootIdentity

TEMPORARY = ".litelog-"
"""Prefix of temporary files' names. No part of a key may start with it."""

MAX_BUFFERS = 1024
"""Buffers in one write: Linux's IOV_MAX."""

HELD_BYTES = 4 << 20
"""Bytes in one write of a larger body. A stream's bytes are held up to this size, then sent to the disk."""

FOLDER_ATTEMPTS = 10
"""How often a put recreates its folder if another process removes it meanwhile. Retention does so at most once."""

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
    errno.ENOTDIR: "a file is where a folder should be: move it away",
}
_NEEDS_HELP = {errno.EACCES, errno.EPERM, errno.EROFS}
"""Errors that persist until a person acts."""


class _NoLinksError(OSError):
    """The file system has no hard links, so create-only puts are impossible."""


def open_store(url: str, options: Mapping[str, object]) -> FileStore:
    """Open the store at a path or ``file://`` URL. A relative path starts at the working folder. The store has no
    options.

    Raises ConfigError.
    """
    if options:
        raise ConfigError(f"a file replica takes no options, but was given {', '.join(sorted(options))}")
    if not url.startswith("file:"):
        return FileStore(url)
    parts = urlsplit(url)
    if parts.netloc not in {"", "localhost"} or not parts.path.startswith("/") or parts.query or parts.fragment:
        raise ConfigError(f"{redact(url)}: not a file URL; write file:///folder (%3F for ? and %23 for # in names)")
    return FileStore(unquote(parts.path, errors="surrogateescape"))


class FileStore:
    """An ObjectStore in a folder, and Rooted. For readers, a missing root is an empty store.

    Only the first put creates the root. If the root is missing later, or is another folder, the store is unavailable.
    """

    enforces_create_only = True

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
        raise StoreError("put", key, f"{self.root}: another process keeps removing its folder, or it is a broken link")

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
        return self._list_root(require_prefix(prefix), prefix, start_after or "")

    def delete(self, keys: Iterable[str]) -> None:
        for parent, group in itertools.groupby(keys, lambda key: key.rpartition("/")[0]):
            for key in group:
                _require_ours(key)
                with self._mapped("delete", key), suppress(*_NO_OBJECT):
                    self._folders.unlink(key)
            with self._mapped("delete", parent):
                self._folders.settle(parent)

    def close(self) -> None:
        """Do nothing: no resources are held between calls."""

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
            os.fsync(folder)  # the file's creator may have died before its fsync
            raise ExistsError(key) from None
        finally:
            os.close(folder)

    def _publish(self, folder: int, name: str, body: Iterable[Buffer], create_only: bool) -> None:
        """Create the file ``name`` from ``body``. Raises FileExistsError, and FileNotFoundError for the folder."""
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
            if create_only:  # a retry would find the key taken, and its fsync would succeed
                with suppress(OSError):
                    os.unlink(name, dir_fd=folder)
            raise

    def _create(self, folder: int, named: bool) -> tuple[int, str | None]:
        """Create a file. Returns its descriptor, and its name if it has one."""
        flags = os.O_WRONLY | os.O_CLOEXEC
        if self._flags and not named:
            try:
                return os.open(".", flags | self._flags, 0o666, dir_fd=folder), None
            except OSError as error:
                if error.errno in _NO_UNNAMED_FILES:
                    self._flags = 0
                elif error.errno != errno.EPERM:  # ext4 raises EPERM in a removed folder, as for missing
                    raise  # permissions: a named file shows which it is
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

    def _list_root(self, folder: str, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        """Walk a folder. Raises StoreError at the end if the root went away meanwhile: then objects were left out."""
        root = self.look_at_root()
        yield from self._walk(folder, prefix, start_after)
        if root is not None and self.look_at_root() != root:
            raise StoreError("list", prefix, f"{self.root} was unmounted, or replaced, during the listing")

    def _walk(self, folder: str, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        """Yield the objects in ``folder`` (empty, or ending in a slash) and below, in order. Scans each folder once."""
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
        """The entries of a folder that a listing may include: (key, entry), in order. A folder's key ends in a slash.

        The slash makes names sort as the keys under them do ("a.b" before "a/b"). Leaves out folders that lie wholly
        before ``start_after``, so they are not read.
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
            return NotSupportedError(operation, key, f"{self.root}: {error.strerror}")
        advice = _WHAT_TO_DO.get(error.errno or 0)
        reason = f"{self.root}: {error.strerror or error}{f'; {advice}' if advice else ''}"
        passes = error.errno not in _NEEDS_HELP and not isinstance(error, NotRegularError)
        return StoreError(operation, key, reason, retryable=passes)


def write_whole(file: int, body: Iterable[Buffer]) -> None:
    """Write buffers in sequence. Holds only a few, and does not join them."""
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
    """Whether a file's name is UTF-8. Python represents other bytes as surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


class FileReader(ByteStream):
    """Reads ``byte_range`` of an open file, and closes it. ``read(n)`` allocates only as much as there is to read."""

    def __init__(self, descriptor: int, byte_range: ByteRange) -> None:
        self._descriptor = descriptor
        self._at = byte_range.start
        size = os.fstat(descriptor).st_size
        end = size if byte_range.length is None else min(size, self._at + byte_range.length)
        self._left = max(0, end - self._at)

    def read(self, size: int | None = -1, /) -> bytes:
        """Read ``size`` bytes, or all that are left if there are fewer or ``size`` is negative."""
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

    @property
    def left(self) -> int:
        """How many bytes are left to read."""
        return self._left

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self._descriptor)
