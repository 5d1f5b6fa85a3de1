"""``litelog check``: whether a replica's store does what replication needs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from litelog.errors import ExitCode
from litelog.layout import Fencing
from litelog_cli.output import print_json, print_table

if TYPE_CHECKING:
    from litelog.probe import Step


@click.command(
    epilog="""\b
Examples:
  litelog check file:///backup/events
  litelog check 's3://bucket/events?region=eu-west-1'
  litelog check --json s3://bucket/events
  litelog check --fencing isolated sftp://backup/events
"""
)
@click.argument("replica_url")
@click.option(
    "--fencing",
    type=click.Choice([mode.value for mode in Fencing]),
    default=Fencing.REQUIRED.value,
    show_default=True,
    help="How the replica is fenced; isolated needs no create-only put.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each step, and one for the result.")
def check(replica_url: str, fencing: str, as_json: bool) -> int:
    """Try, step by step, all that replication does at REPLICA_URL, with objects of its own.

    Writes one small object, reads, lists and overwrites it (which must be refused), deletes another one on a condition,
    and deletes it. Says what each step took, what is missing, what that means, and with which fencing a replica there
    can be used. Exit code 1 if something is missing that replication needs. The daemon needs no such check: its claim,
    put twice, is one.
    """
    from random import SystemRandom

    from litelog.clock import SystemClock
    from litelog.probe import run_probe
    from litelog.registry import open_store

    store = open_store(replica_url)
    steps = []
    try:
        for step in run_probe(store, SystemClock(), SystemRandom(), Fencing(fencing)):
            steps.append(step)
            if as_json:
                print_json(dataclasses.asdict(step))
    finally:
        store.close()
    usable = _usable_fencing(steps)
    if as_json:
        print_json({"fencing": fencing, "usable": fencing in usable, "usable_fencing": usable})
    else:
        print_table(("step", "result", "ms", ""), [_row(step) for step in steps], numbers=("ms",))
        print_table(("usable with fencing",), [(f"{' or '.join(usable) or 'none'} (asked for: {fencing})",)])
    return ExitCode.DONE if fencing in usable else ExitCode.FAILURE


def _usable_fencing(steps: list[Step]) -> list[Fencing]:
    """The ways of fencing that a replica there can have."""
    from litelog.probe import CREATE_ONLY, Outcome

    passed = {step.name for step in steps if step.outcome is Outcome.PASSED}
    if any(step.required and step.name not in {CREATE_ONLY, *passed} for step in steps):
        return []
    return [Fencing.REQUIRED, Fencing.ISOLATED] if CREATE_ONLY in passed else [Fencing.ISOLATED]


def _row(step: Step) -> tuple[str, str, str, str]:
    detail = f"{step.reason}: {step.meaning}" if step.reason else ""
    return step.name, step.outcome.value, f"{step.seconds * 1000:.2f}" if step.seconds else "-", detail
