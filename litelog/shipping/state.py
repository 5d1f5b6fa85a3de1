"""The state of one log and replica that a daemon keeps between runs: identity, claim and position. Also its lock.

Specified in litelog/shipping/README.md#lost-state.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from dataclasses import MISSING, asdict, fields
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from litelog.codec.checksum import crc32c
from litelog.codec.decoding import Readers, build
from litelog.dataclass import dataclass
from litelog.errors import LitelogError, ReplicaLockedError
from litelog.events import fields as event_fields
from litelog.log.replica_registry import STATE_FILE as FILE
from litelog.log.source_position import CHECKED_BYTES, SourcePosition
from litelog.objects import claim as claims
from litelog.objects.claim import Claim
from litelog.objects.position import Position
from litelog.shipping.archive_state import ArchiveState, read_archive, write_archive
from litelog.shipping.log_identity import ShippedEnd  # noqa: TC001 - ``build`` looks for it
from litelog.system.checked_files import read_checked
from litelog.system.clock import read_boot_id
from litelog.system.private_files import make_private, open_lock, write_private

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType


MAX_TALLIES = 256
"""How many log segments have their WAL segments counted. A snapshot, which ends the count, is due after a hundred."""


@dataclass(frozen=True, slots=True)
class IndexTally:
    """The durable WAL segments of one index: a few numbers stand for thousands of names."""

    index: int
    count: int
    crc: int
    """CRC-32C of their offsets and sizes, in order."""

    def add(self, offset: int, size: int) -> IndexTally:
        """Return the tally with one more WAL segment, whose object has ``size`` bytes."""
        return IndexTally(self.index, self.count + 1, crc32c(b"%x %d\n" % (offset, size), self.crc))


def add_to_tallies(
    tallies: tuple[IndexTally, ...], position: Position, size: int, snapshot: int | None
) -> tuple[IndexTally, ...]:
    """Return ``tallies`` with an acknowledged WAL segment, without those below index ``snapshot``.

    An index whose first WAL segments an earlier release did not count has no tally.
    """
    kept = tallies if snapshot is None else tuple(tally for tally in tallies if tally.index >= snapshot)
    if position.offset == 0:
        kept = tuple(tally for tally in kept if tally.index < position.index)
        return (*kept, IndexTally(position.index, 0, 0).add(0, size))[-MAX_TALLIES:]
    if kept and kept[-1].index == position.index:
        return (*kept[:-1], kept[-1].add(position.offset, size))
    return kept


VERSION = 1

_logger = logging.getLogger(__name__)


class StateError(LitelogError):
    """The state folder cannot be used."""


class LostStateError(StateError):
    """A state file exists, but no daemon can have saved it in that form."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        super().__init__(f"{path}: cannot be used: {reason}")


@dataclass(frozen=True, slots=True)
class OwnEnd:
    """The end of an owner's generation whose newest WAL segment cannot be read (``predecessor``)."""

    slot: Position
    """Its next slot. The terminal is put there."""
    digest: str
    """SHA-256, hex, of the object before the slot."""
    shipped: int
    """When its last object was shipped, in microseconds since 1970."""
    sequence: int | None
    """The sequence that follows."""
    end: ShippedEnd | None
    """The end of the last acknowledged bytes; None if there are none."""


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """The state of an owner that has no generation: another owner took its claim's name, or the replica was
    forgotten."""

    owner: str
    """The owner's random id, hex."""
    log: str
    """The log's id, 32 hex digits; empty while unknown."""
    epoch: int = 0
    """The newest epoch of which the replica is known to have a claim. Claims are never deleted."""
    tried: str = ""
    """The fencing with which the store was tried before a claim; empty if it was not."""
    lost: str = ""
    """A description of what the replica lost for good since this owner began; empty if it lost nothing."""
    ended: OwnEnd | None = None
    """The end of the owner's last generation, if its newest WAL segment cannot be read."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """The state of an owner whose generation begins: not all generations below it are closed, or it has no snapshot."""

    claim: Claim
    """The claim that was or will be put."""
    place: SourcePosition
    """The position at which reading of the log begins."""
    base: int = 0
    """The index that the log's first log segment had at the claim."""
    folder_inode: int = 0
    """The inode of the log's folder. A folder that was restored or replaced has another one."""
    epoch: int = 0
    """As in ``Unclaimed``."""
    tried: str = ""
    lost: str = ""
    ended: OwnEnd | None = None
    salvaged: int | None = None
    """In a generation that diverged because the replica had lost something that the log does not hold: the index, in
    the predecessor, of the first log segment that is still whole there."""
    promised: ShippedEnd | None = None
    """In a generation that diverged: the end of what the log still shares with the predecessor."""

    @property
    def owner(self) -> str:
        return self.claim.owner

    @property
    def log(self) -> str:
        return self.claim.log

    def unclaimed(self) -> Unclaimed:
        """The state after another owner took the claim's name."""
        return Unclaimed(self.owner, self.log, self.epoch, self.tried, self.lost, self.ended)


@dataclass(frozen=True, slots=True)
class Running:
    """The state of an owner that ships: all generations below its own are closed, and the first snapshot exists."""

    claim: Claim
    place: SourcePosition
    """The position at which reading of the log continues."""
    digest: str
    """SHA-256 of the generation's last object."""
    last: Position | None = None
    """The last WAL segment's position; None if the snapshot is the last object."""
    shipped: int = 0
    """When it was shipped, in microseconds since 1970."""
    base: int = 0
    """As in ``Claimed``."""
    folder_inode: int = 0
    oldest: str = ""
    """The log's oldest log segment when bytes were last shipped. An older one in that folder has come back."""
    promised: ShippedEnd | None = None
    """Until the generation has come that far: the end of the generation that it continues or, if it diverged, the end
    of what the log still shares with its predecessor. Until then readers take the predecessor."""
    archive: ArchiveState | None = None
    """Which log segments are sealed, and which are not; None while it is not known."""
    tallies: tuple[IndexTally, ...] = ()
    """Counts of the WAL segments that were acknowledged since the newest snapshot."""
    epoch: int = 0
    """As in ``Unclaimed``."""
    tried: str = ""
    lost: str = ""
    salvaged: int | None = None
    """As in ``Claimed``."""

    @property
    def owner(self) -> str:
        return self.claim.owner

    @property
    def log(self) -> str:
        return self.claim.log


ReplicaState: TypeAlias = Unclaimed | Claimed | Running
"""One owner's state. It may be older than the replica: the owner adopts what is missing from there."""


class StateFolder:
    """The folder of one log and replica, locked for this process while it is open."""

    def __init__(self, path: str, what: str) -> None:
        self._path = self.path = path
        self.file = os.path.join(path, FILE)
        self._archive: tuple[ArchiveState, str] | None = None
        """The archive's state that was saved last, and its text: it changes more rarely than positions do."""
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
        """Save ``state``, durably and atomically. Raises StateError."""
        text = json.dumps(_fields_of(state, self._format_archive), sort_keys=True)
        body = f'{{"version": {VERSION}, "checksum": {crc32c(text.encode())}, {text[1:]}'
        try:
            write_private(self.file, body.encode())
        except FileNotFoundError as error:
            message = "is gone, with the state in it: stop the daemon, and start it once with --takeover"
            raise StateError(f"{self._path}: {message}") from error
        except OSError as error:
            raise StateError(f"{self._path}: cannot save state: {error.strerror}") from error

    def _format_archive(self, archive: ArchiveState) -> str:
        if self._archive is None or self._archive[0] is not archive:
            self._archive = (archive, write_archive(archive))
        return self._archive[1]

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


@dataclass(frozen=True, slots=True)
class _Document:
    """The fields of a state file. It has all of them in every stage; those of other stages have their defaults."""

    owner: str
    log: str
    claim: Claim | None = None
    closed: bool = False
    """Whether the state is ``Running``."""
    digest: str = ""
    last: Position | None = None
    shipped: int = 0
    folder_inode: int = 0
    oldest: str = ""
    promised: ShippedEnd | None = None
    place: SourcePosition = SourcePosition(0, "")
    base: int = 0
    tried: str = ""
    archive: str | None = None
    """The text of an ``ArchiveState``. If it cannot be read, only that part is lost."""
    epoch: int = 0
    tallies: tuple[IndexTally, ...] = ()
    ended: OwnEnd | None = None
    salvaged: int | None = None
    lost: str = ""


_READERS: Readers = {Claim: claims.parse, Position: Position.parse}
_DEFAULTS = {field.name: field.default for field in fields(_Document) if field.default is not MISSING}
_STORED = {
    "finished": "behind",
    "finished_end": "behind_end",
    "finished_start": "behind_start",
    "finished_digest": "behind_digest",
}
"""Fields of a position that have another name in the file."""
_FIELDS = {stored: name for name, stored in _STORED.items()}

_Stage = TypeVar("_Stage", Unclaimed, Claimed, Running)


def _read(folder: str) -> ReplicaState | None:
    """Return the state in a state folder; None if there is none. Raises LostStateError."""
    path = os.path.join(folder, FILE)
    try:
        stored = read_checked(path)
        if isinstance(place := stored.get("place"), dict):
            stored["place"] = {_FIELDS.get(name, name): value for name, value in place.items()}
        document = build(_Document, stored, _READERS)
        _check(document)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LostStateError(path, error.strerror or str(error)) from error
    except ValueError as error:
        raise LostStateError(path, str(error)) from error
    if document.claim is None:
        return _pick(Unclaimed, document)
    if not document.closed:
        return _pick(Claimed, document)
    return _pick(Running, document, archive=read_archive(document.archive, path))


def _check(document: _Document) -> None:
    """Check that positions are possible, and that the claim is the owner's. Raises ValueError."""
    claim, place = document.claim, document.place
    if claim is not None and (claim.owner, claim.log) != (document.owner, document.log):
        raise ValueError("its claim is of another owner or log")
    if min(place.index, document.base) < 0:
        raise ValueError("an index is negative")
    finished_end = place.finished_start if place.finished_end is None else place.finished_end
    for start, end in ((place.check_start, place.offset), (place.finished_start, finished_end)):
        if not 0 <= start <= end <= start + CHECKED_BYTES:
            raise ValueError(f"bytes {start} to {end} cannot be those that are compared with the source")
    if any("/" in name for name in (place.file, place.finished, document.oldest)):
        raise ValueError("a log segment's name is a path")


def _pick(stage: type[_Stage], document: _Document, **values: object) -> _Stage:
    """Return the state of that stage that ``document`` holds. ``values``: fields whose values differ from the
    document's."""
    stated = {field.name: getattr(document, field.name) for field in fields(stage)}
    return stage(**{**stated, **values})


def _fields_of(state: ReplicaState, format_archive: Callable[[ArchiveState], str]) -> dict[str, Any]:
    """Return all fields of the file, without a copy of their values: they are written at once, once a second."""
    stated = {**_DEFAULTS, "owner": state.owner, "log": state.log, "closed": isinstance(state, Running)}
    stated |= {field.name: getattr(state, field.name) for field in fields(state)}
    for name, to_json in {**_TO_JSON, "archive": format_archive}.items():
        if stated[name] is not None:
            stated[name] = to_json(stated[name])
    return stated


def _end_to_json(ended: OwnEnd) -> dict[str, Any]:
    return {**asdict(ended), "slot": str(ended.slot)}


def _place_to_json(place: SourcePosition) -> dict[str, Any]:
    stored = {_STORED.get(name, name): getattr(place, name) for name in SourcePosition.__slots__}
    if place.checksum is None:
        del stored["checksum"]  # as earlier releases read it
    return stored


def _tallies_to_json(tallies: Sequence[IndexTally]) -> list[dict[str, int]]:
    return [{"index": tally.index, "count": tally.count, "crc": tally.crc} for tally in tallies]


_TO_JSON: dict[str, Callable[[Any], object]] = {
    "claim": lambda claim: claims.encode(claim).decode(),
    "last": str,
    "promised": asdict,
    "place": _place_to_json,
    "ended": _end_to_json,
    "tallies": _tallies_to_json,
}
"""Functions that turn the values of fields into JSON."""
