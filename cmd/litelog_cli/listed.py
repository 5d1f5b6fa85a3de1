"""The replicas that a listing verb lists: the one at a URL, or all of a configured log's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from litelog.position import Generation, generation
from litelog_cli.configured import find_sources
from litelog_cli.places import opened_replica

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from litelog.claim import Claim
    from litelog.replica_client import ReplicaClient

config_option = click.option(
    "--config", "config_file", type=click.Path(), help="The configuration file in which LOG_DIR is a log."
)


replica_config_option = click.option(
    "--config", "config_file", type=click.Path(), help="The configuration file that has the replica's own options."
)


def each_replica(place: str, config_file: str | None) -> Iterator[tuple[str | None, ReplicaClient]]:
    """The replicas that ``place`` names, each open until the next one is asked for, and its URL where there are
    several."""
    replicas = find_sources((place,), config_file).replicas
    for replica in replicas:
        with opened_replica(replica.url, replica.options) as client:
            yield (client.url if len(replicas) > 1 else None), client


def choose_claim(client: ReplicaClient, name: Generation | None) -> Claim:
    """The claim of that generation, or of the latest one."""
    from litelog.reading.generation_choice import find_claim, find_latest

    return find_latest(client) if name is None else find_claim(client, name)


def choose_generation(client: ReplicaClient, name: Generation | None) -> Generation:
    """As ``choose_claim``, its name."""
    return generation(choose_claim(client, name).generation)


def print_heading(url: str | None, echo: Callable[[str], None]) -> None:
    """Say which replica the table below is of, where there are several."""
    if url is not None:
        echo(f"{url}:")
