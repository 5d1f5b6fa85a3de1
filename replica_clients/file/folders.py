"""The folders of a file store: made and emptied so that a power cut cannot undo it, and in one root alone."""

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
"""Folders remembered as durable, about 100 bytes each; one that is forgotten costs an fsync of its parent."""

RootIdentity = tuple[int, int]
"""A folder's device and inode: what is mounted or moved to its path has others."""

FileIdentity = tuple[int, int]
"""A file's inode, and when it was written, in nanoseconds."""

_NOT_THERE = (FileNotFoundError, NotADirectoryError)


class RootGoneError(OSError):
    """The root at the path is not the one that this process writes to."""

    def __init__(self, why: str) -> None:
        super().__init__(errno.ENXIO, why)


class DurableFolders:
    """The folders under a root: made durably, and which of them are known to be so.

    A folder that is merely there may be one whose maker died before its parent was synced, so the first use of each
    syncs the parent. Folders are opened and removed under one lock: nobody gets a folder that another thread has just
    made and not yet synced.

    The root is made once, by the first use. From then on each use opens the path, compares what is there with the root
    that it began with, and goes on from that descriptor: what is mounted or unmounted meanwhile cannot come between. No
    descriptor is kept: it would keep the file system from being unmounted.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._known: set[str] = set()
        self._lock = threading.Lock()
        self._identity: RootIdentity | None = None
        self._anchor: tuple[str, FileIdentity | None] | None = None

    def look(self) -> RootIdentity | None:
        """Which root is there now; None where there is none."""
        try:
            facts = os.stat(self._root)
        except _NOT_THERE:
            return None
        return facts.st_dev, facts.st_ino

    def keep_to(self, root: RootIdentity | None, anchor: str) -> None:
        """Use ``root`` alone, and only while it holds the file ``anchor`` as it is now.

        A root's device and inode are not enough: a disk that is mounted in another one's place may have the same.
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
        """A descriptor of the folder with that key, which is durable; the caller closes it.

        FileNotFoundError where somebody removes it at the same time: try again. RootGoneError.
        """
        with self._lock, self._open_root(make=True) as root:
            if folder in self._known:
                try:
                    return os.open(folder or ".", OPEN_FOLDER, dir_fd=root)
                except FileNotFoundError:
                    self._known.clear()  # somebody removed it, and perhaps more
            try:
                self._make(root, folder)
                return os.open(folder or ".", OPEN_FOLDER, dir_fd=root)
            except FileNotFoundError:
                self._known.clear()
                raise

    def unlink(self, key: str) -> None:
        """Remove a file. RootGoneError, and OSError as ``os.unlink`` has it."""
        with self._open_root() as root:
            os.unlink(key, dir_fd=root)

    def settle(self, folder: str) -> None:
        """Make deletions in a folder durable; remove it, and those above it but the root, where nothing is left.

        RootGoneError.
        """
        with self._lock, suppress(FileNotFoundError), self._open_root() as root:
            while folder:
                try:
                    os.rmdir(folder, dir_fd=root)
                except _NOT_THERE:
                    pass
                except OSError:
                    break  # not empty, or not ours to remove
                self._known.discard(folder)
                folder = folder.rpartition("/")[0]
            _sync(root, folder)

    @contextmanager
    def _open_root(self, *, make: bool = False) -> Iterator[int]:
        """A descriptor of the root. FileNotFoundError where there is none, and none was used before: unless ``make``
        says to make it."""
        if self._identity is None and self._anchor is None and make:
            _make_root(self._root)
        try:
            root = os.open(self._root, OPEN_FOLDER)
        except _NOT_THERE:
            if self._identity is None and self._anchor is None:
                raise
            raise RootGoneError("the folder is not there, and was there before: is it mounted?") from None
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
    """Make the root and what is missing above it. Above what was there, folders may be closed to us: let be."""
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
