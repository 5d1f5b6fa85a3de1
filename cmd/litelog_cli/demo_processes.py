"""Runs the processes of the demo, a writer and a daemon, and reads their output. Each is the litelog command itself."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Self

import click

from litelog.dataclass import dataclass
from litelog_cli.output import echo

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

TICK_SECONDS = 0.02
END_TIMEOUT_SECONDS = 30.0
"""How long a process may take to stop, with its final sync, in seconds."""


class CommandProcess:
    """A litelog command. ``take`` gets each line of its output, and returns the sequence below which all records are
    safe."""

    def __init__(self, arguments: Sequence[str], take: Callable[[bytes], int], *, fed: bool = False) -> None:
        self.sequence = 0
        """All records below this sequence are safe, as the process has reported."""
        self._take = take
        self._news = threading.Condition()
        self._process = subprocess.Popen(  # noqa: S603 - this very command
            [sys.executable, "-m", "litelog_cli", *arguments],
            stdin=subprocess.PIPE if fed else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._errors = b""
        self._readers = [threading.Thread(target=work, daemon=True) for work in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()

    @property
    def exit_code(self) -> int:
        """The process's exit code; negative for the number of a signal."""
        return self._process.wait(END_TIMEOUT_SECONDS)

    @property
    def input(self) -> IO[bytes]:
        """The process's standard input."""
        return _pipe(self._process.stdin)

    def wait_for(self, sequence: int, seconds: float) -> None:
        """Wait until all records below ``sequence`` are safe."""
        with self._news:
            self._news.wait_for(lambda: self.sequence >= sequence or self._process.poll() is not None, seconds)
            reached = self.sequence
        if reached < sequence:
            self.end(signal.SIGKILL)
            said = self._errors.decode(errors="replace").strip() or "nothing"
            raise click.ClickException(f"no record {sequence} within {seconds:g}s (at {reached}); it said: {said}")

    def end(self, number: signal.Signals) -> None:
        """Send a signal and wait for the end. Returns after all output was read."""
        self._process.send_signal(number)
        self._join()

    def finish(self) -> None:
        """Wait for the end. Returns after all output was read."""
        self._join()

    def _join(self) -> None:
        self._process.wait(END_TIMEOUT_SECONDS)
        for reader in self._readers:
            reader.join()

    def _read(self) -> None:
        for line in _pipe(self._process.stdout):
            if line.endswith(b"\n"):
                with self._news:
                    self.sequence = max(self.sequence, self._take(line))
                    self._news.notify_all()
        with self._news:
            self._news.notify_all()

    def _read_errors(self) -> None:
        self._errors = _pipe(self._process.stderr).read()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._join()
        for stream in (self._process.stdout, self._process.stderr):
            _pipe(stream).close()


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None  # Popen has a pipe here, and types it as if there might be none
    return stream


def start_writer(log: str) -> CommandProcess:
    """Start ``litelog append``, which appends the lines on its standard input."""
    return CommandProcess(["append", log], int, fed=True)


class Feeder:
    """Feeds a writer with records at a steady rate."""

    def __init__(self, writer: CommandProcess, records_per_second: int) -> None:
        self._input = writer.input
        self._rate = records_per_second
        self._finished = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Stop feeding."""
        self._finished.set()
        self._thread.join()

    def _feed(self) -> None:
        number = 0
        started = time.monotonic()
        try:
            while not self._finished.wait(TICK_SECONDS):
                due = int((time.monotonic() - started) * self._rate)
                lines = [
                    b'{"order": %d, "state": "paid", "amount": %d}\n' % (n, n * 7 % 9973) for n in range(number, due)
                ]
                self._input.write(b"".join(lines))
                self._input.flush()
                number = due
            self._input.close()
        except BrokenPipeError:
            with suppress(BrokenPipeError):
                self._input.close()  # the writer was killed; buffered data is lost


@dataclass(slots=True)
class Shipping:
    """The progress that a daemon reports."""

    position: str = "-"
    log_bytes: int = 0
    stored_bytes: int = 0

    def take(self, line: bytes) -> int:
        """Record an event. Returns the sequence below which all records are acknowledged, according to this event."""
        event = json.loads(line)
        if event["event"] != "shipped":
            return 0
        self.position = event["position"]
        self.log_bytes += event["log_bytes"]
        self.stored_bytes += event["stored_bytes"]
        return int(event["next"] or 0)


def start_daemon(log: str, backup: str, state: str, sync_interval: str, shipping: Shipping) -> CommandProcess:
    """Start ``litelog replicate``."""
    settings = ["--json", "--state-dir", state, "--sync-interval", sync_interval]
    return CommandProcess(["replicate", *settings, log, backup], shipping.take)


def run_verb(*arguments: str) -> None:
    """Run a litelog command to its end, showing its output. Raises ClickException if it fails."""
    echo(f"  $ litelog {' '.join(arguments)}")
    result = subprocess.run(  # noqa: S603 - this very command
        [sys.executable, "-m", "litelog_cli", *arguments], check=False
    )
    if result.returncode:
        raise click.ClickException(f"the demo failed: litelog {arguments[0]} ended with exit code {result.returncode}")
