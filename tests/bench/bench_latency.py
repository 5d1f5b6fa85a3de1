"""Measures the time from an append's return until its object is durable in a file replica, at a steady rate of commits.

Another process runs the daemon. The yardstick is a bare write, fsync, rename and fsync of the folder for an object of
the same size, at the same rate. Both take turns of about a second.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import TYPE_CHECKING

import click
from daemon import Daemon, running
from logs import make_block
from measuring import Finding, Report, bench_folder, cpu_seconds, empty, milliseconds, percentile

from litelog.log.writer import LogWriter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SETTLE_SECONDS = 0.2
"""The pause between turns: the disk empties its queue, so that one turn does not slow down the next."""

LATENCY, BARE = "append to durable", "bare write, fsync, rename, fsync of the folder"


def paced(count: int, seconds: float) -> Iterator[int]:
    """Yield a number every ``seconds``. A late number follows at once."""
    start = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, start + number * seconds - time.monotonic()))
        yield number


def append_turn(writer: LogWriter, daemon: Daemon, batches: list[list[bytes]], gap: float) -> tuple[list[float], int]:
    """Append at a steady pace.

    Returns:
        The seconds from each append's return until its object was durable, and the median size of the objects.
    """
    returned: list[tuple[int, float]] = []
    for number in paced(len(batches), gap):
        appended = writer.append(batches[number])
        returned.append((appended.next, time.monotonic()))
    durable = daemon.wait_for(returned[-1][0])
    found = []
    events = iter(durable)
    event = next(events)
    for sequence, at in returned:
        while event.next < sequence:
            event = next(events)
        found.append(max(0.0, event.at - at))
    return found, int(statistics.median(event.size for event in durable))


def write_turn(folder: Path, size: int, count: int, gap: float) -> list[float]:
    """Write objects at a steady pace, and return the seconds that each took."""
    body = os.urandom(size)
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    found = []
    for number in paced(count, gap):
        start = time.monotonic()
        file = os.open(folder / "temporary", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(file, body)
        os.fsync(file)
        os.close(file)
        os.rename(folder / "temporary", folder / f"{number}-{start}")
        os.fsync(directory)
        found.append(time.monotonic() - start)
    os.close(directory)
    return found


@click.command(help=__doc__)
@click.option("--folder", type=click.Path(exists=True), help="Folder to work in. It has to be on a disk.")
@click.option("--rate", default=100, help="Number of commits a second.")
@click.option("--size", default=10_000, help="Number of bytes in a commit.")
@click.option("--rounds", default=15, help="Number of turns, of a second each.")
@click.option("--sync-interval", default="1ms", help="The daemon's sync interval.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(folder: str | None, rate: int, size: int, rounds: int, sync_interval: str, as_json: bool) -> None:
    report = Report(f"{rate} commits a second of {size} bytes, sync interval {sync_interval}")
    ours: list[list[float]] = []
    bare: list[list[float]] = []
    spent: list[float] = []
    with (
        bench_folder(folder) as work,
        LogWriter(str(work / "log")) as writer,
        running(work, [work / "log"], "--sync-interval", sync_interval) as daemon,
    ):
        bare_folder = empty(work / "bare")
        writer.append(make_block(size, 0))
        daemon.wait_for(1)
        for number in range(rounds + 1):
            batches = [make_block(size, number * rate + count) for count in range(rate)]
            time.sleep(SETTLE_SECONDS)
            before = cpu_seconds(daemon.pid)
            latencies, object_bytes = append_turn(writer, daemon, batches, 1 / rate)
            used = cpu_seconds(daemon.pid) - before
            time.sleep(SETTLE_SECONDS)
            writes = write_turn(bare_folder, object_bytes, rate, 1 / rate)
            if number:  # the first round warms up
                ours.append(latencies)
                bare.append(writes)
                spent.append(used)
    for name, turns in ((LATENCY, ours), (BARE, bare)):
        values = [value for turn in turns for value in turn]
        parts = (f"p{percent} {percentile(values, percent) * 1e3:.2f} ms" for percent in (50, 90, 99))
        report.figures[name] = ", ".join(parts)
    report.figures["object"] = f"{object_bytes} bytes"
    report.figures["daemon's processor time for a second of appends"] = milliseconds(spent)
    for percent, most in ((50, 3.0), (99, 6.0)):
        values = tuple(percentile(a, percent) / percentile(b, percent) for a, b in zip(ours, bare, strict=True))
        report.findings.append(Finding(f"{LATENCY}, p{percent}", BARE, values, at_most=most))
    report.print(as_json=as_json)


if __name__ == "__main__":
    main()
