"""The positions of consumers in a replica: create-only objects, of which the one with the highest revision counts.

Specified in litelog/objects/README.md#position-of-a-consumer.
"""

from __future__ import annotations

import logging
import secrets
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from litelog.consumers.positions import require_name
from litelog.dataclass import dataclass
from litelog.errors import (
    ConfigError,
    ConsumerMovedError,
    ConsumerStateError,
    CorruptObjectError,
    ExistsError,
    NotFoundError,
    StoreError,
    UnknownVersionError,
)
from litelog.events import fields
from litelog.objects import layout
from litelog.objects.consumer_position import ConsumerPosition, PositionObject, decode, encode, place_of
from litelog.stores.object_store import ordered, read_bounded
from litelog.stores.opening import naming_store, open_retrying
from litelog.stores.registry import redact
from litelog.stores.retrying_store import RetryingStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from litelog.objects.consumer_position import Evidence
    from litelog.stores.object_store import ObjectStore

KEPT = 4
"""How many of a consumer's newest objects stay."""

MOST = 16
"""How many of a consumer's objects there may be before older ones are deleted."""

MAX_OBJECT_BYTES = 16 << 10

ATTEMPTS = 8
"""How often a position is read again, or put at the next revision, while other processes move it."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Newest:
    """The facts about a consumer in a listing and the newest objects."""

    revision: int = 0
    """Of the newest object; 0 if there is none."""
    position: ConsumerPosition | None = None
    """None if there is none, or if the consumer was deleted."""


class PositionObjects:
    """The positions of the consumers of a replica, in the replica. Any thread may use it."""

    def __init__(self, url: str, options: Mapping[str, object]) -> None:
        """Makes no request."""
        self.place = redact(url)
        self._address = url, options
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._store: ObjectStore | None = None

    def names(self) -> Sequence[str]:
        with self.opened() as store:
            keys = (layout.parse_consumer(info.key) for info in ordered(store.list(layout.CONSUMERS)))
            listed = sorted({parsed[0] for parsed in keys if parsed is not None})
        return [name for name in listed if self._is_there(name)]

    def of(self, name: str) -> PositionInReplica:
        return PositionInReplica(self, name)

    def close(self) -> None:
        with self._lock:
            store, self._store = self._store, None
            self._stop.set()
        if store is not None:
            store.close()

    @contextmanager
    def opened(self) -> Iterator[ObjectStore]:
        """The replica's store. Errors name the replica."""
        with self._lock:
            if self._store is None:
                self._stop = threading.Event()
                self._store = open_retrying(*self._address, self._stop).store
            store = self._store
        with naming_store(store.url):
            yield store

    def _is_there(self, name: str) -> bool:
        try:
            return self.of(name).read() is not None
        except (ConsumerStateError, UnknownVersionError):
            return True  # it is there, and damaged, or of a newer litelog


class PositionInReplica:
    """The position of one consumer in a replica. Any thread and process may use it."""

    def __init__(self, objects: PositionObjects, name: str) -> None:
        """Raises ConfigError for a name that no consumer may have."""
        require_name(name)
        self.name = name
        self._objects = objects
        self._is_refusal_logged = False

    def read(self) -> ConsumerPosition | None:
        """Return the position; None if the consumer has none. If its object is damaged, return the position before it.

        Raises ConsumerStateError if that is damaged as well, and StoreError.
        """
        with self._objects.opened() as store:
            return self._find(store).position

    def move(
        self, held: ConsumerPosition | None, following: int | None, evidence: Evidence | None, now: int
    ) -> ConsumerPosition:
        """As ``KeptPosition.move``. The put is refused if another process has moved the position. If that process has
        already removed the object, the listing after the put shows its newer ones."""
        with self._objects.opened() as store:
            if held is None:
                found = self._find(store)
                if found.position is not None:
                    raise ConsumerMovedError(self.name, found.position.next)
                revision = found.revision + 1
            else:
                revision = held.revision + 1
            if not isinstance(store, RetryingStore):
                evidence = None  # the store decrypts: a checksum would reveal a part of an encrypted record
            position = ConsumerPosition(revision, following, now, evidence, secrets.token_hex(8))
            if not self._put(store, PositionObject(self.name, position, place=place_of(store.url))):
                raise self._moved(store)
            keys = self._list(store)
            if keys[-1:] != [layout.consumer_key(self.name, revision)]:
                raise self._moved(store)
            if len(keys) > MOST:
                self._remove(store, keys[:-KEPT])
            return position

    def force(self, following: int | None, now: int) -> ConsumerPosition:
        """As ``KeptPosition.force``."""
        with self._objects.opened() as store:
            return self._put_next(store, following, now, deleted=False).position

    def delete(self) -> bool:
        """As ``KeptPosition.delete``. One object stays: it states that the consumer was deleted."""
        with self._objects.opened() as store:
            with suppress(ConsumerStateError, UnknownVersionError):  # it cannot be read, and can be deleted
                if self._find(store).position is None:
                    return False
            put = self._put_next(store, None, 0, deleted=True)
            self._remove(store, [key for key in self._list(store) if key < put.key])
            return True

    def _put_next(self, store: ObjectStore, following: int | None, now: int, *, deleted: bool) -> PositionObject:
        for _ in range(ATTEMPTS):
            keys = self._list(store)
            revision = _revision(keys[-1]) + 1 if keys else 1
            position = ConsumerPosition(revision, following, now, None, secrets.token_hex(8))
            found = PositionObject(self.name, position, deleted, place_of(store.url))
            if self._put(store, found):
                return found
        raise ConsumerStateError(f"{store.url}: consumer {self.name} is moved all the time: stop its process first")

    def _put(self, store: ObjectStore, found: PositionObject) -> bool:
        """Put an object. Return whether it is there: another process may have put another one."""
        if not store.enforces_create_only:
            raise ConfigError(
                f"{store.url}: cannot keep positions of consumers, as its store may accept the same key twice: "
                "name a state folder on this machine (state_dir, or --state-dir)"
            )
        body = encode(found)
        try:
            store.put(found.key, [body])
        except ExistsError:  # another process was first, or the answer to an earlier attempt was lost
            with suppress(NotFoundError):
                return read_bounded(store, found.key, limit=MAX_OBJECT_BYTES) == body
            return False
        return True

    def _moved(self, store: ObjectStore) -> ConsumerMovedError:
        position = self._find(store).position
        return ConsumerMovedError(self.name, None if position is None else position.next)

    def _find(self, store: ObjectStore) -> _Newest:
        for _ in range(ATTEMPTS):
            keys = self._list(store)
            if not keys:
                return _Newest()
            try:
                return self._read_newest(store, keys)
            except NotFoundError:
                continue  # it was moved meanwhile, and older objects were deleted
        raise ConsumerStateError(f"{store.url}: consumer {self.name} is moved all the time: try again")

    def _read_newest(self, store: ObjectStore, keys: Sequence[str]) -> _Newest:
        damage: list[CorruptObjectError] = []
        for key in reversed(keys[-2:]):
            try:
                found = decode(key, read_bounded(store, key, limit=MAX_OBJECT_BYTES))
            except CorruptObjectError as error:
                damage.append(error)
                continue
            if damage:
                message = "%s: cannot be used: %s; consumer %s continues at its previous position"
                extra = fields("state-lost", path=keys[-1])
                _logger.warning(message, keys[-1], damage[0], self.name, extra=extra)
            revision = _revision(keys[-1])
            position = None if found.deleted else replace(found.position, revision=revision)
            return _Newest(revision, position)
        raise ConsumerStateError(
            f"{store.url}: {damage[0]}, and there is no previous position: run litelog consumers move to state where "
            f"consumer {self.name} continues"
        ) from damage[0]

    def _list(self, store: ObjectStore) -> list[str]:
        """The keys of the consumer's objects, the newest one last."""
        infos = ordered(store.list(layout.consumer_prefix(self.name)))
        return [info.key for info in infos if layout.parse_consumer(info.key) is not None]

    def _remove(self, store: ObjectStore, keys: Sequence[str]) -> None:
        """Delete older objects. A store that refuses this does not undo the move."""
        try:
            store.delete(keys)
        except StoreError as error:
            if not self._is_refusal_logged:
                message = "%s: older positions of consumer %s stay, as they cannot be deleted: %s"
                extra = fields("delete-refused", replica=store.url)
                _logger.warning(message, store.url, self.name, error, extra=extra)
            self._is_refusal_logged = True


def _revision(key: str) -> int:
    parsed = layout.parse_consumer(key)
    return 0 if parsed is None else parsed[1]
