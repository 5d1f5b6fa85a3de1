"""Measures the cost of a daemon with very many logs: at its start, idle, with a commit a second each, and at its end.

One entry of the configuration finds all logs, a tree of topics. Their replicas are folders. The daemon serves its
status over HTTP all the while. For comparison, some of the logs are measured with one process each.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from logs import make_block
from measuring import Finding, Report, bench_folder, cpu_seconds, empty, percentile, status_bytes

from litelog.log.writer import LogWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SETTLE_SECONDS = 5.0
"""The wait after the first sync: the daemon saves positions and frees buffers."""

WAIT_SECONDS = 180.0

SHUTDOWN_SECONDS = 5.0
"""The ``shutdown-timeout`` of the daemon whose replicas do not answer."""

TREE = """\
state-dir: {work}/state
shutdown-timeout: {timeout}
addr: off
logs:
  - dir: {logs}
    pattern: "*/*"
    replicas:
      - url: {url}
"""

ONE = """\
state-dir: {work}/state
addr: off
logs: [{{path: {log}, replicas: [{{url: "file://{work}/replica"}}]}}]
"""

SCRIPT = """
import os, sys, threading, time
from pathlib import Path
from litelog.system.memory import keep_freed_memory
from litelog.config import load_config
from litelog.replicator import Replicator
from litelog.server.service import Service, ServiceSettings
import slow_store

output = os.open(Path(sys.argv[1]).parent / "shipped", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

class ShippedLines:
    def on_wal_segment_shipped(self, event):
        os.write(output, b" %s %d %d\\n" % (event.log.encode(), event.header.next or 0, time.monotonic_ns()))
    def on_generation_started(self, log, replica, claim): ...
    def on_segment_sealed(self, event): ...
    def on_snapshot_written(self, event): ...

keep_freed_memory()
slow_store.register(Path(sys.argv[1]).parent / "registered")
ready = False
def report_ready():
    global ready
    if not ready and replicator.is_ready():
        ready = True
        os.write(1, b"ready\\n")
config = load_config(Path(sys.argv[1]), os.environ)
replicator = Replicator(
    config, state_dir=config.state_dir, host="benchmark", listener=ShippedLines(), on_turn=report_ready
)
import signal
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=replicator.stop).start())
try:
    with Service(replicator, ServiceSettings(60.0, f"unix:{config.state_dir}.sock")):
        replicator.run()
except Exception as error:
    os.write(2, f"{error}\\n".encode()[:300])
if replicator.abandoned:
    os._exit(4)
"""


@dataclass(slots=True)
class Daemon:
    """A running daemon. It writes what it ships to a file, as it would block on a pipe that is not read."""

    process: subprocess.Popen[str]
    started: float
    shipped: Path

    def wait_for_ready(self) -> float:
        """Wait until each log was synced once, and return the seconds since the daemon's start."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line == "ready\n":
                return time.monotonic() - self.started
        raise click.ClickException("the daemon ended before it was ready")

    def stop(self) -> float:
        """Send SIGTERM, and return the seconds until the daemon's end."""
        start = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.stdout is not None
        self.process.stdout.read()
        self.process.wait(WAIT_SECONDS)
        return time.monotonic() - start


@contextmanager
def running(config: Path) -> Iterator[Daemon]:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(config)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
    )
    daemon = Daemon(process, time.monotonic(), config.parent / "shipped")
    try:
        yield daemon
    finally:
        process.kill()
        process.wait(WAIT_SECONDS)


def make_tree(folder: Path, count: int) -> list[Path]:
    """Create logs with a few records each, a hundred below each broker."""
    logs = [folder / f"broker-{number // 100:02d}" / f"topic-{number % 100:02d}" for number in range(count)]
    for number, log in enumerate(logs):
        with LogWriter(str(log), fsync="never") as writer:
            writer.append(make_block(1000, number))
    return logs


def write_config(work: Path, logs: Path, *, scheme: str = "file", timeout: str = "10s") -> Path:
    path = work / "litelog.yml"
    path.write_text(TREE.format(work=work, logs=logs, timeout=timeout, url=f"{scheme}://{work}/replicas"))
    return path


def measure_idle(report: Report, work: Path, count: int, seconds: float, rounds: int) -> None:
    """Measure the first start, the cost of idle logs, the end, the second start, and its end."""
    make_tree(work / "logs", count)
    config = write_config(work, work / "logs")
    with running(config) as daemon:
        first = daemon.wait_for_ready()
        time.sleep(SETTLE_SECONDS)
        taken = []
        for _ in range(rounds):
            start, before = time.monotonic(), cpu_seconds(daemon.process.pid)
            time.sleep(seconds / rounds)
            taken.append(100 * (cpu_seconds(daemon.process.pid) - before) / (time.monotonic() - start))
        pid = daemon.process.pid
        memory, peak = (status_bytes(pid, name) / 2**20 for name in ("VmRSS", "VmHWM"))
        files = len(os.listdir(f"/proc/{pid}/fd"))
        threads = len(os.listdir(f"/proc/{pid}/task"))
        end = daemon.stop()
    with running(config) as daemon:
        again = daemon.wait_for_ready()
        end_again = daemon.stop()
    report.figures |= {
        f"first start with {count} new logs, to ready": f"{first:.1f} s",
        "open files": str(files),
        "threads": str(threads),
        "resident memory": f"{memory:.0f} MiB",
    }
    report.findings += [
        Finding(f"processor time, {count} idle logs", "one core", tuple(taken), at_most=0.5, unit="%"),
        Finding(f"peak memory, {count} logs", "the limit", (peak,), at_most=200, unit="MiB"),
        Finding(f"start to ready, {count} known logs", "the limit", (again,), at_most=10, unit="s"),
        Finding("SIGTERM to exit", "the limit", (end, end_again), at_most=2, unit="s"),
    ]


def measure_hung(report: Report, work: Path, count: int) -> None:
    """Measure the end of a daemon whose replicas do not answer; each log has a commit that is not shipped."""
    logs = make_tree(work / "logs", count)
    config = write_config(work, work / "logs", scheme="slow", timeout=f"{SHUTDOWN_SECONDS:g}s")
    with running(config) as daemon:
        daemon.wait_for_ready()
        (work / "hang").touch()
        for log in logs:
            with LogWriter(str(log), fsync="never") as writer:
                writer.append(b"late")
        time.sleep(2)
        end = daemon.stop()
    report.findings.append(
        Finding(
            f"SIGTERM to exit, no replica of {count} answers",
            "shutdown-timeout",
            (end / SHUTDOWN_SECONDS,),
            at_most=1.0,
            unit="of it",
        )
    )


def drive(logs: Sequence[Path], daemons: Sequence[Daemon], seconds: float) -> tuple[float, list[float]]:
    """Append a record a second to each log.

    Returns:
        The cores that the daemons used, and for each commit the seconds until it was durable.
    """
    pids = [daemon.process.pid for daemon in daemons]
    command = [sys.executable, str(Path(__file__).with_name("many_writer.py")), "--seconds", str(seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.write("".join(f"{log}\n" for log in logs))
        process.stdin.close()
        assert process.stdout is not None
        process.stdout.readline()  # all writers are open
        before, start = sum(map(cpu_seconds, pids)), time.monotonic()
        written = process.stdout.read().splitlines()
        cores = (sum(map(cpu_seconds, pids)) - before) / (time.monotonic() - start)
    time.sleep(SETTLE_SECONDS)
    shipped: dict[str, list[tuple[int, int]]] = {}
    for daemon in daemons:
        daemon.process.send_signal(signal.SIGTERM)
    for daemon in daemons:
        daemon.process.wait(WAIT_SECONDS)
        for line in daemon.shipped.read_text().splitlines():
            log, sequence, at = line.split()
            shipped.setdefault(log, []).append((int(sequence), int(at)))
    lags = []
    for line in written:
        log, sequence, at = line.split()
        durable = next((when for reached, when in shipped.get(log, ()) if reached >= int(sequence)), None)
        if durable is not None:
            lags.append((durable - int(at)) / 1e9)
    if len(lags) < len(written):
        raise click.ClickException(f"{len(written) - len(lags)} commits of {len(written)} were not shipped")
    return cores, lags


def measure_busy(report: Report, work: Path, count: int, few: int, seconds: float) -> None:
    logs = make_tree(work / "logs", count)
    with running(write_config(work, work / "logs")) as daemon:
        daemon.wait_for_ready()
        cores, lags = drive(logs, [daemon], seconds)
    report.figures[f"one process, {count} logs: cores"] = f"{cores:.2f}"
    report.figures[f"one process, {count} logs: lag"] = format_lags(lags)
    tree = make_tree(empty(work / "some") / "logs", few)
    with running(write_config(work / "some", work / "some" / "logs")) as daemon:
        daemon.wait_for_ready()
        together, lags = drive(tree, [daemon], seconds)
    report.figures[f"one process, {few} logs: cores"] = f"{together:.2f}"
    report.figures[f"one process, {few} logs: lag"] = format_lags(lags)
    alone = make_tree(empty(work / "alone") / "logs", few)
    with ExitStack() as stack:
        daemons = []
        for number, log in enumerate(alone):
            folder = empty(work / "alone" / f"work-{number}")
            config = folder / "litelog.yml"
            config.write_text(ONE.format(work=folder, log=log))
            daemons.append(stack.enter_context(running(config)))
        for daemon in daemons:
            daemon.wait_for_ready()
        apart, lags = drive(alone, daemons, seconds)
    report.figures[f"{few} processes: cores"] = f"{apart:.2f}"
    report.figures[f"{few} processes: lag"] = format_lags(lags)
    report.findings.append(
        Finding(
            f"processor time, {few} logs in one process", "a process each", (together / apart,), at_most=1, unit="of it"
        )
    )


def format_lags(lags: Sequence[float]) -> str:
    return f"median {percentile(lags, 50):.2f} s, 99 % {percentile(lags, 99):.2f} s, n {len(lags)}"


@click.command(help=__doc__)
@click.option("--folder", type=click.Path(exists=True), help="Folder to work in. It has to be on a disk.")
@click.option("--logs", default=1000, help="Number of logs.")
@click.option("--few", default=50, help="Number of logs for the comparison of one process with a process per log.")
@click.option("--seconds", default=30.0, help="Seconds for which each side is measured.")
@click.option("--rounds", default=3, help="Number of parts into which the idle time is divided.")
@click.option(
    "--part",
    type=click.Choice(["idle", "hung", "busy"]),
    multiple=True,
    help="Part to run; may be repeated.  [default: all]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(
    folder: str | None, logs: int, few: int, seconds: float, rounds: int, part: tuple[str, ...], as_json: bool
) -> None:
    report = Report(f"a daemon with {logs} logs of one entry")
    with bench_folder(folder) as work:
        if not part or "idle" in part:
            measure_idle(report, empty(work / "idle"), logs, seconds, rounds)
        if not part or "hung" in part:
            measure_hung(report, empty(work / "hung"), logs)
        if not part or "busy" in part:
            measure_busy(report, empty(work / "busy"), logs, few, seconds)
    report.print(as_json=as_json)


if __name__ == "__main__":
    main()
