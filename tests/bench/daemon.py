"""A daemon to measure: a process that replicates logs and prints a line for each WAL segment that became durable.

The line is ``shipped <monotonic nanoseconds> <next sequence> <object's bytes>``. The process answers the line
``requests`` on its standard input with the number of requests, and ends when its standard input is closed.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from litelog.objects.claim import Claim
    from litelog.shipping.events import WalSegmentShipped

WAIT_SECONDS = 120.0
"""How long a benchmark waits for a daemon to ship a WAL segment."""

POLL_SECONDS = 0.5
"""The interval between checks whether the daemon has ended."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Durable:
    """A WAL segment that became durable."""

    at: float
    """Seconds, as ``time.monotonic`` counts them in every process."""
    next: int
    """The sequence that follows its last record."""
    size: int
    """The object's bytes."""


class Daemon:
    """The handle of a running daemon."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.pid = process.pid
        self._process = process
        self._shipped: queue.SimpleQueue[Durable] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[int] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def wait_for(self, sequence: int) -> list[Durable]:
        """Wait until all records before ``sequence`` are durable, and return the WAL segments since the last call."""
        found: list[Durable] = []
        while not found or found[-1].next < sequence:
            found.append(self._next(self._shipped))
        return found

    def wait_for_count(self, count: int) -> None:
        """Wait until ``count`` more WAL segments are durable."""
        for _ in range(count):
            self._next(self._shipped)

    def requests(self) -> int:
        """Return the number of requests since the daemon's start."""
        assert self._process.stdin is not None
        self._process.stdin.write("requests\n")
        self._process.stdin.flush()
        return self._next(self._answers)

    def _next(self, lines: queue.SimpleQueue[T]) -> T:
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline and (self._process.poll() is None or not lines.empty()):
            try:
                return lines.get(timeout=POLL_SECONDS)
            except queue.Empty:
                continue
        raise click.ClickException(f"the daemon shipped nothing for {WAIT_SECONDS:g} s, or ended")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, *numbers = line.split()
            if word == "shipped":
                self._shipped.put(Durable(int(numbers[0]) / 1e9, int(numbers[1]), int(numbers[2])))
            else:
                self._answers.put(int(numbers[0]))


@contextmanager
def running(work: Path, logs: Sequence[Path], *options: str) -> Iterator[Daemon]:
    """Run a daemon that replicates ``logs``, each to its own folder under ``work/replicas``."""
    command = [sys.executable, __file__, *options, str(work), *map(str, logs)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Daemon(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(WAIT_SECONDS)


class _ShippedLines:
    """Writes each line with one call: a pipe takes so few bytes as a whole."""

    def on_wal_segment_shipped(self, event: WalSegmentShipped) -> None:
        os.write(1, b"shipped %d %d %d\n" % (time.monotonic_ns(), event.header.next or 0, event.size))

    def on_generation_started(self, log: str, replica: str, claim: Claim) -> None: ...

    def on_segment_sealed(self, event: object) -> None: ...

    def on_snapshot_written(self, event: object) -> None: ...


@click.command(help=__doc__)
@click.option("--sync-interval", default="1s")
@click.argument("work", type=click.Path(path_type=Path))
@click.argument("logs", type=click.Path(), nargs=-1)
def main(work: Path, logs: tuple[str, ...], sync_interval: str) -> None:
    import counted_store

    from litelog.config import make_config
    from litelog.replicator import Replicator
    from litelog.system.memory import keep_freed_memory

    keep_freed_memory()
    counted_store.register(work / "registered")
    replicas = [f"counted://{work}/replicas/{Path(log).name}" for log in logs]
    entries = [{"path": log, "replicas": [{"url": url}]} for log, url in zip(logs, replicas, strict=True)]
    config = make_config("benchmark", {"sync_interval": sync_interval, "logs": entries})
    replicator = Replicator(config, state_dir=str(work / "state"), host="benchmark", listener=_ShippedLines())

    def listen() -> None:
        for _ in sys.stdin:
            os.write(1, b"requests %d\n" % counted_store.requests())
        replicator.stop()

    threading.Thread(target=listen, daemon=True).start()
    replicator.run()


if __name__ == "__main__":
    main()
