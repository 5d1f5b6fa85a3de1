"""The folders of a file store: made and emptied so that a power cut cannot undo it."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

from litelog.durability import OPEN_FOLDER, sync_folder

MAX_KNOWN_FOLDERS = 4096
"""Folders remembered as durable, about 100 bytes each; one that is forgotten costs an fsync of its parent."""


class DurableFolders:
    """The folders under a root: made durably, and which of them are known to be so.

    A folder that is merely there may be one whose maker died before its parent was synced, so the first use of each
    syncs the parent. Folders are opened and removed under one lock: nobody gets a folder that another thread has just
    made and not yet synced.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._known: set[str] = set()
        self._lock = threading.Lock()

    def open(self, folder: str) -> int:
        """A descriptor of the folder with that key, which is durable; the caller closes it.

        FileNotFoundError where somebody removes it at the same time: try again.
        """
        with self._lock:
            if folder in self._known:
                try:
                    return os.open(os.path.join(self._root, folder), OPEN_FOLDER)
                except FileNotFoundError:
                    self._known.clear()  # somebody removed it, and perhaps more
            try:
                self._make(folder)
                return os.open(os.path.join(self._root, folder), OPEN_FOLDER)
            except FileNotFoundError:
                self._known.clear()
                raise

    def settle(self, folder: str) -> None:
        """Make deletions in a folder durable; remove it, and those above it but the root, where nothing is left."""
        with self._lock:
            while folder:
                try:
                    os.rmdir(os.path.join(self._root, folder))
                except (FileNotFoundError, NotADirectoryError):
                    pass
                except OSError:
                    break  # not empty, or not ours to remove
                self._known.discard(folder)
                folder = folder.rpartition("/")[0]
            with suppress(FileNotFoundError):
                sync_folder(os.path.join(self._root, folder))

    def _make(self, folder: str) -> None:
        if len(self._known) > MAX_KNOWN_FOLDERS:
            self._known.clear()
        if "" not in self._known:
            self._make_root()
        parts = folder.split("/") if folder else []
        for count in range(1, len(parts) + 1):
            part = "/".join(parts[:count])
            if part not in self._known:
                path = os.path.join(self._root, part)
                with suppress(FileExistsError):
                    os.mkdir(path)
                sync_folder(os.path.dirname(path))
                self._known.add(part)

    def _make_root(self) -> None:
        """Make the root and what is missing above it. Above what was there, folders may be closed to us: let be."""
        names = self._root.strip("/").split("/")
        for count in range(1, len(names) + 1):
            path = "/" + "/".join(names[:count])
            if os.path.isdir(path):
                with suppress(OSError):
                    sync_folder(os.path.dirname(path))
            else:
                with suppress(FileExistsError):
                    os.mkdir(path)
                sync_folder(os.path.dirname(path))
        self._known.add("")
