"""The rights of the holder of a store's credentials, and the least policy that each kind of user needs.

``litelog check`` reports both. A store that knows neither does not have the capability.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from litelog.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Deed(StrEnum):
    """The deeds that a holder of the credentials may try."""

    LIST = "list"
    READ = "read"
    ADD = "add objects"
    OVERWRITE = "overwrite"
    DELETE = "delete"
    DELETE_VERSIONS = "delete versions"
    LOCK = "lock objects"
    BYPASS = "end locks early"


@dataclass(frozen=True, slots=True)
class Attempt:
    """The result of one attempt, with its own objects."""

    deed: Deed
    may: bool | None
    """Whether the store did it; None: unknown."""
    meaning: str
    """The meaning for a replica there, or why the result is unknown."""


@dataclass(frozen=True, slots=True)
class Access:
    """The protection of a store, and the rights of its credentials."""

    versions: str | None
    """``on``, ``suspended`` or ``off``: whether the store keeps earlier versions of objects; None: unknown."""
    has_lock: bool | None
    """Whether objects can be locked; None: unknown."""
    lock_mode: str | None
    """``governance`` or ``compliance``: how each new object is locked by default; None: it is not, or unknown."""
    lock_seconds: float | None
    """For how long."""
    attempts: tuple[Attempt, ...]
    not_asked: tuple[str, ...]
    """The facts that could not be found out, each with the reason."""

    def as_json(self) -> dict[str, object]:
        """As JSON values, for programs."""
        return {
            "versions": self.versions,
            "object_lock": self.has_lock,
            "lock_mode": self.lock_mode,
            "lock_seconds": self.lock_seconds,
            "thief": [{"deed": each.deed, "may": each.may, "meaning": each.meaning} for each in self.attempts],
            "not_asked": list(self.not_asked),
        }


class Role(StrEnum):
    """A kind of user of a replica, with the rights that it needs."""

    DAEMON = "daemon"
    """Ships a log: ``litelog replicate``."""
    READER = "reader"
    """Restores, reads and verifies."""
    PRUNER = "pruner"
    """Deletes what retention frees: ``litelog prune``, while a daemon with ``no-delete`` runs."""


@runtime_checkable
class ShowsAccess(Protocol):
    """An optional capability of a store that has permissions."""

    def examine(self, prefix: str) -> Access:
        """Try what the credentials permit, with objects below ``prefix`` alone, and ask how the store protects objects.

        The objects are deleted, if the store permits that. One object may be locked for a minute. Raises
        StoreError if the store does not answer; a refusal is a result.
        """

    def least_policy(self, role: Role, *, deletes: bool) -> Mapping[str, object]:
        """The least policy for a user of the replica, in the service's own form. Sends no request.

        ``deletes``: whether a daemon deletes what the replica no longer needs.
        """


def describe_lock(access: Access) -> str:
    """Whether objects are locked, in words."""
    if access.has_lock is None:
        return "unknown"
    if not access.has_lock:
        return "off"
    if access.lock_mode is None or access.lock_seconds is None:
        return "on, but objects are locked only if their put says so (options object-lock and retain)"
    return f"on, {access.lock_mode} for {access.lock_seconds / 86400:g}d by default"


def summary(access: Access) -> Sequence[str]:
    """Lines that describe the store's protection."""
    lines = [f"versions: {access.versions or 'unknown'}", f"object lock: {describe_lock(access)}"]
    if access.not_asked:
        lines.append(f"not known: {'; '.join(access.not_asked)}")
    return lines
