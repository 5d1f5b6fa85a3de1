"""Creates and removes the folders of a file store, durably, and within one root only."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from litelog.system.files import OPEN_FOLDER, sync_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_KNOWN_FOLDERS = 4096
"""The most folders that are remembered as durable, at about 100 bytes each. A forgotten one costs another fsync."""

RootIdentity = tuple[int, int]
"""A folder's device and inode. A folder that is mounted or moved to the same path has different ones."""

FileIdentity = tuple[int, int]
"""A file's inode and modification time in nanoseconds."""

_NOT_THERE = (FileNotFoundError, NotADirectoryError)


class RootGoneError(OSError):
    """The folder at the root's path is missing, or is another than this process has used."""

    def __init__(self, why: str) -> None:
        super().__init__(errno.ENXIO, why)


class DurableFolders:
    """Creates the folders under a root durably, and remembers which ones are durable.

    An existing folder may not be durable: its creator may have died before its parent was synced. So the first use of
    each folder syncs its parent. One lock covers opening and removing folders, so no caller gets a folder that another
    thread has created and not yet synced.

    Only the first use creates the root. Each later use opens the path, compares the folder with that root, and works
    from its descriptor, so a mount or unmount at that moment does no harm. No descriptor is kept: it would prevent the
    file system from being unmounted.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._known: set[str] = set()
        self._lock = threading.Lock()
        self._identity: RootIdentity | None = None
        self._anchor: tuple[str, FileIdentity | None] | None = None

    def look(self) -> RootIdentity | None:
        """The identity of the current root; None if it does not exist."""
        try:
            facts = os.stat(self._root)
        except _NOT_THERE:
            return None
        return facts.st_dev, facts.st_ino

    def keep_to(self, root: RootIdentity | None, anchor: str) -> None:
        """Use only ``root``, and only while it holds the unchanged file ``anchor``.

        Device and inode are not enough: a disk that replaces another at the mount point may have the same ones.
        """
        with self._lock:
            if root != self._identity:
                self._known.clear()
            self._identity, self._anchor = root, (anchor, None)
            with suppress(*_NOT_THERE):
                descriptor = os.open(self._root, OPEN_FOLDER)
                try:
                    self._anchor = anchor, _look_at_file(descriptor, anchor)
                finally:
                    os.close(descriptor)

    def open(self, folder: str) -> int:
        """Open the folder with that key; create it durably if it is missing. The caller closes the descriptor.

        Raises RootGoneError, and FileNotFoundError if another process removes the folder at the same time: try again.
        """
        with self._lock, self._open_root(make=True) as root:
            if folder in self._known:
                try:
                    return os.open(folder or ".", OPEN_FOLDER, dir_fd=root)
                except FileNotFoundError:
                    self._known.clear()  # another process removed it, and perhaps others
            try:
                self._make(root, folder)
                return os.open(folder or ".", OPEN_FOLDER, dir_fd=root)
            except FileNotFoundError:
                self._known.clear()
                raise

    def unlink(self, key: str) -> None:
        """Remove a file. Raises RootGoneError, and OSError as ``os.unlink`` does."""
        with self._open_root() as root:
            os.unlink(key, dir_fd=root)

    def settle(self, folder: str) -> None:
        """Make deletions in a folder durable. Removes the folder and its parents below the root if they are empty.

        Raises RootGoneError.
        """
        with self._lock, suppress(FileNotFoundError), self._open_root() as root:
            while folder:
                try:
                    os.rmdir(folder, dir_fd=root)
                except _NOT_THERE:
                    pass
                except OSError:
                    break  # not empty, or no permission to remove it
                self._known.discard(folder)
                folder = folder.rpartition("/")[0]
            _sync(root, folder)

    @contextmanager
    def _open_root(self, *, make: bool = False) -> Iterator[int]:
        """Open the root, and yield its descriptor.

        If the root does not exist and was never used, raises FileNotFoundError or, with ``make``, creates it.
        """
        if self._identity is None and self._anchor is None and make:
            _make_root(self._root)
        try:
            root = os.open(self._root, OPEN_FOLDER)
        except _NOT_THERE:
            if self._identity is None and self._anchor is None:
                raise
            raise RootGoneError("the folder existed before, and is missing now: is it mounted?") from None
        try:
            facts = os.fstat(root)
            identity = facts.st_dev, facts.st_ino
            if self._anchor is not None:
                self._require(root, identity, *self._anchor)
            elif make and self._identity is None:
                self._identity = identity
            elif self._identity not in (None, identity):
                raise RootGoneError("is not the folder that was written to before: is the right one mounted?")
            yield root
        finally:
            os.close(root)

    def _require(self, root: int, identity: RootIdentity, name: str, file: FileIdentity | None) -> None:
        try:
            found = _look_at_file(root, name)
        except _NOT_THERE:
            found = None
        if identity != self._identity or (found is not None and found != file):
            raise RootGoneError("is not the folder that this replica was in: is the right one mounted?")
        if found is None:
            raise RootGoneError(f"holds no {name} any more: was the folder emptied, or is the right one not mounted?")

    def _make(self, root: int, folder: str) -> None:
        if len(self._known) > MAX_KNOWN_FOLDERS:
            self._known.clear()
        parts = folder.split("/") if folder else []
        for count in range(1, len(parts) + 1):
            part = "/".join(parts[:count])
            if part not in self._known:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=root)
                _sync(root, os.path.dirname(part))
                self._known.add(part)


def _look_at_file(root: int, name: str) -> FileIdentity:
    facts = os.stat(name, dir_fd=root, follow_symlinks=False)
    return facts.st_ino, facts.st_mtime_ns


def _sync(root: int, folder: str) -> None:
    """As ``sync_folder``, for a folder below a descriptor."""
    descriptor = os.open(folder or ".", OPEN_FOLDER, dir_fd=root)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_root(root: str) -> None:
    """Create the root and missing parents. Syncing existing parents is skipped where access is denied."""
    names = root.strip("/").split("/")
    for count in range(1, len(names) + 1):
        path = "/" + "/".join(names[:count])
        if os.path.isdir(path):
            with suppress(OSError):
                sync_folder(os.path.dirname(path))
        else:
            with suppress(FileExistsError):
                os.mkdir(path)
            sync_folder(os.path.dirname(path))
