"""Optional capabilities of a store that only some programs use: copies, positions of consumers, versions, locks, and
whether it is read only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from litelog.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from typing_extensions import Buffer

    from litelog.stores.object_store import ObjectStore


@runtime_checkable
class MayBeReadOnly(Protocol):
    """An optional capability of a store that, as it is configured, may take no objects."""

    @property
    def read_only(self) -> str | None:
        """Why nothing can be written there, and what to do instead; None if something can."""


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


@dataclass(frozen=True, slots=True)
class KeyVersions:
    """The versions under one key, in a store that keeps versions of objects."""

    key: str
    contents: int
    """The number of versions that are content, 0 or more."""
    markers: int
    """The number of delete markers: each hides what was there before."""
    is_hidden: bool
    """Whether the newest version is a delete marker, so that readers find no object."""
    is_same: bool
    """Whether the store says that all contents are equal."""
    is_versioned: bool
    """Whether any of the versions has an id: a bucket that never kept versions has objects without one."""
    changed: int
    """When the first version after the first content was put, in microseconds since 1970; 0 if there is none."""


class VersionListing(Protocol):
    """Lists the versions of objects."""

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[KeyVersions]:
        """List keys in order (by code point), also those whose newest version is a delete marker.

        Args:
            prefix: What the keys start with.
            start_after: List only keys that sort after this one.

        Raises:
            StoreError: A request failed, or is not allowed; raised by the iterator.
        """


@runtime_checkable
class KeepsVersions(Protocol):
    """An optional capability of a store that may keep earlier versions of objects. Wrappers pass it on."""

    @property
    def kept_versions(self) -> VersionListing | None:
        """The listing of versions; None if this store has none. Sends no request."""


def kept_versions(store: ObjectStore) -> VersionListing | None:
    """The listing of a store's versions; None if it does not have the capability."""
    return store.kept_versions if isinstance(store, KeepsVersions) else None


class ObjectLocks(Protocol):
    """Extends the time for which a store refuses to delete objects."""

    retain: float
    """Seconds: for how long each put, and each extension, locks an object."""

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        """List the keys that start with ``prefix``, each with the time of its put in microseconds since 1970.

        Raises StoreError.
        """

    def extend(self, key: str) -> None:
        """Lock an object for ``retain`` from now on. A lock that ends later stays as it is.

        Raises:
            NotFoundError: The object does not exist.
            StoreError: The store refused, or the request failed.
        """


@runtime_checkable
class LocksObjects(Protocol):
    """An optional capability of a store that may lock objects against deletion."""

    @property
    def locks(self) -> ObjectLocks | None:
        """The locks; None if this store's options lock nothing for a time. Sends no request."""
