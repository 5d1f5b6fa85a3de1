"""Records, next to the daemon's state, what truncation must know about the replicas of a log: the set of replicas, and
which log segments each one holds sealed and named by a durable snapshot. A replica is in the set from its first start
until it is forgotten. The set also holds the log's folder, and the log's id in all replicas if its files hold none.

<state folder>/<log>/replicas.json               the set, the folder and the id
<state folder>/<log>/<replica>/replicated.json   what that replica holds
A file that cannot be read counts as "nothing is replicated". A set that cannot be read is rebuilt before it is changed,
from all replicas that have a folder there. That includes forgotten replicas, because nothing records which they were.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
from contextlib import contextmanager, suppress
from dataclasses import astuple, replace
from typing import TYPE_CHECKING, Any, TypeGuard

from litelog.codec.decoding import build
from litelog.dataclass import dataclass
from litelog.errors import LogError
from litelog.events import fields as event_fields
from litelog.system.checked_files import read_checked, write_checked
from litelog.system.private_files import make_private, open_lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_logger = logging.getLogger(__name__)

STATE_FILE = "state.json"
"""A daemon's state of one replica, as ``litelog.shipping.state`` describes it."""

CONSUMERS_FOLDER = "consumers"
"""The folder, next to those of the replicas, with the positions of the log's consumers."""

_SET = "replicas.json"
_HELD = "replicated.json"
_LOG_ID = re.compile("[0-9a-f]{32}")


class PositionsError(LogError):
    """The record of a log's replicas cannot be written or read."""


@dataclass(frozen=True, slots=True)
class ReplicatedSegment:
    """A finished log segment that a replica holds."""

    file: str
    first: int | None
    """The first record's sequence."""
    length: int
    """Bytes."""
    crc: int
    """CRC-32C of all of them, the last commit included."""
    shipped: int
    """When its last bytes were shipped, in microseconds since 1970."""


def default_state_dir() -> str:
    """Return the folder where daemons keep their state by default: the system's for root, the user's own otherwise."""
    home = os.environ.get("XDG_STATE_HOME")
    if home and os.path.isabs(home):
        return os.path.join(home, "litelog")
    return "/var/lib/litelog" if os.geteuid() == 0 else os.path.expanduser("~/.local/state/litelog")


def log_state_folder(state_dir: str, log: str) -> str:
    """Return the state folder of a log's replicas. It has the log's name for people, and a digest of its path to be
    unique."""
    path = os.path.realpath(log)
    return os.path.join(state_dir, f"{os.path.basename(path)}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}")


@dataclass(frozen=True, slots=True)
class _Kept:
    """The contents of the file: the replicas' URLs by name, the log's id if it is agreed on, and its folder."""

    names: Mapping[str, str]
    log: str | None
    path: str | None = None


class ReplicaSet:
    """The replicas of one log. Each has the name of its folder in the log's state folder."""

    def __init__(self, folder: str) -> None:
        """``folder``: as ``log_state_folder`` returns it."""
        self._folder = folder

    @property
    def folder(self) -> str:
        """The log's state folder."""
        return self._folder

    def names(self) -> Mapping[str, str] | None:
        """Return the replicas in the set, each with its URL without credentials; None if the set cannot be read or does
        not exist."""
        kept = self._read()
        return None if kept is None else kept.names

    def log_path(self) -> str | None:
        """Return the log's folder; None if a state of an older litelog does not state it."""
        kept = self._read()
        return None if kept is None else kept.path

    def require_whole(self) -> None:
        """Raise PositionsError if the set exists but cannot be read."""
        if self.names() is None and self._is_there():
            raise PositionsError(
                f"{os.path.join(self._folder, _SET)}: cannot be read, so the replicas in it are not known; it "
                "is rebuilt, from all that have a folder next to it, when litelog replicate starts for the log"
            )

    def add(self, name: str, url: str, path: str | None = None) -> None:
        """Put a replica into the set, durably. ``path``: the log's folder. Raises PositionsError."""
        kept = self._read()
        if kept is not None and kept.names.get(name) == url and path in (None, kept.path):
            return
        with self._locked():
            kept = self._read_or_rebuild()
            self._save(replace(kept, names={**kept.names, name: url}, path=path or kept.path))

    def remove(self, name: str) -> None:
        """Remove a replica from the set, durably. Raises PositionsError."""
        with self._locked():
            kept = self._read_or_rebuild()
            self._save(replace(kept, names={other: url for other, url in kept.names.items() if other != name}))

    def agree_on_log_id(self, proposed: str) -> str:
        """Return the log's id, 32 hex digits: the one agreed on, or else ``proposed``, which is then saved durably."""
        with self._locked():
            kept = self._read_or_rebuild()
            if kept.log is None:
                self._save(replace(kept, log=proposed))
            return kept.log or proposed

    def held(self) -> list[Mapping[str, ReplicatedSegment]]:
        """Return what each replica of the set holds, keyed by file name; empty without a set."""
        return self.held_by(self.names() or ())

    def held_by(self, names: Iterable[str]) -> list[Mapping[str, ReplicatedSegment]]:
        """Return what each of the named replicas holds, by file name."""
        return [read_replicated(os.path.join(self._folder, name)) for name in names]

    def _read(self) -> _Kept | None:
        """Return what the file states; None if it cannot be read."""
        fields = _load(os.path.join(self._folder, _SET)) or {}
        names, log, path = (fields.get(name) for name in ("replicas", "log", "path"))
        if not isinstance(names, dict) or not all(map(_is_named, names.items())):
            return None
        return _Kept(names, log if _is_log_id(log) else None, path if isinstance(path, str) else None)

    def _read_or_rebuild(self) -> _Kept:
        """As ``_read``; if the set cannot be read, rebuild it from the replicas' folders. Truncation waits for each
        replica in the set: with one too many it keeps log segments, with one too few it may lose them. A replica whose
        URL is not known gets its folder's name instead."""
        kept = self._read()
        if kept is not None:
            return kept
        names = {name: name for name in self._replica_folders()}
        logs = [(_load(os.path.join(self._folder, name, STATE_FILE)) or {}).get("log") for name in names]
        known = {log for log in logs if _is_log_id(log)}
        log = known.pop() if len(known) == 1 else None
        if self._is_there():
            _logger.warning(
                "%s: cannot be read, and is rebuilt: truncation waits for all replicas with a folder next to it, until "
                "they are forgotten: %s",
                os.path.join(self._folder, _SET),
                ", ".join(names) or "none",
                extra=event_fields("not-truncated"),
            )
        return _Kept(names, log)

    def _is_there(self) -> bool:
        return os.path.lexists(os.path.join(self._folder, _SET))

    def _replica_folders(self) -> list[str]:
        try:
            with os.scandir(self._folder) as entries:
                folders = (entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
                return sorted(name for name in folders if name != CONSUMERS_FOLDER)
        except OSError as error:
            raise PositionsError(f"{self._folder}: cannot be listed: {error.strerror}") from error

    def _save(self, kept: _Kept) -> None:
        path = {} if kept.path is None else {"path": kept.path}  # an older litelog did not keep it
        _save(self._folder, _SET, {"replicas": kept.names, "log": kept.log, **path})

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            make_private(self._folder)
            descriptor = open_lock(os.path.join(self._folder, ".lock"))
        except OSError as error:
            raise PositionsError(f"{self._folder}: cannot keep state here: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # brief: it is held while one small file is written
            yield
        finally:
            os.close(descriptor)


def save_replicated(folder: str, generation: str, segments: Iterable[ReplicatedSegment]) -> None:
    """Record, durably, that a replica's ``generation`` holds ``segments``; ``folder`` is the replica's state folder."""
    _save(folder, _HELD, {"generation": generation, "segments": [astuple(segment) for segment in segments]})


def read_generation(folder: str) -> str | None:
    """Return the generation that ``save_replicated`` recorded last; None if it is not known."""
    path = os.path.join(folder, _HELD)
    try:
        generation = read_checked(path).get("generation")
    except FileNotFoundError:
        return None
    except _UNREADABLE as error:
        message = "%s: cannot be used: %s; it is treated as lost: nothing counts as replicated until the next snapshot"
        _logger.warning(message, path, error, extra=event_fields("state-lost", path=path))
        return None
    return generation if isinstance(generation, str) else None


def read_replicated(folder: str) -> Mapping[str, ReplicatedSegment]:
    """Return what a replica holds, by file name; empty if it is not known."""
    fields = _load(os.path.join(folder, _HELD)) or {}
    with suppress(ValueError, TypeError):
        names = ReplicatedSegment.__slots__
        segments = [
            build(ReplicatedSegment, dict(zip(names, each, strict=True))) for each in fields.get("segments", ())
        ]
        return {segment.file: segment for segment in segments}
    return {}


_UNREADABLE = (OSError, ValueError)


def _load(path: str) -> dict[str, Any] | None:
    with suppress(*_UNREADABLE):
        return read_checked(path)
    return None


def _is_named(replica: tuple[str, object]) -> bool:
    """Whether a replica of the set has a valid folder name and a URL."""
    name, url = replica
    return isinstance(url, str) and name not in ("", ".", "..") and not {"/", "\0"}.intersection(name)


def _is_log_id(log: object) -> TypeGuard[str]:
    return isinstance(log, str) and _LOG_ID.fullmatch(log) is not None


def _save(folder: str, name: str, fields: dict[str, Any]) -> None:
    try:
        write_checked(os.path.join(folder, name), fields)
    except OSError as error:
        raise PositionsError(f"{folder}: cannot record what is replicated: {error.strerror}") from error
