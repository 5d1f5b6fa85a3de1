"""Finds the replicas of a fleet with their sizes, by one listing for each pattern, and divides them among tasks."""

from __future__ import annotations

import heapq
import threading
from dataclasses import field
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import ConfigError, NothingToRestoreError
from litelog.objects.layout import CLAIMS, GENERATIONS
from litelog.spark.options import is_pattern
from litelog.spark.scan.inputs import fits_pattern, split_pattern
from litelog.spark.scan.task import kept_store
from litelog.spark.store_options import replica_url
from litelog.stores.registry import local_folder, redact, scheme_of
from litelog.stores.retrying_store import RetryingStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

REPLICA_BYTES = 1 << 20
"""The cost of the requests for a replica of any size, as the number of bytes whose transfer takes as long."""


@dataclass(frozen=True, slots=True)
class FleetReplica:
    """One replica of a fleet."""

    url: str = field(repr=False)
    name: str
    """Its path below the folders before the pattern's first wildcard; the last part of the path of a named replica."""
    objects: int = 0
    bytes: int = 0
    """The size of its objects."""


def find_fleet(paths: str | Sequence[str], options: Mapping[str, str]) -> list[FleetReplica]:
    """Find the replicas that URLs and patterns name, in the order of their names. Lists each place once.

    Args:
        paths: One or several URLs, folders or patterns of these.
        options: The store's options, as for ``open_store``.

    Returns:
        The replicas. They include a replica that a URL names even if nothing is there.

    Raises:
        NothingToRestoreError: No replica matches a pattern.
        ConfigError: No path is given, or two replicas have one name.
        StoreError: A request failed.
    """
    found: dict[str, FleetReplica] = {}
    for path in map(replica_url, [paths] if isinstance(paths, str) else paths):
        matched = list(_match(path, options) if is_pattern(path) else _named(path, options))
        if not matched:
            raise NothingToRestoreError(f"{redact(path)}: no replica matches the pattern")
        for replica in matched:
            if found.setdefault(replica.name, replica).url != replica.url:
                both = f"{redact(found[replica.name].url)} and {redact(replica.url)}"
                raise ConfigError(f"{both}: both have the name {replica.name}; do them in two jobs")
    if not found:
        raise ConfigError("name at least one replica or pattern")
    return [found[name] for name in sorted(found)]


def _match(path: str, options: Mapping[str, str]) -> Iterator[FleetReplica]:
    root, pattern = split_pattern(path)
    depth = pattern.count("/") + 1
    sizes: dict[str, list[int]] = {}
    for key, size in _list(root, options):
        parts = key.split("/", depth)
        if len(parts) > depth and parts[depth].startswith((CLAIMS, GENERATIONS)):
            sizes.setdefault("/".join(parts[:depth]), []).append(size)
    base, _, query = absolute(root).partition("?") if scheme_of(root) != "file" else (absolute(root), "", "")
    for name, held in sizes.items():
        if fits_pattern(name.split("/"), pattern):
            url = f"{base.rstrip('/')}/{name}{f'?{query}' if query else ''}"
            yield FleetReplica(url, name, len(held), sum(held))


def _named(path: str, options: Mapping[str, str]) -> Iterator[FleetReplica]:
    held = [size for key, size in _list(path, options) if key.startswith((CLAIMS, GENERATIONS))]
    url = absolute(path)
    place = url if scheme_of(path) == "file" else url.partition("?")[0]
    yield FleetReplica(url, place.rstrip("/").rpartition("/")[2], len(held), sum(held))


def _list(url: str, options: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    store = RetryingStore(kept_store(url, options), threading.Event())
    return ((info.key, info.size) for info in store.list(""))


def balance(replicas: Sequence[FleetReplica], tasks: int) -> list[list[FleetReplica]]:
    """Divide replicas among at most ``tasks`` tasks of about equal bytes. The largest come first, also within a task:
    a job ends soonest if its longest work begins first."""
    bins: list[tuple[int, int, list[FleetReplica]]] = [(0, number, []) for number in range(min(tasks, len(replicas)))]
    for replica in sorted(replicas, key=lambda each: each.bytes, reverse=True):
        size, number, held = heapq.heappop(bins)
        held.append(replica)
        heapq.heappush(bins, (size + replica.bytes + REPLICA_BYTES, number, held))
    return [held for _, _, held in sorted(bins, key=lambda each: (-each[0], each[1]))]


def absolute(place: str) -> str:
    """Make the path of a local folder absolute, since tasks have another working folder. Keep any other place."""
    if scheme_of(place) != "file":
        return place
    store = kept_store(place, {})
    return local_folder(store.url) or place
