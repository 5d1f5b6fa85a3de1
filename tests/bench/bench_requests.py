"""Counts the requests of looks at a replica that Spark wrote, and of one more append, after many appends.

Bounds: six requests of a look, and twenty of an append, however many appends there were.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.testing import CliRunner
from measuring import Finding, Report

sys.path.insert(0, str(Path(__file__).parents[2]))

from litelog.reading.latest import open_latest
from litelog.spark.options import parse_options
from litelog.spark.scan.planning import plan
from litelog.stores.object_store import ObjectReplicaClient
from litelog.units import format_count
from litelog_cli.main import litelog
from tests.builders.many_generations import CountedReplica

if TYPE_CHECKING:
    from collections.abc import Callable

COUNTS = (1, 10, 100, 1000)
MOST_OF_A_LOOK, MOST_OF_AN_APPEND = 6, 20

LOOKS: dict[str, Callable[[CountedReplica], object]] = {
    "a plan of Spark": lambda replica: plan(parse_options({"path": replica.url})),
    "restore --dry-run": lambda replica: invoke("restore", "--dry-run", replica.url, "-o", "bench-out"),
    "the opening of cat": lambda replica: open_latest(ObjectReplicaClient(replica.store)),
    "status --replica": lambda replica: invoke("status", "--replica", replica.url),
}


def invoke(*arguments: str) -> None:
    """Run the command in this process. ClickException if it fails."""
    done = CliRunner().invoke(litelog, list(arguments))
    if done.exit_code:
        raise click.ClickException(f"litelog {' '.join(arguments)}: {done.output}")


def measure(report: Report, replica: CountedReplica) -> None:
    """Add the requests of each look, and of one more append."""
    after, unit = format_count(replica.appended, "append"), "requests"
    for name, look in LOOKS.items():
        made = sum(replica.count(partial(look, replica)).values())
        report.findings.append(Finding(name, after, (made,), at_most=MOST_OF_A_LOOK, unit=unit))
    made = sum(replica.count(replica.append).values())
    report.findings.append(Finding("an append", after, (made,), at_most=MOST_OF_AN_APPEND, unit=unit))


@click.command(help=__doc__)
@click.option("--most", default=COUNTS[-1], show_default=True, help="The most appends.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(most: int, as_json: bool) -> None:
    report, replica = Report("requests of a replica that Spark wrote"), CountedReplica()
    for count in (each for each in COUNTS if each <= most):
        while replica.appended < count:
            replica.append()
        measure(report, replica)
    report.print(as_json=as_json)


if __name__ == "__main__":
    main()
