"""The file systems behind an fsspec store: made when they are first needed, and again after a failure.

Some serve all threads with one instance, and get over a broken connection by themselves. Of the others (sftp, smb, ftp,
...) each thread has its own, whose one connection is made with it and stays broken once it breaks: it is dropped then,
and the thread's next request makes another.

Whether a replica's bucket exists. Where there are buckets there are no folders, and so one that holds nothing and
one that is not there list alike: a wrong name would pass for an empty replica.

| file systems | one that is missing | one request may be forbidden where listings are not |
|---|---|---|
| s3fs 2026.9 | ``info`` and ``ls`` raise FileNotFoundError | both, where rights end at a prefix |
| gcsfs 2026.10 | the same | ``info``, and then it says so of one that is empty, too |
| adlfs 2026.8 | the same; a put raises Azure's own | ``info``, with a container's signature; ``ls`` of an empty one |
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_SHARED = frozenset({"memory", "file", "local"})
"""File systems that are not asynchronous inside and still serve several threads with one instance."""

_ONE_CONNECTION = frozenset({"sftp", "ssh"})
"""The package sshfs is asynchronous inside, and does not connect again after its connection broke."""

_MISCONFIGURED = (TypeError, ValueError, ImportError)
_REFUSED = ("Auth", "HostKey", "Logon", "error_perm")
"""What is in the names of drivers' errors that say that a server will not have this user."""

_CONNECTIONS = ("client", "ftp", "session")
"""Where file systems keep what they hold open."""

MAX_CAUSES = 10
"""Errors behind an error: a chain may lead back to its beginning."""


class Connections:
    """The file systems of one store. ``connect`` makes one; what it raises is passed on."""

    def __init__(self, connect: Callable[[], Any], *, shared: bool) -> None:
        self._connect = connect
        self.shared = shared
        self._of_all: Any = None
        self._making = threading.Lock()
        self._of_thread = threading.local()

    def get(self) -> Any:
        """The calling thread's file system."""
        if self.shared:
            with self._making:
                if self._of_all is None:
                    self._of_all = self._connect()
                return self._of_all
        found = getattr(self._of_thread, "file_system", None)
        if found is None:
            found = self._of_thread.file_system = self._connect()
        return found

    def drop(self) -> None:
        """Forget the calling thread's file system after a failure: its connection may be broken."""
        found = getattr(self._of_thread, "file_system", None)
        if found is not None:
            self._of_thread.file_system = None
            _close(found)

    def close(self) -> None:
        """fsspec closes what it holds when nobody refers to it."""
        self._of_thread = threading.local()


def protocols_of(kind: Any) -> frozenset[str]:
    """The names of a kind of file system."""
    protocol = kind.protocol
    return frozenset((protocol,) if isinstance(protocol, str) else protocol)


def is_shared(kind: Any) -> bool:
    """Whether one instance serves all threads."""
    names = protocols_of(kind)
    return (bool(kind.async_impl) and not names & _ONE_CONNECTION) or bool(_SHARED & names)


def is_misconfigured(error: BaseException) -> bool:
    """Whether making a file system failed for what it was given, and not for what is at the other end."""
    return isinstance(error, _MISCONFIGURED) and not any(isinstance(cause, OSError) for cause in _causes(error))


def is_refusal(error: BaseException) -> bool:
    """Whether a server was reached that will not have this user."""
    names = [kind.__name__ for cause in (error, *_causes(error)) for kind in type(cause).__mro__]
    return any(word in name for name in names for word in _REFUSED)


def _causes(error: BaseException) -> list[BaseException]:
    """The errors that led to it; smbprotocol, for one, makes ValueErrors of those of the network."""
    found: list[BaseException] = []
    behind = error.__cause__ or error.__context__
    while behind is not None and len(found) < MAX_CAUSES:
        found.append(behind)
        behind = behind.__cause__ or behind.__context__
    return found


def _close(file_system: Any) -> None:
    """End its connection where that can be done: a server counts those that nobody uses, too."""
    for name in _CONNECTIONS:
        with suppress(Exception):  # it is broken, as a rule
            getattr(file_system, name).close()


_BUCKETS = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "az", "abfss"})
_NOBODY_KNOWS = (PermissionError, ValueError)
"""What a listing of a whole bucket raises that may not be listed; the latter is adlfs's."""


def bucket_in(kind: Any, root: str) -> str:
    """The bucket (Azure: container) that a root is in; empty for a kind of file system that has none."""
    return root.lstrip("/").partition("/")[0] if _BUCKETS & protocols_of(kind) else ""


def is_missing(file_system: Any, bucket: str) -> bool:
    """Whether it is known that there is no such bucket. Raises what the file system does."""
    with suppress(Exception):  # it needs a right that nothing else here does; the listing below tells
        file_system.info(bucket)
        return False
    try:
        file_system.ls(bucket, detail=True)
    except FileNotFoundError:
        return True
    except _NOBODY_KNOWS:
        return False
    return False


def may_lack_a_bucket(error: BaseException) -> bool:
    """Whether a put fails so where there is no bucket; azure has a class of its own."""
    return isinstance(error, FileNotFoundError) or type(error).__name__ == "ResourceNotFoundError"
