"""How a key is written once, by file system: who refuses a second writer, and who shows nothing before it is whole.

Read from the sources of the versions named. What is not in the list may overwrite: it looks, then writes; a replica
there needs ``fencing: isolated``. (In GCS's zonal buckets gcsfs creates without the condition. A claim's second put
finds that out, as it does behind any server that ignores one.)

| file systems | how | a second writer is refused by |
|---|---|---|
| s3fs 2026.9 | ``pipe_file(mode="create")`` | S3: ``If-None-Match: *``, for uploads in parts too |
| gcsfs 2026.10 | ``pipe_file(mode="create")`` | GCS: ``ifGenerationMatch=0`` |
| adlfs 2026.8 | ``pipe_file(overwrite=False)``, which older ones have, too | Azure: ``If-None-Match: *`` |
| memory | one call of dict.setdefault | the interpreter, in this process |
| local | a hard link of a file that is whole and synced | the kernel |
| sftp, smb, hdfs | a temporary file beside it, renamed | nobody |
| others | ``pipe_file`` | nobody |
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from fsspec.implementations.memory import MemoryFile

from litelog.system.files import sync_folder

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER_ATTEMPTS = 5
"""Another thread may be faster once for each folder that a key of the layout lies in, and for the replica's own."""

TEMPORARY = ".litelog-"
"""What the names of temporary files start with. Listings skip them; a crash may leave one."""

_BY_MODE = frozenset({"s3", "s3a", "gs", "gcs"})
_BY_FLAG = frozenset({"abfs", "az", "abfss"})
_RENAMING = frozenset({"sftp", "ssh", "smb", "hdfs", "arrow_hdfs"})


_REFUSALS = ("PreconditionFailed", "412")


class Creation(Protocol):
    """Writes a whole file."""

    fences: bool
    """Whether of two writers of one path exactly one succeeds."""
    makes_folders: bool
    """Whether it makes the folders above a path, and so a root that is missing."""

    def write(self, file_system: Any, path: str, content: bytes, create_only: bool) -> None:
        """Make or (not ``create_only``) replace the file. FileExistsError, and whatever the file system raises."""


def choose_creation(protocols: frozenset[str]) -> Creation:
    """How a file system with these names creates files."""
    if protocols & _BY_MODE:
        return _Refused({"mode": "create"})
    if protocols & _BY_FLAG:
        return _Refused({"overwrite": False})
    if "memory" in protocols:
        return _InMemory()
    if protocols & {"file", "local"}:
        return _Linked()
    return _Looked(_rename_into if protocols & _RENAMING else _pipe)


class _Refused:
    """The server refuses a second writer."""

    fences = True
    makes_folders = False

    def __init__(self, arguments: dict[str, object]) -> None:
        self._arguments = arguments

    def write(self, file_system: Any, path: str, content: bytes, create_only: bool) -> None:
        overwriting = {"overwrite": True} if "overwrite" in self._arguments else {}
        try:
            file_system.pipe_file(path, content, **(self._arguments if create_only else overwriting))
        except OSError as error:
            answer = getattr(error.__cause__, "response", None) or {}
            if create_only and answer.get("Error", {}).get("Code") in _REFUSALS:
                raise FileExistsError(path) from error  # s3fs tells only where the store names the condition
            raise


class _InMemory:
    """fsspec's own ``mode="create"`` looks first, in memory too."""

    fences = True
    makes_folders = False

    def write(self, file_system: Any, path: str, content: bytes, create_only: bool) -> None:
        if not create_only:
            file_system.pipe_file(path, content)
            return
        file = MemoryFile(file_system, path, content)
        if file_system.store.setdefault(path, file) is not file:
            raise FileExistsError(path)


class _Linked:
    """A finished, synced temporary file is linked to its name, or renamed to it."""

    fences = True
    makes_folders = True

    def write(self, file_system: Any, path: str, content: bytes, create_only: bool) -> None:
        folder = os.path.dirname(path)
        file_system.makedirs(folder, exist_ok=True)
        temporary = _temporary(path)
        try:
            with open(temporary, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if create_only:
                os.link(temporary, path)
            else:
                os.replace(temporary, path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
        sync_folder(folder)


class _Looked:
    """Nobody refuses a second writer, so it is only looked for."""

    fences = False

    def __init__(self, store: Callable[[Any, str, bytes], None]) -> None:
        self._store = store
        self.makes_folders = store is _rename_into

    def write(self, file_system: Any, path: str, content: bytes, create_only: bool) -> None:
        if create_only and file_system.exists(path):
            raise FileExistsError(path)
        self._store(file_system, path, content)


def _pipe(file_system: Any, path: str, content: bytes) -> None:
    file_system.pipe_file(path, content)


def _rename_into(file_system: Any, path: str, content: bytes) -> None:
    """Show nothing before it is whole: on these, a file that is being written is there for all to see."""
    _make_folders(file_system, path.rpartition("/")[0])
    temporary = _temporary(path)
    try:
        file_system.pipe_file(temporary, content)
        file_system.mv(temporary, path)
    except BaseException:
        with suppress(Exception):
            file_system.rm_file(temporary)
        raise


def _make_folders(file_system: Any, folder: str) -> None:
    """Make a folder, and those above it. Some file systems look and then make, and fail where another thread was
    faster: then it is looked for again, and what is below is made."""
    for attempt in range(FOLDER_ATTEMPTS):
        try:
            file_system.makedirs(folder, exist_ok=True)
        except PermissionError:
            raise
        except OSError:
            if file_system.isdir(folder):
                return
            if attempt == FOLDER_ATTEMPTS - 1:
                raise
        else:
            return


def _temporary(path: str) -> str:
    folder, _, _ = path.rpartition("/")
    return f"{folder}/{TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}.tmp"
