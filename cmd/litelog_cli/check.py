"""``litelog check``: whether a replica's store does what replication needs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from litelog.errors import ExitCode
from litelog_cli.output import print_json, print_table

if TYPE_CHECKING:
    from litelog.probe import Step


@click.command(
    epilog="""\b
Examples:
  litelog check file:///backup/events
  litelog check 's3://bucket/events?region=eu-west-1'
  litelog check --json s3://bucket/events
"""
)
@click.argument("replica_url")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each step.")
def check(replica_url: str, as_json: bool) -> int:
    """Try, step by step, all that replication does at REPLICA_URL, with an object of its own.

    Writes one small object, reads, lists and overwrites it (which must be refused), and deletes it. Says what each step
    took, what is missing, and what that means. Exit code 1 if something is missing that replication needs. The daemon
    needs no such check: its claim, put twice, is one.
    """
    from random import SystemRandom

    from litelog.clock import SystemClock
    from litelog.probe import Outcome, run_probe
    from litelog.registry import open_store

    store = open_store(replica_url)
    steps = []
    try:
        for step in run_probe(store, SystemClock(), SystemRandom()):
            steps.append(step)
            if as_json:
                print_json(dataclasses.asdict(step))
    finally:
        store.close()
    if not as_json:
        print_table(("step", "result", "ms", ""), [_row(step) for step in steps], numbers=("ms",))
    missing = [step for step in steps if step.required and step.outcome is not Outcome.PASSED]
    return ExitCode.FAILURE if missing else ExitCode.DONE


def _row(step: Step) -> tuple[str, str, str, str]:
    detail = f"{step.reason}: {step.meaning}" if step.reason else ""
    return step.name, step.outcome.value, f"{step.seconds * 1000:.1f}" if step.seconds else "-", detail
