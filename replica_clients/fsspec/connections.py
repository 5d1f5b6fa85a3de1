"""The file systems used by an fsspec store: created when first needed, and again after a failure.

Some classes serve all threads with one instance, and recover from a broken connection by themselves. With the others
(sftp, smb, ftp, ...) each thread has its own instance with one connection, which stays broken once it breaks. The store
then drops the instance, and the thread's next request creates another.

This module also checks whether a replica's bucket exists. A store with buckets has no folders, so an empty bucket and
a missing one list alike: a wrong name would look like an empty replica.

| file systems | a missing bucket | a request that may be forbidden although listing is allowed |
|---|---|---|
| s3fs 2026.9 | ``info`` and ``ls`` raise FileNotFoundError | both, if permissions cover only a prefix |
| gcsfs 2026.10 | the same | ``info``, which then also reports an empty bucket as missing |
| adlfs 2026.8 | the same; a put raises an error of Azure | ``info``, with a container's signature; ``ls`` if empty |
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_SHARED = frozenset({"memory", "file", "local"})
"""File systems that are not asynchronous inside, but still serve several threads with one instance."""

_ONE_CONNECTION = frozenset({"sftp", "ssh"})
"""The package sshfs is asynchronous inside, but does not reconnect after its connection breaks."""

_MISCONFIGURED = (TypeError, ValueError, ImportError)
_REFUSED = ("Auth", "HostKey", "Logon", "error_perm")
"""Parts of the names of drivers' errors which mean that the server refuses this user."""

_CONNECTIONS = ("client", "ftp", "session")
"""Attributes in which file systems keep their connections."""

MAX_CAUSES = 10
"""The most causes to follow: a chain of errors may be circular."""


class Connections:
    """The file systems of one store. ``connect`` creates one; callers get its errors."""

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
        """Drop all references; fsspec then closes its connections."""
        self._of_thread = threading.local()


def protocols_of(kind: Any) -> frozenset[str]:
    """The protocol names of a kind of file system."""
    protocol = kind.protocol
    return frozenset((protocol,) if isinstance(protocol, str) else protocol)


def is_shared(kind: Any) -> bool:
    """Whether one instance serves all threads."""
    names = protocols_of(kind)
    return (bool(kind.async_impl) and not names & _ONE_CONNECTION) or bool(_SHARED & names)


def is_misconfigured(error: BaseException) -> bool:
    """Whether creating a file system failed because of its arguments, not because of the server."""
    return isinstance(error, _MISCONFIGURED) and not any(isinstance(cause, OSError) for cause in _causes(error))


def is_refusal(error: BaseException) -> bool:
    """Whether a server answered, but refuses this user."""
    names = [kind.__name__ for cause in (error, *_causes(error)) for kind in type(cause).__mro__]
    return any(word in name for name in names for word in _REFUSED)


def _causes(error: BaseException) -> list[BaseException]:
    """The chain of errors that caused it. smbprotocol, for example, turns network errors into ValueErrors."""
    found: list[BaseException] = []
    cause = error.__cause__ or error.__context__
    while cause is not None and len(found) < MAX_CAUSES:
        found.append(cause)
        cause = cause.__cause__ or cause.__context__
    return found


def _close(file_system: Any) -> None:
    """Close its connection, if possible: servers count idle connections, too."""
    for name in _CONNECTIONS:
        with suppress(Exception):  # usually it is broken
            getattr(file_system, name).close()


_BUCKETS = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "az", "abfss"})
_UNKNOWABLE = (PermissionError, ValueError)
"""Errors raised when a bucket may not be listed as a whole; the latter is adlfs's."""


def bucket_in(kind: Any, root: str) -> str:
    """The bucket (Azure: container) of a root; empty for a kind of file system without buckets."""
    return root.lstrip("/").partition("/")[0] if _BUCKETS & protocols_of(kind) else ""


def is_missing(file_system: Any, bucket: str) -> bool:
    """Whether the bucket is known not to exist. Raises the file system's errors."""
    with suppress(Exception):  # may be forbidden, unlike all other requests of litelog: then the listing decides
        file_system.info(bucket)
        return False
    try:
        file_system.ls(bucket, detail=True)
    except FileNotFoundError:
        return True
    except _UNKNOWABLE:
        return False
    return False


def may_lack_a_bucket(error: BaseException) -> bool:
    """Whether a missing bucket may be the reason for a put's error. Azure has its own class for that."""
    return isinstance(error, FileNotFoundError) or type(error).__name__ == "ResourceNotFoundError"
