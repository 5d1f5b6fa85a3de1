"""Which class of file system serves a scheme, and how it is kept from hiding that a request failed.

| scheme | class | what is changed |
|---|---|---|
| gs, gcs | gcsfs 2026.10: its core class | one attempt for each request; no request for the bucket's kind (below) |
| az, abfs | adlfs 2026.8 | one attempt for each request |
| sftp, ssh | fsspec's own (paramiko), or the one of the package ``sshfs`` (asyncssh), by the options | nothing |

Retries are litelog's own: an SDK that tries again by itself for minutes hides an outage from the log, and delays the
error of a command. gcsfs's larger class asks another host, storage.googleapis.com, for the kind of a bucket
before its first request, and waits for a minute where that cannot be reached; it is for zonal buckets, and is taken
where GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT asks for it.
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
"""As the S3 client waits: for a connection, and for an answer, or more of it."""

LARGER_GCSFS = "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"

_NOT_PARAMIKOS = frozenset({"host", "temppath", "host_key_policy"})
"""Options of fsspec's sftp that are not passed on to paramiko."""

_NOT_ASYNCSSHS = frozenset({"host", "timeout", "max_sessions", "pool_type", "sftp_client_kwargs"})
"""Options of the package sshfs that are not passed on to asyncssh."""

_RETRIES = ("total_retries", "connect_retries", "read_retries", "status_retries")


def find_kind(scheme: str, arguments: Mapping[str, object]) -> Any:
    """The class for a scheme, and for what it is made with. ImportError where a package is missing; ConfigError for
    arguments that it does not take, where that shows before it connects."""
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
    """The arguments that it takes unless an option says otherwise: how long it waits."""
    names = protocols_of(kind)
    if names & {"gs", "gcs"}:
        wait = import_module("aiohttp").ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS)
        return {"requests_timeout": wait}
    if names & {"az", "abfs"}:
        return {"connection_timeout": CONNECT_SECONDS, "read_timeout": READ_SECONDS}
    return {}


def end_retries(file_system: Any) -> None:
    """Have a file system that was made try nothing again by itself, where that is set on what it holds."""
    with suppress(AttributeError):  # Azure's client keeps it there, and has no other name for it
        policy = file_system.service_client._config.retry_policy  # noqa: SLF001
        for name in _RETRIES:
            if hasattr(policy, name):
                setattr(policy, name, 0)


def _single_attempts(kind: Any) -> Any:
    """A class as ``kind``, of gcsfs, whose requests are attempted once: its decorator keeps what it decorates."""
    core = getattr(import_module("gcsfs.core"), "GCSFileSystem", kind)
    kind = kind if LARGER_GCSFS in os.environ else core
    once = getattr(kind._request, "__wrapped__", None)  # noqa: SLF001
    return kind if once is None else type(kind.__name__, (kind,), {"_request": once})


def _find_sftp(scheme: str, registered: Any, arguments: Mapping[str, object]) -> Any:
    """The first class of that name that takes the arguments."""
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
    """Why the class does not take the arguments; empty where it does."""
    try:
        inspect.signature(kind.__init__).bind(None, **arguments)
    except TypeError as error:
        return str(error)
    return ""


def _misfit_of_library(kind: Any, arguments: Mapping[str, object]) -> str:
    """Why what a class of sftp passes its arguments on to does not take them; empty where it does."""
    if kind.__module__.startswith("fsspec."):
        connect, own = import_module("paramiko").SSHClient.connect, _NOT_PARAMIKOS
        takes = "paramiko's are username, password, key-filename, passphrase, ..."
    else:
        connect, own = import_module("asyncssh").SSHClientConnectionOptions.prepare, _NOT_ASYNCSSHS
        takes = "asyncssh's are username, password, client-keys, known-hosts, passphrase, ..."
    unknown = sorted(arguments.keys() - own - inspect.signature(connect).parameters.keys())
    return f"has no option {', '.join(name.replace('_', '-') for name in unknown)} ({takes})" if unknown else ""
