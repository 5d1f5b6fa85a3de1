"""The state that a daemon keeps of one log and replica between runs: identity, claim, position; and the lock on it.

Specified in litelog/shipping/README.md#lost-state.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from litelog.codec.checksum import crc32c
from litelog.codec.typed_fields import build
from litelog.errors import LitelogError, ReplicaLockedError
from litelog.events import fields as event_fields
from litelog.log.identity import ShippedEnd  # noqa: TC001 - ``build`` looks for it
from litelog.log.replica_registry import STATE_FILE as FILE
from litelog.log.replica_registry import read_checked
from litelog.log.source_position import CHECKED_BYTES, SourcePosition
from litelog.objects import claim as claims
from litelog.objects.position import Position
from litelog.shipping.tally import IndexTally  # noqa: TC001 - ``build`` looks for it
from litelog.system.clock import read_boot_id
from litelog.system.private_files import make_private, open_lock, write_private

if TYPE_CHECKING:
    from types import TracebackType

VERSION = 1

_logger = logging.getLogger(__name__)


class StateError(LitelogError):
    """The state folder cannot be used."""


class LostStateError(StateError):
    """A state file exists, but a daemon cannot have saved it like that."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        super().__init__(f"{path}: cannot be used: {reason}")


@dataclass(frozen=True, slots=True)
class OwnEnd:
    """The end of an owner's generation whose newest WAL segment cannot be read (``own_end``)."""

    slot: str
    """Its next slot, a position. The terminal is put there."""
    digest: str
    """SHA-256, hex, of the object before the slot."""
    shipped: int
    """When its last object was shipped, in microseconds since 1970."""
    sequence: int | None
    """The sequence that follows."""
    end: ShippedEnd | None
    """The end of the last acknowledged bytes; None if there are none."""


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """One owner's state. It may be older than the replica: the owner adopts what is missing from there."""

    owner: str
    """The owner's random id, hex."""
    log: str
    """The log's id, 32 hex digits; empty while unknown."""
    claim: str | None = None
    """The claim that was or will be put, byte for byte."""
    closed: bool = False
    """Whether all generations below are closed, and the generation's first snapshot exists."""
    digest: str = ""
    """SHA-256 of the generation's last object."""
    last: str | None = None
    """The last WAL segment's position; None if the snapshot is the last object."""
    shipped: int = 0
    """When it was shipped, in microseconds since 1970."""
    folder_inode: int = 0
    """The inode of the log's folder. A folder that was restored or replaced has another one."""
    oldest: str = ""
    """The log's oldest log segment when bytes were last shipped. An older one in the same folder came back since."""
    promised: ShippedEnd | None = None
    """In a generation that continues another, until it has come that far: where the other one ended."""
    place: SourcePosition = SourcePosition(0, "")  # noqa: RUF009 - frozen
    """The position at which reading of the log continues."""
    base: int = 0
    """The index that the log's first log segment had at the claim."""
    tried: str = ""
    """The fencing with which the store was tried before the claim; empty if it was not."""
    archive: str | None = None
    """What is sealed and what is not (``archive_state``), as text; None while it is not known."""
    epoch: int = 0
    """The newest epoch of which the replica is known to have a claim. Claims are never deleted."""
    tallies: tuple[IndexTally, ...] = ()
    """Counts of the WAL segments that were acknowledged since the newest snapshot."""
    ended: OwnEnd | None = None
    """While a generation begins: where the one before ended, if its newest WAL segment cannot be read."""
    salvaged: int | None = None
    """In a generation that diverged because the replica had lost something that the log does not hold: the index, in
    the predecessor, of the first log segment that is still whole there."""
    lost: str = ""
    """What the replica lost for good since this owner began."""

    def forgotten(self) -> ReplicaState:
        """Return the state of the same owner and log with nothing shipped: its replica may be empty."""
        return ReplicaState(self.owner, self.log)


class StateFolder:
    """The folder of one log and replica, locked for this process while it is open."""

    def __init__(self, path: str, what: str) -> None:
        self._path = self.path = path
        self.file = os.path.join(path, FILE)
        self.boot = read_boot_id()
        """The boot id of the machine's steady clock. Times of that clock may be kept here."""
        try:
            make_private(path)
            self._lock = open_lock(os.path.join(path, "lock"))
        except OSError as error:
            raise StateError(
                f"{path}: cannot keep state here ({error.strerror}); choose another --state-dir"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise ReplicaLockedError(os.path.join(path, "lock"), what) from None

    def load(self) -> ReplicaState | None:
        """Return the saved state. None if there is none, or it cannot be read: then a new claim is due."""
        try:
            return _read(self._path)
        except LostStateError as error:
            message = "%s; it is treated as lost: without it, this daemon needs --takeover once to write to the replica"
            _logger.warning(message, error, extra=event_fields("state-lost", path=error.path))
            return None

    def save(self, state: ReplicaState) -> None:
        """Save ``state``, durably and atomically. StateError."""
        text = _text(_fields_of(state))
        body = f'{{"version": {VERSION}, "checksum": {crc32c(text.encode())}, {text[1:]}'
        try:
            write_private(self.file, body.encode())
        except FileNotFoundError as error:
            message = "is gone, with the state in it: stop the daemon, and start it once with --takeover"
            raise StateError(f"{self._path}: {message}") from error
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
    """Return the state that was saved in a folder, which its owner may have open; None as ``StateFolder.load``."""
    try:
        return _read(path)
    except LostStateError:
        return None


def _read(folder: str) -> ReplicaState | None:
    """Return the state in a state folder; None if there is none. LostStateError."""
    path = os.path.join(folder, FILE)
    try:
        fields = read_checked(path)
        state = build(ReplicaState, fields)
        _check(state)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LostStateError(path, error.strerror or str(error)) from error
    except ValueError as error:
        raise LostStateError(path, str(error)) from error
    return state


def _check(state: ReplicaState) -> None:
    """Check that all values saved as text can be parsed, and that positions are possible. ValueError."""
    if state.claim is not None:
        claims.parse(state.claim)
    if state.last is not None:
        Position.parse(state.last)
    if state.ended is not None:
        Position.parse(state.ended.slot)
    place = state.place
    if min(place.index, state.base) < 0:
        raise ValueError("an index is negative")
    behind_end = place.behind_start if place.behind_end is None else place.behind_end
    for start, end in ((place.check_start, place.offset), (place.behind_start, behind_end)):
        if not 0 <= start <= end <= start + CHECKED_BYTES:
            raise ValueError(f"bytes {start} to {end} are not what is compared with the source")
    if any("/" in name for name in (place.file, place.behind, state.oldest)):
        raise ValueError("a log segment's name is a path")


def _fields_of(state: ReplicaState) -> dict[str, Any]:
    """Return all fields, without a copy of their values: they are written at once, once a second."""
    promised = None if state.promised is None else asdict(state.promised)
    ended = None if state.ended is None else asdict(state.ended)
    place = {name: getattr(state.place, name) for name in SourcePosition.__slots__}
    tallies = [{"index": tally.index, "count": tally.count, "crc": tally.crc} for tally in state.tallies]
    fields = {name: getattr(state, name) for name in ReplicaState.__slots__}
    return {**fields, "place": place, "promised": promised, "ended": ended, "tallies": tallies}


def _text(fields: dict[str, Any]) -> str:
    return json.dumps(fields, sort_keys=True)
