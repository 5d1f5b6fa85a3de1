"""Measures the cost of a daemon that has little to do: first many idle logs, then one log with steady appends.

The kernel counts the processor time of the daemon's threads; the report shows it as a share of one core. A wrapper
around the file store counts the requests.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
from daemon import Daemon, running
from logs import make_block
from measuring import Finding, Report, bench_folder, cpu_seconds, status_bytes

from litelog.log.writer import LogWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

SETTLE_SECONDS = 5.0
"""The wait after the last WAL segment: the daemon saves positions and frees buffers."""


def make_logs(folder: Path, count: int) -> list[Path]:
    """Create logs with a few records each."""
    logs = [folder / f"log-{number:03d}" for number in range(count)]
    for number, log in enumerate(logs):
        with LogWriter(str(log)) as writer:
            writer.append(make_block(10_000, number))
    return logs


def shares(daemon: Daemon, seconds: float, rounds: int) -> tuple[float, ...]:
    """Measure ``rounds`` times, over ``seconds`` each, what share of one core the daemon uses, in percent."""
    found = []
    for _ in range(rounds):
        start, before = time.monotonic(), cpu_seconds(daemon.pid)
        time.sleep(seconds)
        found.append(100 * (cpu_seconds(daemon.pid) - before) / (time.monotonic() - start))
    return tuple(found)


def measure_idle(report: Report, work: Path, count: int, seconds: float, rounds: int) -> None:
    logs = make_logs(work / "idle", count)
    with running(work, logs) as daemon:
        daemon.wait_for_count(count)
        time.sleep(SETTLE_SECONDS)
        before = daemon.requests()
        taken = shares(daemon, seconds / rounds, rounds)
        sent = daemon.requests() - before
        memory = status_bytes(daemon.pid, "VmHWM") / 2**20
    report.figures[f"requests to ship {count} logs"] = str(before)
    report.findings += [
        Finding(f"processor time, {count} idle logs", "one core", taken, at_most=0.1, unit="%"),
        Finding(f"requests, {count} idle logs", f"{seconds:g} s", (float(sent),), at_most=0, unit="requests"),
        Finding(f"peak memory, {count} logs", "the limit", (memory,), at_most=150, unit="MiB"),
    ]


def measure_busy(report: Report, work: Path, rate: int, seconds: float, rounds: int) -> None:
    log = work / "busy" / "log"
    with LogWriter(str(log)) as writer:
        writer.append(b"first")
    command: Sequence[str] = [sys.executable, str(Path(__file__).with_name("steady_writer.py")), "--rate", str(rate)]
    with running(work, [log]) as daemon:
        daemon.wait_for(1)
        with subprocess.Popen([*command, "--seconds", str(seconds + 4), log], stdout=subprocess.PIPE) as process:
            time.sleep(2)
            before = daemon.requests()
            taken = shares(daemon, seconds / rounds, rounds)
            sent = daemon.requests() - before
            output, _ = process.communicate()
        memory = status_bytes(daemon.pid, "VmHWM") / 2**20
    report.figures["appends a second, measured"] = output.decode().strip()
    report.findings += [
        Finding(f"processor time, {rate} appends a second", "one core", taken, at_most=10.0, unit="%"),
        Finding(f"requests, {rate} appends a second", "one second", (sent / seconds,), at_most=1.1, unit="requests"),
        Finding("peak memory, busy log", "the limit", (memory,), at_most=150, unit="MiB"),
    ]


@click.command(help=__doc__)
@click.option("--folder", type=click.Path(exists=True), help="Folder to work in. It has to be on a disk.")
@click.option("--logs", default=100, help="Number of idle logs.")
@click.option("--rate", default=10_000, help="Number of appends a second to the busy log.")
@click.option("--seconds", default=60.0, help="Seconds for which each daemon is measured.")
@click.option("--rounds", default=6, help="Number of parts into which these seconds are divided.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(folder: str | None, logs: int, rate: int, seconds: float, rounds: int, as_json: bool) -> None:
    report = Report(f"a daemon with {logs} idle logs, then one with {rate} appends a second")
    with bench_folder(folder) as work:
        measure_idle(report, work / "a", logs, seconds, rounds)
        measure_busy(report, work / "b", rate, seconds, rounds)
    report.print(as_json=as_json)


if __name__ == "__main__":
    main()
