"""The class of file system for each scheme, and how to keep it from hiding failed requests.

| scheme | class | what is changed |
|---|---|---|
| gs, gcs | gcsfs 2026.10: its core class | one attempt for each request; no request for the kind of bucket (below) |
| az, abfs | adlfs 2026.8 | one attempt for each request |
| sftp, ssh | fsspec's own (paramiko), or the package ``sshfs`` (asyncssh), depending on the options | nothing |

litelog retries by itself. An SDK that retries for minutes hides an outage from the log, and delays a command's error.
gcsfs's larger class is for zonal buckets. Before its first request it asks another host, storage.googleapis.com, for
the kind of bucket, and waits for a minute if it cannot reach that host. It is used if
GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT asks for it.
"""

from __future__ import annotations

import inspect
import os
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fsspec.registry import get_filesystem_class

from litelog.errors import ConfigError
from replica_clients.fsspec.connections import protocols_of

if TYPE_CHECKING:
    from collections.abc import Mapping

CONNECT_SECONDS, READ_SECONDS = 10, 60
"""Timeouts in seconds, as in the S3 client: for a connection, and for an answer or its next part."""

LARGER_GCSFS = "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"

_NOT_PARAMIKOS = frozenset({"host", "temppath", "host_key_policy"})
"""Options of fsspec's sftp that are not passed on to paramiko."""

_NOT_ASYNCSSHS = frozenset({"host", "timeout", "max_sessions", "pool_type", "sftp_client_kwargs"})
"""Options of the package sshfs that are not passed on to asyncssh."""

_RETRIES = ("total_retries", "connect_retries", "read_retries", "status_retries")


def find_kind(scheme: str, arguments: Mapping[str, object]) -> Any:
    """The class for a scheme and its arguments.

    Raises ImportError if a package is missing, and ConfigError for arguments that the class does not accept, if that
    can be detected before connecting.
    """
    kind = get_filesystem_class(scheme)
    names = protocols_of(kind)
    if names & {"sftp", "ssh"}:
        return _find_sftp(scheme, kind, arguments)
    if names & {"gs", "gcs"}:
        kind = _single_attempts(kind)
    if reason := _misfit(kind, arguments):
        raise ConfigError(f"{scheme}://: {reason}")
    return kind


def defaults_of(kind: Any) -> dict[str, object]:
    """Default arguments of the class: its timeouts."""
    names = protocols_of(kind)
    if names & {"gs", "gcs"}:
        wait = import_module("aiohttp").ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS)
        return {"requests_timeout": wait}
    if names & {"az", "abfs"}:
        return {"connection_timeout": CONNECT_SECONDS, "read_timeout": READ_SECONDS}
    return {}


def end_retries(file_system: Any) -> None:
    """Switch off the retries of a file system that was created, where an attribute sets them."""
    with suppress(AttributeError):  # only a private attribute of Azure's client has it
        policy = file_system.service_client._config.retry_policy  # noqa: SLF001
        for name in _RETRIES:
            if hasattr(policy, name):
                setattr(policy, name, 0)


def _single_attempts(kind: Any) -> Any:
    """A class like gcsfs's ``kind`` that attempts each request once: the decorator exposes the undecorated method."""
    core = getattr(import_module("gcsfs.core"), "GCSFileSystem", kind)
    kind = kind if LARGER_GCSFS in os.environ else core
    once = getattr(kind._request, "__wrapped__", None)  # noqa: SLF001
    return kind if once is None else type(kind.__name__, (kind,), {"_request": once})


def _find_sftp(scheme: str, registered: Any, arguments: Mapping[str, object]) -> Any:
    """The first class registered for the scheme that accepts the arguments."""
    kinds = []
    with suppress(ImportError):
        kinds.append(import_module("fsspec.implementations.sftp").SFTPFileSystem)
    if registered not in kinds:
        kinds.append(registered)
    reasons = []
    for kind in kinds:
        reason = _misfit(kind, arguments) or _misfit_of_library(kind, arguments)
        if not reason:
            return kind
        reasons.append(f"{kind.__module__}.{kind.__name__} {reason}")
    raise ConfigError(f"{scheme}://: {'; '.join(reasons)}")


def _misfit(kind: Any, arguments: Mapping[str, object]) -> str:
    """Why the class does not accept the arguments; empty if it does."""
    try:
        inspect.signature(kind.__init__).bind(None, **arguments)
    except TypeError as error:
        return str(error)
    return ""


def _misfit_of_library(kind: Any, arguments: Mapping[str, object]) -> str:
    """Why the library that a class of sftp uses does not accept the arguments; empty if it does."""
    if kind.__module__.startswith("fsspec."):
        connect, own = import_module("paramiko").SSHClient.connect, _NOT_PARAMIKOS
        takes = "paramiko's are username, password, key-filename, passphrase, ..."
    else:
        connect, own = import_module("asyncssh").SSHClientConnectionOptions.prepare, _NOT_ASYNCSSHS
        takes = "asyncssh's are username, password, client-keys, known-hosts, passphrase, ..."
    unknown = sorted(arguments.keys() - own - inspect.signature(connect).parameters.keys())
    return f"has no option {', '.join(name.replace('_', '-') for name in unknown)} ({takes})" if unknown else ""
