"""Finds the state that a log's daemon keeps of a replica on this machine, under any spelling of the replica's URL."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

if TYPE_CHECKING:
    from litelog.verify.findings import Acknowledged

_SAME_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "az", "abfss": "az", "ssh": "sftp"}
_PORTS = {"http": 80, "https": 443}
_AMAZON = ".amazonaws.com"


def require_readable(state_dir: str, log: str | None = None) -> None:
    """Raise StateError if the daemon's state, of all logs or of ``log``, cannot be read.

    Without this check, an unreadable state would look like no state. A missing state is not an error.
    """
    from litelog.log.replica_registry import log_state_folder
    from litelog.shipping.state import StateError

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            rights = isinstance(error, PermissionError)
            advice = "run this as the daemon's own user" if rights else "is it the daemon's --state-dir?"
            raise StateError(f"{error.filename}: cannot be read ({error.strerror}); {advice}") from error

    for _ in os.walk(state_dir if log is None else log_state_folder(state_dir, log), onerror=refuse):
        pass


def find_acknowledged(state_dir: str, log: str, url: str, place: str) -> Acknowledged | None:
    """Find the last WAL segment that the replica acknowledged to the daemon of ``log``; None without a state here.

    ``url``: the replica's URL as given here. ``place``: the URL of its client, which also finds a daemon that spelled
    the URL differently. If several daemons wrote there, returns the state that is furthest ahead. Raises StateError.
    """
    from litelog.log.replica_registry import ReplicaSet, log_state_folder
    from litelog.replicator.wiring import state_folder_of
    from litelog.shipping.state import Running, read_state
    from litelog.verify.findings import Acknowledged

    require_readable(state_dir, log)
    folder, mine = log_state_folder(state_dir, log), normal_place(place)
    folders = {state_folder_of(state_dir, log, url, place)}
    for name, other in (ReplicaSet(folder).names() or {}).items():
        if mine is not None and normal_place(other) == mine:
            folders.add(os.path.join(folder, name))
    states = map(read_state, sorted(folders))
    known = [
        Acknowledged(state.last, state.digest)
        for state in states
        if isinstance(state, Running) and state.last is not None
    ]
    return max(known, key=lambda acknowledged: acknowledged.position, default=None)


def normal_place(url: str) -> tuple[str, ...] | None:
    """A client's URL in a form that is equal for the same place; None if masked parts may identify the place."""
    from litelog.stores.registry import MASK, local_folder, scheme_of

    if MASK in url:
        return None
    folder = local_folder(url)
    if folder is not None:
        return ("file", os.path.realpath(folder))
    try:
        parts, scheme = urlsplit(url), scheme_of(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        endpoint = _normal_endpoint(options.pop("endpoint", ""))
    except ValueError:
        return None
    path = "/".join(part for part in unquote(parts.path).split("/") if part)
    rest = [f"{name}={value}" for name, value in sorted(options.items())]
    return (_SAME_SCHEMES.get(scheme, scheme), parts.netloc, path, endpoint, *rest)


def _normal_endpoint(endpoint: str) -> str:
    """An S3 endpoint; empty for Amazon's own, where a bucket's name means one bucket in all regions."""
    parts = urlsplit(endpoint)
    host = (parts.hostname or "").removesuffix(".")
    if not host or (host.endswith(_AMAZON) and host.startswith(("s3.", "s3-"))):
        return ""
    port = parts.port or _PORTS.get(parts.scheme, 0)
    return f"{parts.scheme.lower()}://{host}:{port}{parts.path.rstrip('/')}"
