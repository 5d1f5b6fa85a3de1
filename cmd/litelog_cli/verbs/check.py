"""``litelog check``: tries whether a replica's store does what replication needs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from litelog.errors import ExitCode
from litelog.objects.layout import Fencing
from litelog_cli.arguments import PLACE
from litelog_cli.configured import ConfiguredReplica, find_sources
from litelog_cli.listed import print_heading
from litelog_cli.output import echo, print_json, print_table

if TYPE_CHECKING:
    from litelog.stores.probe import ProbeStep


@click.command(
    epilog="""\b
Examples:
  litelog check file:///backup/events
  litelog check 's3://bucket/events?region=eu-west-1'
  litelog check --json s3://bucket/events
  litelog check --fencing isolated sftp://backup/events
  litelog check --config /etc/litelog.yml /var/lib/events
"""
)
@click.argument("place", metavar="REPLICA_URL|LOG_DIR", type=PLACE)
@click.option(
    "--config", "config_file", type=click.Path(), help="Configuration file with LOG_DIR, or with the replica's options."
)
@click.option(
    "--fencing",
    type=click.Choice([mode.value for mode in Fencing]),
    help="How to fence the replica; isolated works without create-only puts.  [default: as configured, or required]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each step, and one for the result.")
def check(place: str, config_file: str | None, fencing: str | None, as_json: bool) -> int:
    """Try all that replication does at REPLICA_URL, or at each replica of a configured log, with test objects.

    Writes a small object, reads and lists it, and overwrites it, which the store must refuse. Lets eight threads put
    one key at the same moment, of which exactly one must win. Deletes an object conditionally, and the first object.
    Lists 1,001 objects, which takes a second or more (not done in a folder). Prints how long each step took, what is
    missing, the consequences, and which fencing the store supports. Exits with code 1 if something that replication
    needs is missing. The daemon tries the same with fewer objects before its first claim at a destination.
    """
    replicas = find_sources((place,), config_file).replicas
    modes = [Fencing(fencing) if fencing is not None else replica.fencing for replica in replicas]
    checked = [_check(*pair, len(replicas) > 1, as_json) for pair in zip(replicas, modes, strict=True)]
    return ExitCode.DONE if all(checked) else ExitCode.FAILURE


def _check(replica: ConfiguredReplica, fencing: Fencing, heading: bool, as_json: bool) -> bool:
    """Whether the replica can be used with that fencing."""
    from random import SystemRandom

    from litelog.stores.probe import run_probe
    from litelog.stores.registry import local_folder, open_store
    from litelog.stores.trial import LISTED
    from litelog.system.clock import SystemClock

    store = open_store(replica.url, replica.options)
    steps = []
    listed = LISTED if local_folder(store.url) is None else 0  # a folder has no pages
    try:
        for step in run_probe(store, SystemClock(), SystemRandom(), fencing, listed):
            steps.append(step)
            if as_json:
                print_json(dataclasses.asdict(step))
    finally:
        store.close()
    usable = _usable_fencing(steps)
    if as_json:
        print_json({"replica": store.url, "fencing": fencing, "usable": fencing in usable, "usable_fencing": usable})
    else:
        print_heading(store.url if heading else None, echo)
        print_table(("step", "result", "ms", ""), [_row(step) for step in steps], numbers=("ms",))
        echo(f"usable with fencing: {' or '.join(usable) or 'none'} (requested: {fencing})")
    return fencing in usable


def _usable_fencing(steps: list[ProbeStep]) -> list[Fencing]:
    """The ways of fencing that the store supports."""
    from litelog.stores.probe import FENCING_STEPS, StepOutcome

    lacking = {step.name for step in steps if step.outcome in {StepOutcome.FAILED, StepOutcome.SKIPPED}}
    if any(step.required and step.name in lacking - FENCING_STEPS for step in steps):
        return []
    return [Fencing.ISOLATED] if lacking & FENCING_STEPS else [Fencing.REQUIRED, Fencing.ISOLATED]


def _row(step: ProbeStep) -> tuple[str, str, str, str]:
    detail = f"{step.reason}: {step.meaning}" if step.reason else ""
    return step.name, step.outcome.value, f"{step.seconds * 1000:.2f}" if step.seconds else "-", detail
