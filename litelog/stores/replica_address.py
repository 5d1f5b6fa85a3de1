"""How a program names a replica: by its URL or path, or by an object with a URL and options."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, cast

from litelog.errors import ConfigError
from litelog.objects.layout import ROOTS
from litelog.system.files import has_folder

if TYPE_CHECKING:
    from collections.abc import Mapping


class ReplicaAddress(Protocol):
    """A replica's URL and the options of its backend, as ``litelog.ReplicaConfig`` has them."""

    @property
    def url(self) -> str:
        """The URL or path."""

    @property
    def options(self) -> Mapping[str, object]:
        """The options of the backend, such as region, endpoint and credentials."""


Replica = str | os.PathLike[str] | ReplicaAddress
"""A replica as callers name it."""


def is_replica(place: str) -> bool:
    """Whether ``place`` is a replica: a URL, or a folder with the contents of a replica."""
    return "://" in place or has_folder(place, ROOTS)


def address_of(replica: Replica) -> tuple[str, Mapping[str, object]]:
    """Return a replica's URL and options. Raises ConfigError for any other object."""
    if isinstance(replica, str | os.PathLike):
        return os.fspath(replica), {}
    if not (hasattr(replica, "url") and hasattr(replica, "options")):
        raise ConfigError(f"a replica is a URL, a path or a ReplicaConfig, not {replica!r}")
    return replica.url, replica.options


def addresses_of(replicas: Replica | Iterable[Replica]) -> list[tuple[str, Mapping[str, object]]]:
    """Return the URLs and options of one or several replicas. Raises ConfigError as ``address_of``, and for none."""
    if isinstance(replicas, str | os.PathLike) or hasattr(replicas, "url") or not isinstance(replicas, Iterable):
        return [address_of(cast("Replica", replicas))]
    several = [address_of(replica) for replica in replicas]
    if not several:
        raise ConfigError("name at least one replica")
    return several
