"""Ships a log to a file replica, durably, in a new process, against LZ4's own command on the same files.

The yardsticks are ``cat | lz4 -1 > f; sync f``, and ``lz4 -1`` for each log segment in two processes with a sync of all
files at the end. The peak memory of shipping is measured for the large log and for a small one.
"""

from __future__ import annotations

import statistics
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from logs import make_log
from lz4_yardsticks import ONE, TWO, yardsticks
from measuring import (
    Finding,
    Report,
    bench_folder,
    children_seconds,
    empty,
    folder_bytes,
    interleave,
    measure,
    missing,
    peak_memory,
    rate,
    ratios,
    run,
    sync_tree,
)

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_MEMORY_MIB = 150
SHIP = "litelog replicate --once"


def ship_command(log: Path, target: Path) -> list[str | Path]:
    """Return the command that ships as a new owner to a new replica."""
    empty(target)
    command = Path(sys.executable).parent / "litelog"
    return [command, "replicate", "--once", "--state-dir", target / "state", log, target / "replica"]


def time_ship(log: Path, target: Path) -> float:
    command = ship_command(log, target)
    return measure(lambda: run(command))


def count_processor(call: Callable[[], float], spent: list[float]) -> float:
    """Run ``call``, and record the processor time of its commands: other programs on the machine hardly change it."""
    before = children_seconds()
    value = call()
    spent.append(children_seconds() - before)
    return value


@click.command(help=__doc__)
@click.option(
    "--folder",
    type=click.Path(exists=True),
    help="Folder to work in. It has to be on a disk, with room for 3 times --size.",
)
@click.option("--size", default=1024, help="MiB of log.")
@click.option("--small", default=256, help="MiB of log for the second measurement of memory.")
@click.option("--segment", default=64, help="MiB in a log segment.")
@click.option("--rounds", default=5, help="Number of interleaved rounds.")
@click.option("--patience", default=0.0, help="Seconds that each run may wait until the machine is quiet.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(folder: str | None, size: int, small: int, segment: int, rounds: int, patience: float, as_json: bool) -> None:
    report = Report(f"shipping {size} MiB")
    with bench_folder(folder) as work:
        log, target = work / "log", work / "shipped"
        log_bytes = make_log(log, size << 20, segment_bytes=segment << 20)
        sync_tree(log)
        calls = {SHIP: partial(time_ship, log, target)}
        if (reason := missing("lz4", "xargs")) is None:
            calls |= yardsticks(log, target)
        else:
            report.skipped["lz4"] = reason
        spent: dict[str, list[float]] = {name: [] for name in calls}
        counted = {name: partial(count_processor, call, spent[name]) for name, call in calls.items()}
        times = interleave(counted, rounds, patience)
        for name, taken in times.items():
            report.figures[name] = f"{rate(log_bytes, taken)}, {statistics.median(spent[name]):.2f} s of processor"
        for yardstick, at_least in ((ONE, 1.8), (TWO, 0.9)):
            if yardstick in times:
                report.findings.append(Finding(SHIP, yardstick, ratios(times[yardstick], times[SHIP]), at_least))
        peaks = [peak_memory(ship_command(log, target))]
        report.figures["log by replica, bytes"] = f"{log_bytes / folder_bytes(target / 'replica'):.2f}"
        empty(log)
        make_log(log, small << 20, segment_bytes=segment << 20)
        peaks.append(peak_memory(ship_command(log, target)))
        for mebibytes, peak in zip((size, small), peaks, strict=True):
            found = Finding(
                f"peak memory, {mebibytes} MiB", "the limit", (peak / 2**20,), at_most=MAX_MEMORY_MIB, unit="MiB"
            )
            report.findings.append(found)
    report.print(as_json=as_json)


if __name__ == "__main__":
    main()
