"""``litelog demo``: writes and replicates a log with real processes, kills them, restores the log, and compares."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from typing import TYPE_CHECKING

import click

from litelog.dataclass import dataclass
from litelog.units import format_size
from litelog_cli.demo_processes import CommandProcess, Feeder, Shipping, run_verb, start_daemon, start_writer
from litelog_cli.output import echo, echo_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table

RECORDS_PER_SECOND = 5000
SYNC_INTERVAL = "250ms"
REFRESH_SECONDS = 0.25
PLAIN_SECONDS = 2.0
"""Seconds between printed lines if there is no terminal for a table."""

START_TIMEOUT_SECONDS = 60.0
"""Seconds that the processes may take to start, even on a slow machine."""


@dataclass(frozen=True, slots=True)
class Folders:
    """The demo's folders."""

    root: str

    def __truediv__(self, name: str) -> str:
        return os.path.join(self.root, name)


@click.command(
    epilog="""\b
Examples:
  litelog demo
  litelog demo --seconds 20 --folder ./demo
"""
)
@click.option("--seconds", type=click.FloatRange(1, 3600), default=6.0, show_default=True, help="Seconds to write for.")
@click.option("--folder", type=click.Path(), help="A folder to create.  [default: a new temporary folder]")
def demo(seconds: float, folder: str | None) -> int:
    """Write a log with real processes, replicate it, kill them, restore the log and compare.

    A writer appends records, and the daemon replicates them into a folder. kill -9 ends both while they work. Then the
    log is moved away and restored from the replica, and the result is compared with what was acknowledged. A new
    generation continues the restored log. Takes a few seconds longer than it writes.
    """
    folders = _make_folders(folder)
    echo(f"working in {folders.root}")
    echo()
    log, lost, backup, again = (folders / name for name in ("log", "lost", "backup", "again"))
    written, acknowledged = _write_and_kill(folders, seconds)
    echo()
    echo("kill -9 of the writer and of the daemon; now the log is moved away, and restored from the replica:")
    os.rename(log, lost)
    run_verb("restore", backup, "-o", log)
    restored = _count_records(log)
    prefix = _check(_is_prefix(log, lost), "the restored log is not a prefix of the lost one")
    _check(restored >= acknowledged, f"{acknowledged} records were acknowledged, {restored} came back")

    echo()
    echo("the restored log is continued, and replicated in a new generation:")
    generations = _continue_log(folders)
    run_verb("restore", backup, "-o", again)
    same = _check(_is_prefix(log, again), "the second restore differs from the log")
    total = _count_records(again)

    proved = f"""
proved, with the processes killed in mid-flight:
  {written:>9} records durable in the log when it was lost
  {acknowledged:>9} records acknowledged by the replica
  {restored:>9} records restored: {restored - acknowledged} more than acknowledged, 0 acknowledged ones missing
  {written - restored:>9} records not shipped when it was killed: the lag
  {format_size(prefix):>9} compared byte for byte with the lost log
  {total:>9} records after it was continued; {format_size(same)} restored again and equal, in {generations} generations
where it is:
  {lost}   the log that was lost
  {log}    the log that was restored and continued
  {backup} the replica; try: litelog generations {backup}"""
    echo_lines(proved.splitlines())
    return 0


def _make_folders(folder: str | None) -> Folders:
    if folder is None:
        return Folders(tempfile.mkdtemp(prefix="litelog-demo-"))
    try:
        os.makedirs(folder)
    except FileExistsError:
        raise click.UsageError(f"{folder} exists already; the demo needs a new folder") from None
    return Folders(os.path.abspath(folder))


def _write_and_kill(folders: Folders, seconds: float) -> tuple[int, int]:
    """Write and replicate for ``seconds``, then kill both processes. Returns the durable sequence and the acknowledged
    one."""
    shipping = Shipping()
    with start_writer(folders / "log") as writer:
        Feeder(writer, RECORDS_PER_SECOND)
        writer.wait_for(1, START_TIMEOUT_SECONDS)
        with _start_daemon(folders, shipping) as daemon:
            daemon.wait_for(1, START_TIMEOUT_SECONDS)
            _watch(writer, daemon, shipping, seconds)
            daemon.end(signal.SIGKILL)
            writer.end(signal.SIGKILL)
        return writer.sequence, daemon.sequence


def _continue_log(folders: Folders) -> int:
    """Append to the restored log while a daemon runs, and stop both cleanly. Returns the number of generations."""
    with _start_daemon(folders, Shipping()) as daemon:
        with start_writer(folders / "log") as writer:
            feeder = Feeder(writer, RECORDS_PER_SECOND)
            writer.wait_for(_count_records(folders / "log") + RECORDS_PER_SECOND, START_TIMEOUT_SECONDS)
            feeder.finish()
            writer.finish()
        daemon.wait_for(writer.sequence, START_TIMEOUT_SECONDS)
        daemon.end(signal.SIGTERM)
        _check(daemon.exit_code == 0, f"the daemon's final sync ended with exit code {daemon.exit_code}")
    echo(f"  {writer.sequence} records durable, {daemon.sequence} acknowledged")
    return len(os.listdir(os.path.join(folders / "backup", "generations")))


def _start_daemon(folders: Folders, shipping: Shipping) -> CommandProcess:
    return start_daemon(folders / "log", folders / "backup", folders / "state", SYNC_INTERVAL, shipping)


def _watch(writer: CommandProcess, daemon: CommandProcess, shipping: Shipping, seconds: float) -> None:
    def facts() -> list[tuple[str, str]]:
        written, acknowledged = writer.sequence, daemon.sequence
        return [
            ("durable in the log", f"{written} records"),
            ("acknowledged by the replica", f"{acknowledged} records"),
            ("lag", f"{max(0, written - acknowledged)} records"),
            ("position", shipping.position),
            ("shipped", f"{format_size(shipping.log_bytes)} as {format_size(shipping.stored_bytes)}"),
        ]

    end = time.monotonic() + seconds
    if sys.stdout.isatty():
        from rich.live import Live

        with Live(_table(facts()), refresh_per_second=1 / REFRESH_SECONDS) as live:
            _every(REFRESH_SECONDS, end, lambda: live.update(_table(facts())))
    else:
        _every(PLAIN_SECONDS, end, lambda: echo("  " + ", ".join(f"{name}: {value}" for name, value in facts())))


def _every(interval: float, end: float, act: Callable[[], None]) -> None:
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(interval, left))
        act()


def _table(facts: list[tuple[str, str]]) -> Table:
    from rich.table import Table

    table = Table(title="litelog demo", show_header=False)
    for name, value in facts:
        table.add_row(name, value)
    return table


def _is_prefix(folder: str, of: str) -> int:
    """The size in bytes of ``folder``'s log segments, if each is a prefix of the one in ``of``; else -1."""
    total = 0
    for name in _log_segments(folder):
        path, other = os.path.join(folder, name), os.path.join(of, name)
        if not os.path.exists(other):
            return -1
        with open(path, "rb") as ours, open(other, "rb") as theirs:
            while piece := ours.read(1 << 20):
                if theirs.read(len(piece)) != piece:
                    return -1
                total += len(piece)
    return total


def _log_segments(folder: str) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name.endswith(".log"))


def _count_records(folder: str) -> int:
    from litelog.log.reader import LogReader

    with LogReader(folder) as reader:
        return sum(len(columns) for columns in reader.batches())


def _check(holds: int | bool, failure: str) -> int:
    if holds is False or holds < 0:
        raise click.ClickException(f"the demo failed: {failure}")
    return int(holds)
