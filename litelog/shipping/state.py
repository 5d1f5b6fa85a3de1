"""What a daemon keeps of one log and replica between runs: identity, claim, position. And the lock on it.

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
from litelog.errors import LitelogError, LockedError
from litelog.events import fields as event_fields
from litelog.log.identity import ShippedEnd  # noqa: TC001 - ``build`` looks for it
from litelog.log.replica_registry import STATE_FILE as FILE
from litelog.log.replica_registry import read_checked
from litelog.log.source_position import CHECKED_BYTES, Place
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
    """What was saved is there, and is not what a daemon saves."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        super().__init__(f"{path}: cannot be used: {reason}")


@dataclass(frozen=True, slots=True)
class OwnEnd:
    """Where an owner's generation ended whose newest WAL segment cannot be read (``own_end``)."""

    slot: str
    """Its next slot, a position: the terminal goes there."""
    digest: str
    """SHA-256, hex, of the object before the slot."""
    shipped: int
    """When something was shipped last, microseconds since 1970."""
    sequence: int | None
    """The sequence that follows."""
    end: ShippedEnd | None
    """What was acknowledged last; None where that is nothing."""


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
    oldest: str = ""
    """The log's oldest log segment when something was shipped last: an older one in the same folder came back since."""
    promised: ShippedEnd | None = None
    """In a generation that continues another, until it has come that far: where that one ended."""
    place: Place = Place(0, "")  # noqa: RUF009 - frozen
    """Where the log is read on."""
    base: int = 0
    """The index that the log's first log segment had at the claim."""
    tried: str = ""
    """With which fencing the store was tried before the claim; empty where it was not."""
    archive: str | None = None
    """What is sealed and what is not (``archive_state``), as text; None while nothing is known."""
    epoch: int = 0
    """An epoch that the replica has a claim of, the newest that is known: claims are never deleted."""
    tallies: tuple[IndexTally, ...] = ()
    """The WAL segments that were acknowledged since the newest snapshot, counted."""
    ended: OwnEnd | None = None
    """While a generation begins: where the one before it ended, if its newest WAL segment cannot be read."""
    salvaged: int | None = None
    """In a generation that diverged as the replica had lost something that the log does not hold: the index in the
    predecessor of the first log segment that is still whole there."""
    lost: str = ""
    """What the replica lost for good in this owner's time."""

    def forgotten(self) -> ReplicaState:
        """That of the same owner and log, which has shipped nothing: its replica may be an empty one."""
        return ReplicaState(self.owner, self.log)


class StateFolder:
    """The folder of one log and replica, locked for this process while it is open."""

    def __init__(self, path: str, what: str) -> None:
        self._path = self.path = path
        self.file = os.path.join(path, FILE)
        self.boot = read_boot_id()
        """Which run of the machine's steady clock it is, whose times may be kept here."""
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
            raise LockedError(os.path.join(path, "lock"), what) from None

    def load(self) -> ReplicaState | None:
        """What was saved last; None if there is nothing, or nothing that can be read: then a new claim is due."""
        try:
            return _read(self._path)
        except LostStateError as error:
            said = "%s; it is treated as lost: without it, this daemon needs --takeover once to write to the replica"
            _logger.warning(said, error, extra=event_fields("state-lost", path=error.path))
            return None

    def save(self, state: ReplicaState) -> None:
        """Keep ``state``: durable, and whole whatever happens meanwhile."""
        text = _text(_fields_of(state))
        body = f'{{"version": {VERSION}, "checksum": {crc32c(text.encode())}, {text[1:]}'
        try:
            write_private(self.file, body.encode())
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
        return _read(path)
    except LostStateError:
        return None


def _read(folder: str) -> ReplicaState | None:
    """The state in a state folder; None where there is none. LostStateError."""
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
    """That all that is written as text can be read, and that no place is before the beginning. ValueError."""
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
    """All fields, without a copy of what they hold: it is written at once, once a second."""
    promised = None if state.promised is None else asdict(state.promised)
    ended = None if state.ended is None else asdict(state.ended)
    place = {name: getattr(state.place, name) for name in Place.__slots__}
    tallies = [{"index": tally.index, "count": tally.count, "crc": tally.crc} for tally in state.tallies]
    fields = {name: getattr(state, name) for name in ReplicaState.__slots__}
    return {**fields, "place": place, "promised": promised, "ended": ended, "tallies": tallies}


def _text(fields: dict[str, Any]) -> str:
    return json.dumps(fields, sort_keys=True)
