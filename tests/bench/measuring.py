"""The tools of all benchmarks: interleaved rounds, medians of ratios, targets, and the report.

The speed of the disk and the load of other programs vary by a factor of two or three, so a time means little and a
ratio a lot. A job and its yardstick take turns in one run. Each round gives one ratio, and the median of these is
compared with the target.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

MEMORY_POLL_SECONDS = 0.005
"""The interval between two looks at a process's peak memory. An allocation after the last look is missed."""

QUIET_SECONDS = 0.3
QUIET_CORES = 0.3
"""The machine is quiet if fewer than ``QUIET_CORES`` were busy, or waited for a disk, for ``QUIET_SECONDS``."""

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages are compiled once, not at each start

MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs"})


@dataclass(frozen=True, slots=True)
class Finding:
    """The median of ``values``, and the target to compare it with."""

    what: str
    against: str
    values: tuple[float, ...]
    at_least: float | None = None
    at_most: float | None = None
    unit: str = "x"
    """``x``: a ratio. More than 1 means that ``what`` is better with ``at_least``, and worse with ``at_most``."""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def met(self) -> bool:
        low = self.at_least is None or self.median >= self.at_least
        return low and (self.at_most is None or self.median <= self.at_most)

    @property
    def target(self) -> str:
        bounds = (("at least", self.at_least), ("at most", self.at_most))
        return ", ".join(f"{name} {bound:g}" for name, bound in bounds if bound is not None)


@dataclass(slots=True)
class Report:
    """The results of a benchmark: figures for context, findings with targets, and yardsticks that were skipped."""

    title: str
    figures: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    """Yardsticks that could not be used, with the reasons."""

    def print(self, *, as_json: bool) -> None:
        """Print the report: as tables, or as one JSON document."""
        if as_json:
            click.echo(json.dumps(self._fields(), indent=1))
            return
        console = Console(width=max(110, Console().width))
        figures = Table("figure", "value", title=self.title)
        for name, value in self.figures.items():
            figures.add_row(name, value)
        if self.figures:
            console.print(figures)
        findings = Table(
            *("what", "against", "median", "min..max", "n", "target", "met"), title=None if self.figures else self.title
        )
        for found in self.findings:
            spread = f"{min(found.values):.3g}..{max(found.values):.3g}"
            median = f"{found.median:.3g} {found.unit}"
            met = ("yes" if found.met else "[bold]no[/bold]") if found.target else ""
            findings.add_row(found.what, found.against, median, spread, str(len(found.values)), found.target, met)
        if self.findings:
            console.print(findings)
        for name, reason in self.skipped.items():
            console.print(f"skipped: {name}: {reason}")

    def _fields(self) -> dict[str, Any]:
        findings = [
            asdict(found) | {"median": found.median, "met": found.met if found.target else None}
            for found in self.findings
        ]
        return {"title": self.title, "figures": self.figures, "findings": findings, "skipped": self.skipped}


def measure(call: Callable[[], object]) -> float:
    """Run ``call``, and return the seconds that it took."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def interleave(
    calls: Mapping[str, Callable[[], float]],
    rounds: int,
    patience: float = 0.0,
    *,
    warming: int = 1,
    show: Callable[[str], None] = lambda _: None,
) -> dict[str, list[float]]:
    """Run all calls once per round. The call that is first in a round is last in the next round.

    Args:
        calls: Functions that return the seconds that they took, keyed by name.
        rounds: Number of rounds that count.
        patience: Seconds that each call may wait until the machine is quiet.
        warming: Number of rounds before these, to warm caches. They do not count.
        show: Called with the name of the next call.

    Returns:
        The seconds of each call, one value per round, keyed by name.
    """
    names = list(calls)
    found: dict[str, list[float]] = {name: [] for name in names}
    for number in range(warming + rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            wait_for_quiet(patience)
            show(f"{name}, round {number + 1} of {warming + rounds}")
            value = calls[name]()
            if number >= warming:
                found[name].append(value)
    return found


def wait_for_quiet(patience: float) -> None:
    """Wait until other processes leave the processors idle for a moment, for at most ``patience`` seconds."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        before = _busy_seconds()
        time.sleep(QUIET_SECONDS)
        if _busy_seconds() - before <= QUIET_CORES * QUIET_SECONDS:
            return


def _busy_seconds() -> float:
    """Return the seconds that all processors were busy, or waited for a disk, since the machine started."""
    user, nice, system, _, waiting, *interrupts = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]
    )
    return (user + nice + system + waiting + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


def ratios(over: Sequence[float], under: Sequence[float]) -> tuple[float, ...]:
    """Divide ``over`` by ``under``, round by round."""
    return tuple(a / b for a, b in zip(over, under, strict=True))


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest of ``values`` that ``percent`` of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def milliseconds(values: Sequence[float]) -> str:
    """Format seconds as milliseconds: the median and the range."""
    middle, low, high = (value * 1e3 for value in (statistics.median(values), min(values), max(values)))
    return f"{middle:.2f} ms ({low:.2f}..{high:.2f})"


def rate(size: int, seconds: Sequence[float]) -> str:
    """Format the speed for ``size`` bytes in MB/s: the median and the range."""
    middle, low, high = (size / 1e6 / value for value in (statistics.median(seconds), max(seconds), min(seconds)))
    return f"{middle:.0f} MB/s ({low:.0f}..{high:.0f})"


# Folders


@contextmanager
def bench_folder(given: str | None) -> Iterator[Path]:
    """Create a folder on a disk, in ``given`` or among the temporary files, and remove it at the end."""
    with tempfile.TemporaryDirectory(prefix="litelog-bench-", dir=given) as name:
        kind = subprocess.run(["stat", "-f", "-c", "%T", name], capture_output=True, text=True, check=True).stdout
        if kind.strip() in MEMORY_FILE_SYSTEMS:
            raise click.UsageError(f"{name} is on {kind.strip()}, where nothing is durable: give --folder on a disk")
        yield Path(name)


def empty(folder: Path) -> Path:
    """Create ``folder``, or empty it, and sync, so that no measured job pays for the deletion."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.sync()
    return folder


def folder_bytes(folder: Path) -> int:
    """Return the sum of the sizes of all files below ``folder``, in bytes."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def sync_tree(folder: Path) -> None:
    """Sync all files and folders below ``folder``, and nothing else."""
    for path in (folder, *folder.rglob("*")):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# Processes


def missing(*commands: str) -> str | None:
    """Return which commands are not installed, as a message; None if all are installed."""
    absent = [command for command in commands if shutil.which(command) is None]
    return f"not installed: {', '.join(absent)}" if absent else None


def run(command: Sequence[str | Path]) -> None:
    """Run a command without output. ClickException with its standard error if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        _fail(command, done.returncode, done.stderr)


def peak_memory(command: Sequence[str | Path]) -> int:
    """Run a command, and return its peak resident memory in bytes."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    peak = 0
    while process.poll() is None:
        peak = max(peak, status_bytes(process.pid, "VmHWM"))
        time.sleep(MEMORY_POLL_SECONDS)
    _, errors = process.communicate()
    if process.returncode:
        _fail(command, process.returncode, errors)
    return peak


def status_bytes(pid: int, name: str) -> int:
    """Return a size from /proc/PID/status, such as VmHWM or VmRSS, in bytes; 0 if the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:")), 0)


def cpu_seconds(pid: int) -> float:
    """Return the processor time of all live threads of a process, in seconds, exact to the nanosecond."""
    stats = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(path.read_text().split()[0]) for path in stats) / 1e9


def children_seconds() -> float:
    """Return the processor time of all commands that ended, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def process_io(pid: int, name: str) -> int:
    """Return a counter from /proc/PID/io, such as ``wchar``, bytes passed to write calls, or ``write_bytes``."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def _fail(command: Sequence[str | Path], code: int, errors: str) -> NoReturn:
    raise click.ClickException(f"{' '.join(map(str, command))}: exit code {code}: {errors.strip()[-2000:]}")
