"""Plans a scan of one generation of many objects in a fresh process: half sealed segments, and half WAL segments.

Measures the processor time of the plan, and that of the plan and of its form for the columnar reader, and by how much
both make the peak memory grow. The store holds the claim and the
snapshot as files, and makes up the names of the WAL segments as they are listed. For a short run: --objects 20000.
"""

from __future__ import annotations

import collections
import os
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING

import click
from measuring import Finding, Report, bench_folder
from planned_replica import ListedStore, write_replica

from litelog.spark.jvm.handover import hand_over
from litelog.spark.options import parse_options
from litelog.spark.scan.planning import plan, stated_columns
from litelog.stores.registry import register_object_store

if TYPE_CHECKING:
    from collections.abc import Callable

Measured = tuple[float, float, float, int]

MOST_SECONDS, MOST_MEGABYTES = 5.0, 300.0
TARGETED = 1_000_000
"""The number of objects that the targets are for."""


def in_new_process(call: Callable[..., Measured], *arguments: object) -> Measured:
    """Run ``call`` in a new process, whose memory nothing else has used."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(call, *arguments).result()


def write(folder: str, objects: int) -> Measured:
    write_replica(folder, objects)
    return 0.0, 0.0, 0.0, 0


def measure_plan(folder: str, objects: int) -> Measured:
    """Return the seconds of processor time of a plan, and of the plan and its form for Java, the megabytes by which
    memory grew, and the tasks."""
    register_object_store("listed", lambda _url, _options: ListedStore(folder, objects))
    small = parse_options({"path": f"{folder}/small"})
    columns = stated_columns(small)
    collections.deque(hand_over(plan(small).partitions, columns).chunks(), maxlen=0)  # loads what a plan needs
    options = parse_options({"path": "listed://replica"})
    before, started = _peak(), time.process_time()
    made = plan(options)
    planned = time.process_time() - started
    collections.deque(hand_over(made.partitions, columns).chunks(), maxlen=0)
    return planned, time.process_time() - started, (_peak() - before) / 1e6, len(made.partitions)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


@click.command(help=__doc__)
@click.option("--objects", default=TARGETED, show_default=True, help="Number of objects.")
@click.option("--rounds", default=3, show_default=True, help="Number of plans, each in a new process.")
@click.option("--folder", help="Folder to work in.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(objects: int, rounds: int, folder: str | None, as_json: bool) -> None:
    report = Report(f"a plan of {objects} objects of one generation")
    with bench_folder(folder) as work:
        place = os.fspath(work / "replica")
        in_new_process(write, place, objects)
        found = [in_new_process(measure_plan, place, objects) for _ in range(rounds)]
    report.figures["tasks"] = str(found[0][-1])
    seconds, handed_over, megabytes, _ = zip(*found, strict=True)
    bound = objects >= TARGETED
    name = f"planning {objects} objects"
    report.findings += [
        Finding(name, "processor", seconds, at_most=MOST_SECONDS if bound else None, unit="s"),
        Finding(
            f"{name}, and handing the plan over",
            "processor",
            handed_over,
            at_most=MOST_SECONDS if bound else None,
            unit="s",
        ),
        Finding(name, "memory", megabytes, at_most=MOST_MEGABYTES if bound else None, unit="MB"),
    ]
    report.print(as_json=as_json)


if __name__ == "__main__":
    main()
