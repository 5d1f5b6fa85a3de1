"""The positions of the consumers of a served log: its daemon keeps them, and they are moved by requests to it.

Specified in litelog/live/README.md#consumers.
"""

from __future__ import annotations

import secrets
import threading
from datetime import datetime
from typing import TYPE_CHECKING

from litelog.consumers.positions import require_name
from litelog.errors import ConfigError, ConsumerMovedError, StoreError
from litelog.objects.consumer_position import ConsumerPosition, position_fields, read_position
from litelog.stores.capabilities import KeepsConsumers
from litelog.stores.opening import naming_store
from litelog.stores.registry import open_store, redact
from litelog.stores.retrying_store import RetryingStore
from litelog.units import to_microseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeVar

    from litelog.objects.consumer_position import Evidence

    _Result = TypeVar("_Result")


class ServedPositions:
    """The positions that a daemon keeps for one log. Any thread may use it."""

    def __init__(self, url: str, options: Mapping[str, object]) -> None:
        """Makes no request."""
        self.place = redact(url)
        self._address = url, options
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._retrying: RetryingStore | None = None

    def names(self) -> Sequence[str]:
        return self.ask(lambda store: store.list_consumers())

    def of(self, name: str) -> ServedPosition:
        return ServedPosition(self, name)

    def close(self) -> None:
        with self._lock:
            retrying, self._retrying = self._retrying, None
            self._stop.set()
        if retrying is not None:
            retrying.close()

    def ask(self, request: Callable[[KeepsConsumers], _Result]) -> _Result:
        """Send a request to the daemon, with retries. Raises StoreError."""
        with self._lock:
            if self._retrying is None:
                self._stop = threading.Event()
                self._retrying = RetryingStore(open_store(*self._address), self._stop)
            retrying = self._retrying
        store = retrying.awaiting
        if not isinstance(store, KeepsConsumers):
            raise ConfigError(f"{self.place}: is not a log that a daemon serves")
        with naming_store(retrying.url):
            return retrying.attempt(lambda: request(store))


class ServedPosition:
    """The position of one consumer, which a daemon keeps. Any thread and process may use it."""

    def __init__(self, positions: ServedPositions, name: str) -> None:
        """Raises ConfigError for a name that no consumer may have."""
        require_name(name)
        self.name = name
        self._positions = positions

    def read(self) -> ConsumerPosition | None:
        """As ``KeptPosition.read``."""
        found = self._positions.ask(lambda store: store.read_consumer(self.name))
        return None if found is None else self._decode(found)

    def move(
        self,
        held: ConsumerPosition | None,
        following: int | None,
        evidence: Evidence | None,
        now: int,  # noqa: ARG002 - the daemon has its own clock
    ) -> ConsumerPosition:
        """As ``KeptPosition.move``. A move whose answer was lost is recognised by its id."""
        move = secrets.token_hex(8)
        stated = position_fields(ConsumerPosition(held.revision if held else 0, following, 0, evidence, move))
        moved = self._move(stated)
        if moved is not None:
            return moved
        there = self.read()
        if there is not None and there.move == move:
            return there
        raise ConsumerMovedError(self.name, None if there is None else there.next)

    def force(self, following: int | None, now: int) -> ConsumerPosition:  # noqa: ARG002 - as of ``move``
        """As ``KeptPosition.force``."""
        moved = self._move({"next": following})
        if moved is None:
            raise StoreError("move", self.name, "the daemon did not move the consumer", retryable=False)
        return moved

    def delete(self) -> bool:
        """As ``KeptPosition.delete``."""
        return self._positions.ask(lambda store: store.delete_consumer(self.name))

    def _move(self, stated: Mapping[str, object]) -> ConsumerPosition | None:
        given = {name: value for name, value in stated.items() if name != "updated"}
        moved = self._positions.ask(lambda store: store.move_consumer(self.name, given))
        return None if moved is None else self._decode(moved)

    def _decode(self, found: Mapping[str, object]) -> ConsumerPosition:
        try:
            updated = found.get("updated")
            if isinstance(updated, str):
                updated = to_microseconds(datetime.fromisoformat(updated))
            return read_position({**found, "updated": updated})
        except ValueError as error:
            raise StoreError("read", self.name, f"the answer is not a position: {error}", retryable=False) from error
