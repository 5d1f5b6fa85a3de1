"""The replicas that a listing verb covers: the one at a URL, or all of a configured log's."""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from litelog.encryption.identities import VARIABLE as IDENTITY_VARIABLE
from litelog.errors import NothingToRestoreError
from litelog.units import format_iso
from litelog_cli.arguments import opened_replica, parse_time
from litelog_cli.configured import AS_OF, IDENTITY, find_sources
from litelog_cli.logging_setup import say
from litelog_cli.output import print_json, with_times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation
    from litelog.stores.replica_client import ReplicaClient

Found = TypeVar("Found")
Command = TypeVar("Command", bound="Callable[..., Any]")


def _use_identity(ctx: click.Context, _param: click.Parameter, paths: Sequence[str]) -> None:
    """Let the verb read with the identities in a file, as the variable that names one would, but also if the
    configuration names another file."""
    if len(paths) > 1:
        raise click.UsageError("--identity is given twice: write all identities into one file")
    for path in paths:
        ctx.meta[IDENTITY] = os.path.abspath(path)
        ctx.with_resource(_set_variable(IDENTITY_VARIABLE, os.path.abspath(path)))


@contextmanager
def _set_variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


identity_option = click.option(
    "--identity",
    metavar="FILE",
    type=click.Path(),
    multiple=True,  # so that a second one is refused, and does not replace the first one
    expose_value=False,
    callback=_use_identity,
    help=f"File with an identity, for an encrypted replica.  [default: ${IDENTITY_VARIABLE}]",
)


def _keep_time(ctx: click.Context, _param: click.Parameter, text: str | None) -> None:
    if text is not None:
        ctx.meta[AS_OF] = format_iso(parse_time(text, datetime.now(UTC), "--as-of"))


as_of_option = click.option(
    "--as-of",
    metavar="TIME",
    expose_value=False,
    callback=_keep_time,
    help="Read the bucket as it was then, from the versions of its objects: 2026-11-21T10:00:00Z, or 1h (before now).",
)


def _config_option(description: str) -> Callable[[Command], Command]:
    """The options that a verb needs to open replicas: the configuration file, and the identity."""
    option = click.option("--config", "config_file", type=click.Path(), help=description)
    return lambda command: option(identity_option(command))


config_option = _config_option("Configuration file that contains the log in LOG_DIR.")

wide_option = click.option("--wide", is_flag=True, help="Show all columns.")

replica_config_option = _config_option("Configuration file with the replica's options.")

place_config_option = _config_option("Configuration file with the log, or with the replica's options.")


def each_replica(
    place: str, config_file: str | None, look: Callable[[ReplicaClient], Found]
) -> Iterator[tuple[str | None, ReplicaClient, Found]]:
    """Yield each replica that ``place`` names: its URL (None if there is only one), its client, and the result of
    ``look``. Each client stays open until the next replica is taken.

    ``look`` raises NothingToRestoreError for an empty replica. If there are several replicas, this function reports
    empty ones on standard error; if all are empty, it raises the error.
    """
    replicas = find_sources((place,), config_file).replicas
    several, skipped = len(replicas) > 1, 0
    for replica in replicas:
        try:
            with opened_replica(replica.url, replica.options) as client:
                found = look(client)
                yield (client.url if several else None), client, found
        except NothingToRestoreError as error:
            skipped += 1
            if skipped == len(replicas):
                raise
            say(f"litelog: skipped {error}", "replica-skipped", level=logging.WARNING)


def choose_claim(client: ReplicaClient, prefix: str | None) -> Claim:
    """The claim of the generation whose name begins with ``prefix``; None: of the latest one."""
    from litelog.reading.latest import expand_generation, find_claim, find_latest

    name = None if prefix is None else expand_generation(prefix, [client])
    return find_latest(client) if name is None else find_claim(client, name)


def choose_generation(client: ReplicaClient, prefix: str | None) -> Generation:
    """As ``choose_claim``, but returns the generation's name."""
    return choose_claim(client, prefix).generation


def print_facts(url: str | None, facts: Mapping[str, object], times: Sequence[str]) -> None:
    """Print ``facts`` as a JSON line, with the replica's URL if there are several replicas.

    ``times``: the names of the facts that are microseconds since 1970.
    """
    print_json({**({"replica": url} if url else {}), **with_times(facts, *times)})


def print_heading(url: str | None, echo: Callable[[str], None]) -> None:
    """Print the replica's URL above its table, if there are several replicas."""
    if url is not None:
        echo(f"{url}:")
