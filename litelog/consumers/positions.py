"""Finds the place that keeps the positions of a log's consumers: a state folder, a replica, or a daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from litelog.errors import ConfigError
from litelog.objects.layout import is_consumer_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.objects.consumer_position import ConsumerPosition, Evidence


class KeptPosition(Protocol):
    """The position of one consumer. Any thread and process may use it."""

    name: str

    def read(self) -> ConsumerPosition | None:
        """Return the position; None if the consumer has none yet. Raises ConsumerStateError and StoreError."""

    def move(
        self, held: ConsumerPosition | None, following: int | None, evidence: Evidence | None, now: int
    ) -> ConsumerPosition:
        """Move the position durably, if it is still ``held``. Return the new position.

        Raises:
            ConsumerMovedError: Another process has moved it since.
            ConsumerStateError, StoreError: It cannot be written.
        """

    def force(self, following: int | None, now: int) -> ConsumerPosition:
        """Move the position durably, wherever it is, also if it is damaged. Raises ConsumerStateError, StoreError."""

    def delete(self) -> bool:
        """Delete the position durably. Return whether there was one. Raises ConsumerStateError and StoreError."""


class ConsumerPositions(Protocol):
    """The positions of one log's consumers."""

    place: str
    """For messages."""

    def names(self) -> Sequence[str]:
        """The names of the consumers, sorted. Raises ConsumerStateError and StoreError."""

    def of(self, name: str) -> KeptPosition:
        """The position of a consumer, which may not exist yet. Raises ConfigError for an invalid name."""

    def close(self) -> None:
        """Release what is open. A later call opens it again."""


def require_name(name: str) -> None:
    """Raise ConfigError for a name that no consumer may have."""
    if not is_consumer_name(name):
        raise ConfigError(f"{name!r} is not a name of a consumer: write up to 100 letters, digits, dots, - and _")
