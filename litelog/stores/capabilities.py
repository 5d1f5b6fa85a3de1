"""Optional capabilities of a store that only some programs use: copies, and the positions of consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from typing_extensions import Buffer

    from litelog.stores.object_store import ObjectStore


@runtime_checkable
class CopiesByItself(Protocol):
    """An optional capability of a store whose service copies objects without their bytes being sent there."""

    def copy_from(self, source: ObjectStore, key: str, body: Iterable[Buffer]) -> bool:
        """Do what a create-only ``put`` of ``body`` does, by a copy of the same key of ``source``.

        The service's digest of the copy is compared with that of ``body`` before the object is visible.

        Args:
            source: Another store.
            key: The object's key in both.
            body: The bytes that ``source`` holds, checked as they are iterated. An error that its iteration raises is
                passed on, and nothing is stored.

        Returns:
            Whether the object is there. False: ``source`` is elsewhere, or the service has no such copies.

        Raises:
            ExistsError, StoreError, ValueError: As ``put``.
        """


@runtime_checkable
class KeepsConsumers(Protocol):
    """An optional capability of a store that is the log of a daemon: the daemon keeps the positions of the log's
    consumers. Positions are JSON values, as litelog/live/README.md specifies them."""

    def list_consumers(self) -> Sequence[str]:
        """The names of the consumers, sorted. Raises StoreError."""

    def read_consumer(self, name: str) -> Mapping[str, object] | None:
        """The position of a consumer; None if there is none. Raises StoreError."""

    def move_consumer(self, name: str, fields: Mapping[str, object]) -> Mapping[str, object] | None:
        """Move a consumer, and return its new position; None if its position has another revision than ``fields``
        state. Raises StoreError."""

    def delete_consumer(self, name: str) -> bool:
        """Delete a consumer. Returns whether there was one. Raises StoreError."""
