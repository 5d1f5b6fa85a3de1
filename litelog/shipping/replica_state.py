"""What a daemon keeps of one log and replica between runs: identity, claim, position. And the lock on it."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from litelog.checksum import crc32c
from litelog.clock import read_boot_id
from litelog.durability import sync_folder
from litelog.errors import LitelogError, LockedError
from litelog.log.identity import ShippedEnd
from litelog.log.place import Place

if TYPE_CHECKING:
    from types import TracebackType

VERSION = 1


class StateError(LitelogError):
    """The state folder cannot be used."""


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """One owner's memory. It may be older than the replica: what it lags behind is adopted from there."""

    owner: str
    """Random, hex: who writes."""
    log: str
    """The log's id, 32 hex digits; empty while unknown."""
    claim: str | None = None
    """The claim as it was or is to be put, byte for byte."""
    closed: bool = False
    """Everything below is closed, and the generation's first snapshot is there."""
    digest: str = ""
    """SHA-256 of the generation's last object."""
    last: str | None = None
    """The last WAL segment's position; None where the snapshot is the last object."""
    shipped: int = 0
    """When it was shipped, microseconds since 1970."""
    folder_inode: int = 0
    """Which folder the log was in: one that was restored or replaced is another."""
    promised: ShippedEnd | None = None
    """In a generation that continues another, until it has come that far: where that one ended."""
    place: Place = Place(0, "")  # noqa: RUF009 - frozen
    """Where the log is read on."""
    base: int = 0
    """The index that the log's first log segment had at the claim."""
    archive: str | None = None
    """What is sealed and what is not (``archive_state``), as text; None while nothing is known."""


class StateFolder:
    """The folder of one log and replica, locked for this process while it is open."""

    def __init__(self, path: str, what: str) -> None:
        self._path = self.path = path
        self.boot = read_boot_id()
        """Which run of the machine's steady clock it is, whose times may be kept here."""
        try:
            os.makedirs(path, mode=0o700, exist_ok=True)
            self._lock = os.open(os.path.join(path, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StateError(
                f"{path}: cannot keep state here ({error.strerror}); choose another --state-dir"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise LockedError(os.path.join(path, "lock"), what) from None

    def load(self) -> ReplicaState | None:
        """What was saved last; None if there is nothing, or nothing that can be read: then a new claim is due."""
        return read_state(self._path)

    def save(self, state: ReplicaState) -> None:
        """Keep ``state``: durable, and whole whatever happens meanwhile."""
        temporary = os.path.join(self._path, ".state.json.tmp")
        try:
            with open(temporary, "w", encoding="utf-8") as file:
                fields = _fields_of(state)
                text = _text(fields)
                file.write(f'{{"version": {VERSION}, "checksum": {crc32c(text.encode())}, {text[1:]}')
                file.flush()
                os.fdatasync(file.fileno())
            os.rename(temporary, os.path.join(self._path, "state.json"))
            sync_folder(self._path)
        except FileNotFoundError as error:
            said = "is gone, with the state in it: stop the daemon, and start it once with --takeover"
            raise StateError(f"{self._path}: {said}") from error
        except OSError as error:
            raise StateError(f"{self._path}: cannot save state: {error.strerror}") from error

    def close(self) -> None:
        """Release the lock. Idempotent."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> StateFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_state(path: str) -> ReplicaState | None:
    """What was saved last in a state folder, which its owner may have open; None as ``StateFolder.load``."""
    try:
        with open(os.path.join(path, "state.json"), encoding="utf-8") as file:
            fields: dict[str, Any] = json.load(file)
        if fields.pop("version") != VERSION or fields.pop("checksum") != _checksum(fields):
            return None
        promised = fields["promised"]
        fields["promised"] = ShippedEnd(**promised) if promised is not None else None
        return ReplicaState(**{**fields, "place": Place(**fields["place"])})
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _fields_of(state: ReplicaState) -> dict[str, Any]:
    """All fields, without a copy of what they hold: it is written at once, once a second."""
    promised = None if state.promised is None else asdict(state.promised)
    place = {name: getattr(state.place, name) for name in Place.__slots__}
    return {**{name: getattr(state, name) for name in ReplicaState.__slots__}, "place": place, "promised": promised}


def _checksum(fields: dict[str, Any]) -> int:
    """A flipped digit is another position or owner, and may look well: such a file is as good as lost."""
    return crc32c(_text(fields).encode())


def _text(fields: dict[str, Any]) -> str:
    return json.dumps(fields, sort_keys=True)
