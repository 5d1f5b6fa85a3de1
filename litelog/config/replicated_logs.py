"""Finds the logs of a configuration by their replicas: also those whose folders are lost."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from litelog.errors import StoreError
from litelog.events import fields
from litelog.stores.missing import find_replicas
from litelog.stores.opening import opened_replica

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.config.entries import FolderConfig, LogConfig, ReplicaConfig
    from litelog.config.models import Config

MAX_LEVELS = 32
"""How many levels below a URL are searched for the replicas of an entry with ``recursive``."""

_logger = logging.getLogger(__name__)


def find_replicated_logs(config: Config) -> list[LogConfig]:
    """Return the logs with their own entries, and those for which a replica exists where a folder's entry puts it.

    Makes two requests for each name on the way to a replica.

    Raises:
        ConfigError: A URL cannot be opened.
        StoreError: None of the destinations of a folder's entry could be listed.
    """
    logs = {log.path: log for log in config.own_logs}
    for folder in config.folders:
        for name in sorted(_names_of(folder)):
            log = folder.named(name)
            logs.setdefault(log.path, log)
    return list(logs.values())


def _names_of(folder: FolderConfig) -> set[str]:
    """The names of the logs of a folder's entry that have a replica at any of its destinations."""
    names: set[str] = set()
    failures: list[StoreError] = []
    for replica in folder.replicas:
        try:
            names.update(_names_at(folder, replica))
        except StoreError as error:
            failures.append(error)
            message = "%s; the logs of %s are taken from the other replicas"
            _logger.warning(message, error, folder.dir, extra=fields("replicas-not-listed", log=folder.dir))
    if len(failures) == len(folder.replicas):
        raise failures[0]
    return names


def _names_at(folder: FolderConfig, replica: ReplicaConfig) -> Iterator[str]:
    above, levels = replica.above(MAX_LEVELS if folder.recursive else folder.depth)
    with opened_replica(above, replica.options) as client:
        for place in find_replicas(client.store, levels=levels):
            name = replica.name_below(place)
            if name is not None and folder.means(name):
                yield name
