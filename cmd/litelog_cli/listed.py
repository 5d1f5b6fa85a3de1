"""The replicas that a listing verb covers: the one at a URL, or all of a configured log's."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import click

from litelog.errors import NothingToRestoreError
from litelog_cli.arguments import is_replica, opened_replica
from litelog_cli.configured import find_sources
from litelog_cli.logging_setup import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation
    from litelog.stores.replica_client import ReplicaClient

config_option = click.option(
    "--config", "config_file", type=click.Path(), help="Configuration file that contains the log in LOG_DIR."
)


replica_config_option = click.option(
    "--config", "config_file", type=click.Path(), help="Configuration file with the replica's options."
)

place_config_option = click.option(
    "--config",
    "config_file",
    type=click.Path(),
    help="Configuration file with the log, or with the replica's options.",
)


def each_replica(
    place: str, config_file: str | None, require: Callable[[ReplicaClient], object]
) -> Iterator[tuple[str | None, ReplicaClient]]:
    """Yield the replicas that ``place`` names, with their URL if there are several. Each stays open until the next one.

    If there are several, empty ones are reported on standard error. ``require`` raises NothingToRestoreError for an
    empty replica; if all are empty, so does this function.
    """
    replicas = find_sources((place,), config_file).replicas
    skipped = 0
    for replica in replicas:
        with opened_replica(replica.url, replica.options) as client:
            try:
                if len(replicas) > 1 or _may_be_log(replica.url, place):
                    require(client)
            except NothingToRestoreError as error:
                if len(replicas) == 1:
                    raise NothingToRestoreError(
                        f"{error}; if it is a log, name its configuration (--config)"
                    ) from error
                skipped += 1
                if skipped == len(replicas):
                    raise
                say(f"litelog: skipped {error}", "replica-skipped", level=logging.WARNING)
                continue
            yield (client.url if len(replicas) > 1 else None), client


def _may_be_log(url: str, place: str) -> bool:
    """Whether ``place`` is a local folder that is neither a replica nor in a configuration."""
    return url == place and not is_replica(place) and os.path.isdir(place)


def choose_claim(client: ReplicaClient, name: Generation | None) -> Claim:
    """The claim of that generation, or of the latest one."""
    from litelog.reading.latest import find_claim, find_latest

    return find_latest(client) if name is None else find_claim(client, name)


def choose_generation(client: ReplicaClient, name: Generation | None) -> Generation:
    """As ``choose_claim``, but returns the generation's name."""
    return choose_claim(client, name).generation


def print_heading(url: str | None, echo: Callable[[str], None]) -> None:
    """Print the replica's URL above its table, if there are several replicas."""
    if url is not None:
        echo(f"{url}:")
