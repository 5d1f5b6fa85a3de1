"""How each file system creates a key only once: which of them refuse a second writer, and which hide partial objects.

The table comes from the sources of the named versions. File systems that are not listed may overwrite: they look first,
and then write. A replica there needs ``fencing: isolated``. (In GCS's zonal buckets gcsfs omits the condition. The
second put of a claim detects that, as it does with any server that ignores a condition.)

| file systems | how | who refuses a second writer |
|---|---|---|
| s3fs 2026.9 | ``pipe_file(mode="create")`` | S3: ``If-None-Match: *``, for uploads in parts too |
| gcsfs 2026.10 | ``pipe_file(mode="create")`` | GCS: ``ifGenerationMatch=0`` |
| adlfs 2026.8 | ``pipe_file(overwrite=False)``, which older versions also have | Azure: ``If-None-Match: *`` |
| memory | one call of dict.setdefault | the interpreter, in this process |
| local | a hard link of a file that is whole and synced | the kernel |
| sftp, smb, hdfs | a temporary file next to it, renamed | no one |
| others | ``pipe_file`` | no one |
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
"""How often a folder is created if other threads are faster: once for each folder of a key, and for the replica's."""

TEMPORARY = ".litelog-"
"""Prefix of temporary files' names. Listings skip these files; a crash may leave one."""

_BY_MODE = frozenset({"s3", "s3a", "gs", "gcs"})
_BY_FLAG = frozenset({"abfs", "az", "abfss"})
_RENAMING = frozenset({"sftp", "ssh", "smb", "hdfs", "arrow_hdfs"})


_REFUSALS = ("PreconditionFailed", "412")


class Creation(Protocol):
    """Creates a whole file."""

    enforces_create_only: bool
    """Whether exactly one of two writers of a path succeeds."""
    makes_folders: bool
    """Whether it creates missing folders above a path, including the root."""

    def write(self, file_system: Any, path: str, content: bytes, create_only: bool) -> None:
        """Create the file, or replace it if ``create_only`` is false.

        Raises FileExistsError, and the file system's errors.
        """


def choose_creation(protocols: frozenset[str]) -> Creation:
    """Choose the way in which a file system with these protocol names creates files."""
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

    enforces_create_only = True
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
                raise FileExistsError(path) from error  # s3fs raises it only if the store names the condition
            raise


class _InMemory:
    """For memory, where fsspec's own ``mode="create"`` only looks first, too."""

    enforces_create_only = True
    makes_folders = False

    def write(self, file_system: Any, path: str, content: bytes, create_only: bool) -> None:
        if not create_only:
            file_system.pipe_file(path, content)
            return
        file = MemoryFile(file_system, path, content)
        if file_system.store.setdefault(path, file) is not file:
            raise FileExistsError(path)


class _Linked:
    """A complete, synced temporary file is linked to its name, or renamed to it."""

    enforces_create_only = True
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
    """The file system does not refuse a second writer, so this only looks for an existing file."""

    enforces_create_only = False

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
    """Write a temporary file and rename it: on these file systems, a file is visible while it is written."""
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
    """Create a folder, and those above it.

    Some file systems look before they create, and fail if another thread was faster. This then looks again, and
    continues with the folders below.
    """
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
