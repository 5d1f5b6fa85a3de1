"""Plans a scan of one generation of many objects in a fresh process: half sealed segments, and half WAL segments.

Measures the processor time of the plan, and by how much the peak memory grows. The store holds the claim and the
snapshot as files, and makes up the names of the WAL segments as they are listed. For a short run: --objects 20000.
"""

from __future__ import annotations

import os
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING

import click
from measuring import Finding, Report, bench_folder
from planned_replica import ListedStore, write_replica

from litelog.spark.options import parse_options
from litelog.spark.scan.planning import plan
from litelog.stores.registry import register_object_store

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_SECONDS, MOST_MEGABYTES = 5.0, 300.0
TARGETED = 1_000_000
"""The number of objects that the targets are for."""


def in_new_process(call: Callable[..., tuple[float, float, int]], *arguments: object) -> tuple[float, float, int]:
    """Run ``call`` in a process of its own, whose memory nothing else has used."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(call, *arguments).result()


def write(folder: str, objects: int) -> tuple[float, float, int]:
    write_replica(folder, objects)
    return 0.0, 0.0, 0


def measure_plan(folder: str, objects: int) -> tuple[float, float, int]:
    """Return the seconds of processor time of a plan, the megabytes by which memory grew, and its tasks."""
    register_object_store("listed", lambda _url, _options: ListedStore(folder, objects))
    plan(parse_options({"path": f"{folder}/small"}))  # loads what a plan needs
    options = parse_options({"path": "listed://replica"})
    before, started = _peak(), time.process_time()
    made = plan(options)
    return time.process_time() - started, (_peak() - before) / 1e6, len(made.partitions)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


@click.command(help=__doc__)
@click.option("--objects", default=TARGETED, show_default=True, help="Number of objects.")
@click.option("--rounds", default=3, show_default=True, help="Number of plans, each in a process of its own.")
@click.option("--folder", help="Folder to work in.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(objects: int, rounds: int, folder: str | None, as_json: bool) -> None:
    report = Report(f"a plan of {objects} objects of one generation")
    with bench_folder(folder) as work:
        place = os.fspath(work / "replica")
        in_new_process(write, place, objects)
        found = [in_new_process(measure_plan, place, objects) for _ in range(rounds)]
    report.figures["tasks"] = str(found[0][2])
    seconds, megabytes, _ = zip(*found, strict=True)
    bound = objects >= TARGETED
    name = f"planning {objects} objects"
    report.findings += [
        Finding(name, "processor", seconds, at_most=MOST_SECONDS if bound else None, unit="s"),
        Finding(name, "memory", megabytes, at_most=MOST_MEGABYTES if bound else None, unit="MB"),
    ]
    report.print(as_json=as_json)


if __name__ == "__main__":
    main()
