"""Compares litelog with Litestream: the same rows, the same places, in turns.

Every program on the path whose name begins with ``litestream`` takes part. S3 is a MinIO on the path, or the server at
``--endpoint``; a proxy before it counts requests and bytes. What is missing is left out, and the report says so. All
run as daemons with their defaults. litelog syncs what it ships to disk; Litestream does not. The time of a first
contact ends with the last byte before the replica is quiet. The times are wall times, and processor times of the daemon
or the command with its start.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from counting_proxy import Counts, counting
from logs import make_rows
from measuring import (
    MEMORY_POLL_SECONDS,
    Report,
    bench_folder,
    cpu_seconds,
    empty,
    folder_bytes,
    missing,
    status_bytes,
)
from rival_programs import Place, find_missing, find_programs
from s3_server import KEY_ID, SECRET, make_bucket, serving_minio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rival_programs import Program

QUIET_SECONDS = 3.0
SETTLE_SECONDS = 5.0
LONGEST_SECONDS = 300.0
LONE_COMMITS = 8
POLL_SECONDS = 0.002
ROWS = ("contact", "steady", "lone", "idle")


@dataclass(frozen=True, slots=True)
class Stage:
    """Where and between what a round measures."""

    work: Path
    endpoint: str
    counts: Counts
    rows: Sequence[bytes]
    seconds: float
    compressions: Sequence[str]

    def place(self, kind: str, name: str) -> Place:
        """A place that no earlier measurement used."""
        number = random.getrandbits(40)
        if kind == "file":
            return Place(empty(self.work / "replicas" / f"{name}-{number}"))
        return Place(None, self.endpoint, f"{name}-{number}")


class Figures:
    """The measured values of all rounds, by row and program."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], list[float]] = defaultdict(list)

    def add(self, row: str, program: Program, value: float) -> None:
        self._values[row, program.name].append(value)

    def show(self, report: Report, programs: Sequence[Program]) -> None:
        """Add a figure for each row, with the median and the range of each program."""
        for row in dict.fromkeys(row for row, _ in self._values):
            shown = [f"{one.name} {_spread(self._values[row, one.name])}" for one in programs]
            report.figures[row] = "; ".join(shown)


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    middle = f"{statistics.median(values):.3g}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.3g}..{max(values):.3g})"


@contextmanager
def daemon(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon, which ends with the context. ClickException if it has ended before."""
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors) as process,
    ):
        try:
            yield process
            if process.poll() is not None:
                errors.seek(0)
                text = errors.read().decode(errors="replace")
                raise click.ClickException(f"{' '.join(command)}: ended: {text[-2000:]}")
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def total_seconds(pid: int) -> float:
    """The processor time of a process with its ended threads, to a hundredth of a second."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def last_change(place: Place, counts: Counts) -> tuple[float, int]:
    """When the last byte came to the place, as ``time.monotonic`` counts, and how many bytes came; 0 before the first
    PUT was answered."""
    if place.folder is None:
        return counts.last, counts.sent if counts.answered else 0
    stats = []
    for path in _files(place.folder):
        with suppress(FileNotFoundError):  # it has just got another name
            stats.append(path.stat())
    newest = max((stat.st_ctime_ns for stat in stats), default=0) / 1e9
    return newest - time.time() + time.monotonic(), sum(stat.st_size for stat in stats)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".tmp")]


def wait_until_quiet(place: Place, counts: Counts, least: int = 1) -> float:
    """Wait until ``least`` bytes or more have come to the place, and nothing for QUIET_SECONDS. Return when the last
    byte came."""
    deadline = time.monotonic() + LONGEST_SECONDS
    while time.monotonic() < deadline:
        last, size = last_change(place, counts)
        if size >= least and time.monotonic() - last > QUIET_SECONDS:
            return last
        time.sleep(0.05)
    raise click.ClickException("the replica was never quiet")


def first_contact(stage: Stage, program: Program, kind: str, figures: Figures) -> None:
    """Replicate a source that no replica knows, and restore it."""
    work = empty(stage.work / "contact")
    source, place = work / "source", stage.place(kind, "contact")
    program.make(source, stage.rows)
    os.sync()
    stage.counts.reset()
    started = time.monotonic()
    with daemon(program.daemon(work, [source], place)) as process:
        last = wait_until_quiet(place, stage.counts, 1 << 20)
        figures.add(f"first contact, {kind}: wall s", program, last - started)
        figures.add(f"first contact, {kind}: processor s", program, total_seconds(process.pid))
        figures.add(f"first contact, {kind}: peak MiB", program, status_bytes(process.pid, "VmHWM") / 2**20)
    sent = stage.counts.sent if place.folder is None else folder_bytes(place.folder)
    figures.add(f"first contact, {kind}: MiB of {program_rows(stage)}", program, sent / 2**20)
    if place.folder is None:
        figures.add(f"first contact, {kind}: requests", program, stage.counts.requests.total())
    output = empty(stage.work / "restored")
    stage.counts.reset()
    wall, processor, peak = run_measured(program.restore(work, source, place, output / "out"))
    if folder_bytes(output) < program.size(source) * 0.9:
        raise click.ClickException(f"{program.name} restored {folder_bytes(output)} bytes")
    figures.add(f"restore, {kind}: wall s", program, wall)
    figures.add(f"restore, {kind}: processor s", program, processor)
    figures.add(f"restore, {kind}: peak MiB", program, peak)
    if place.folder is None:
        figures.add(f"restore, {kind}: MiB received", program, stage.counts.received / 2**20)
        figures.add(f"restore, {kind}: requests", program, stage.counts.requests.total())


def program_rows(stage: Stage) -> str:
    """How much of rows a round replicates."""
    return f"{sum(map(len, stage.rows)) / 2**20:.0f}"


def run_measured(command: Sequence[str]) -> tuple[float, float, float]:
    """Run a command. Return its wall seconds, its processor seconds and its peak memory in MiB."""
    started, peak = time.perf_counter(), 0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while True:
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        if ended:
            break
        peak = max(peak, status_bytes(process.pid, "VmHWM"))
        time.sleep(MEMORY_POLL_SECONDS)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise click.ClickException(f"{' '.join(command)}: exit code {process.returncode}")
    return time.perf_counter() - started, usage.ru_utime + usage.ru_stime, peak / 2**20


def steady(stage: Stage, program: Program, rate: int, figures: Figures) -> None:
    """Append rows of 1,000 bytes at a rate, and replicate them to S3."""
    work = empty(stage.work / "steady")
    source, place = work / "source", stage.place("s3", "steady")
    program.make(source, stage.rows[:1000])
    stage.counts.reset()
    with daemon(program.daemon(work, [source], place)) as process:
        wait_until_quiet(place, stage.counts)
        command = [sys.executable, __file__, "--append", program.name, "--rate", str(rate)]
        command += [word for name in stage.compressions for word in ("--compression", name)]
        with subprocess.Popen([*command, "--seconds", str(stage.seconds + 4), str(source)]) as appender:
            time.sleep(2)
            stage.counts.reset()
            started, before = time.monotonic(), total_seconds(process.pid)
            time.sleep(stage.seconds)
            spent = (total_seconds(process.pid) - before) / (time.monotonic() - started)
            minutes = (time.monotonic() - started) / 60
            figures.add(f"{rate} a second: processor %", program, 100 * spent)
            figures.add(f"{rate} a second: PUTs a minute", program, stage.counts.requests["PUT"] / minutes)
            sent = stage.counts.sent / (rate * (time.monotonic() - started) * 1000)
            figures.add(f"{rate} a second: bytes sent by bytes of rows", program, sent)
            figures.add(f"{rate} a second: peak MiB", program, status_bytes(process.pid, "VmHWM") / 2**20)
        if appender.returncode:
            raise click.ClickException(f"{' '.join(command)}: exit code {appender.returncode}")


def lone_commits(stage: Stage, program: Program, kind: str, figures: Figures) -> None:
    """Append one row now and then, and wait for its object."""
    work = empty(stage.work / "lone")
    source, place = work / "source", stage.place(kind, "lone")
    program.make(source, stage.rows[:100])
    taken = []
    stage.counts.reset()
    with daemon(program.daemon(work, [source], place)):
        wait_until_quiet(place, stage.counts)
        appender = program.open(source)
        for number in range(LONE_COMMITS):
            time.sleep(1.5 + random.random())
            before = _arrived(place, stage.counts)
            started = time.monotonic()
            appender.append(stage.rows[number])
            while _arrived(place, stage.counts) == before and time.monotonic() - started < LONGEST_SECONDS / 10:
                time.sleep(POLL_SECONDS)
            taken.append(time.monotonic() - started)
        appender.close()
    figures.add(f"a lone commit, {kind}: median s", program, statistics.median(taken))
    figures.add(f"a lone commit, {kind}: worst s", program, max(taken))


def _arrived(place: Place, counts: Counts) -> int:
    return counts.answered if place.folder is None else len(_files(place.folder))


def idle(stage: Stage, program: Program, count: int, figures: Figures) -> None:
    """Replicate sources to S3 that do not grow."""
    work = empty(stage.work / "idle")
    sources = [work / "sources" / f"source-{number}" for number in range(count)]
    for source in sources:
        program.make(source, stage.rows[:10])
    place = stage.place("s3", "idle")
    stage.counts.reset()
    with daemon(program.daemon(work, sources, place)) as process:
        time.sleep(SETTLE_SECONDS)
        wait_until_quiet(place, stage.counts)
        stage.counts.reset()
        started, before = time.monotonic(), cpu_seconds(process.pid)
        time.sleep(stage.seconds)
        elapsed = time.monotonic() - started
        figures.add(f"{count} idle: processor %", program, 100 * (cpu_seconds(process.pid) - before) / elapsed)
        requests = stage.counts.requests.total()
        figures.add(f"{count} idle: requests a minute", program, requests * 60 / elapsed)
        figures.add(f"{count} idle: resident MiB", program, status_bytes(process.pid, "VmRSS") / 2**20)
        figures.add(f"{count} idle: peak MiB", program, status_bytes(process.pid, "VmHWM") / 2**20)


def append_steadily(program: Program, source: Path, rate: int, seconds: float) -> None:
    """Append rows to a source at a rate, in a separate process."""
    rows, appender = make_rows(200, seed=3), program.open(source)
    started, done = time.monotonic(), 0
    while (elapsed := time.monotonic() - started) < seconds:
        while done < elapsed * rate:
            appender.append(rows[done % len(rows)])
            done += 1
        time.sleep(min(0.01, 1 / rate))
    appender.close()


def measurements(chosen: Sequence[str], kinds: Sequence[str]) -> Iterator[Callable[[Stage, Program, Figures], None]]:
    """What a round measures with each program, at places of ``kinds``."""
    if "contact" in chosen:
        for kind in kinds:
            yield lambda stage, program, figures, kind=kind: first_contact(stage, program, kind, figures)  # type: ignore[misc]
    if "steady" in chosen and "s3" in kinds:
        for rate in (100, 1000):
            yield lambda stage, program, figures, rate=rate: steady(stage, program, rate, figures)  # type: ignore[misc]
    if "lone" in chosen:
        for kind in kinds:
            yield lambda stage, program, figures, kind=kind: lone_commits(stage, program, kind, figures)  # type: ignore[misc]
    if "idle" in chosen and "s3" in kinds:
        for count in (1, 100):
            yield lambda stage, program, figures, count=count: idle(stage, program, count, figures)  # type: ignore[misc]


@click.command(help=__doc__)
@click.option("--folder", type=click.Path(exists=True), help="Folder to work in, with room for 5 times --size.")
@click.option("--size", default=512, help="MiB of rows at the first contact.")
@click.option("--seconds", default=20.0, help="Seconds of steady appends, and of idleness.")
@click.option("--rounds", default=3, help="Number of interleaved rounds.")
@click.option("--rows", "chosen", multiple=True, type=click.Choice(ROWS), help="Measure only these.  [default: all]")
@click.option("--compression", "compressions", multiple=True, help="Measure litelog with this one as well.")
@click.option("--endpoint", help="URL of an S3 server, with the access keys bench and bench-secret.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--append", hidden=True)
@click.option("--rate", default=0, hidden=True)
@click.argument("source", required=False, type=click.Path(path_type=Path))
def main(  # noqa: PLR0917
    folder: str | None,
    size: int,
    seconds: float,
    rounds: int,
    chosen: tuple[str, ...],
    compressions: tuple[str, ...],
    endpoint: str | None,
    as_json: bool,
    append: str | None,
    rate: int,
    source: Path | None,
) -> None:
    if append is not None and source is not None:
        program = next(program for program in find_programs(compressions) if program.name == append)
        append_steadily(program, source, rate, seconds)
        return
    os.environ |= {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET}
    os.environ.pop("AWS_CA_BUNDLE", None)  # Litestream 0.5.18 does not start with it
    programs, figures = find_programs(compressions), Figures()
    report = Report(f"litelog beside {', '.join(program.name for program in programs[1:]) or 'nothing'}")
    report.skipped |= find_missing(programs)
    kinds, address, counts = ["file"], "", Counts()
    with ExitStack() as stack:
        work = stack.enter_context(bench_folder(folder))
        if endpoint is None and (reason := missing("minio")) is not None:
            report.skipped["S3"] = reason
        else:
            server = stack.enter_context(serving_minio(work, endpoint, report))
            make_bucket(server)
            address, counts = stack.enter_context(counting(server))
            kinds.append("s3")
        stage = Stage(work, address, counts, make_rows((size << 20) // 1000), seconds, compressions)
        for number in range(rounds):
            turn = number % len(programs)
            for measurement in measurements(chosen or ROWS, kinds):
                for program in programs[turn:] + programs[:turn]:
                    measurement(stage, program, figures)
        figures.show(report, programs)
    report.figures["load average"] = f"{os.getloadavg()[1]:.1f}"
    report.print(as_json=as_json)


if __name__ == "__main__":
    main()
