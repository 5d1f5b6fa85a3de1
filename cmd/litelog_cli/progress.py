"""Shows the progress of a long verb on standard error: a bar on a terminal, otherwise a line at intervals."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

import click

from litelog.units import format_count, format_duration, format_size
from litelog_cli.logging_setup import say
from litelog_cli.output import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Progress, ProgressColumn, TaskID

    from litelog.replicator import Replicator

WORTH_SECONDS = 2.0
"""Seconds. Work that takes less time shows no progress."""

WORTH_GENERATIONS = 10
"""A replica with fewer generations is walked at once."""

LINE_SECONDS = 10.0
"""Pause between two lines if there is no terminal, in seconds."""

ASK_SECONDS = 0.2
"""Pause between two checks of work that does not report progress, in seconds."""

WIDE_COLUMNS = 60
"""A narrower terminal shows no bar and no rate, only the verb, the bytes and the time left."""

quiet_option = click.option("-q", "--quiet", is_flag=True, help="Show no progress.")
"""The option of every verb that shows progress."""


@contextmanager
def showing_progress(
    what: str, *, quiet: bool, steady: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[int, int | None], None] | None]:
    """Yield a function to call from any thread with bytes done and total bytes (None: not known yet).

    Yields None if no progress is shown. ``what``: the verb. ``steady``: monotonic seconds.
    """
    if quiet:
        yield None
        return
    shown = _Bar(what, steady) if sys.stderr.isatty() else _Lines(what, steady)
    try:
        yield shown.show
    finally:
        shown.close()


def report_walk(what: str, *, quiet: bool) -> Callable[[int], None] | None:
    """A function that says how many generations the verb ``what`` is about to read, if they are WORTH_GENERATIONS or
    more; None if no progress is shown."""

    def report(generations: int) -> None:
        if generations >= WORTH_GENERATIONS:
            said = f"{what}: {format_count(generations, 'generation')} to walk"
            say(said, "walking", verb=what, generations=generations)

    return None if quiet else report


@contextmanager
def watching_progress(what: str, *, quiet: bool, look: Callable[[], tuple[int, int | None]]) -> Iterator[None]:
    """Show what ``look`` returns while the block runs. A separate thread calls it at intervals."""
    with showing_progress(what, quiet=quiet) as show:
        if show is None:
            yield
            return
        with _repeated(lambda: show(*look()), "progress"):
            yield


@contextmanager
def _repeated(call: Callable[[], None], name: str) -> Iterator[None]:
    """Repeat ``call`` in a thread while the block runs."""
    over = Event()

    def repeat() -> None:
        while not over.wait(ASK_SECONDS):
            with suppress(Exception):  # the work may end at any time; other code reports its errors
                call()

    thread = Thread(target=repeat, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(1.0)  # a call may hang with its file system


@contextmanager
def watching_status(*, quiet: bool, look: Callable[[], str]) -> Iterator[None]:
    """On a terminal, show the line that ``look`` returns, again and again, while the block runs; then remove it."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with (
        Console(stderr=True).status(escape(look())) as shown,
        _repeated(lambda: shown.update(escape(look())), "status"),
    ):
        yield


def describe(done: int, whole: int | None, seconds: float) -> str:
    """Bytes, rate and time left after ``seconds``, in words."""
    rate = done / seconds if seconds > 0 else 0.0
    of = f" of {format_size(whole)}" if whole is not None else ""
    left = f", {format_duration((whole - done) / rate)} left" if whole is not None and rate and whole > done else ""
    return f"{format_size(done)}{of}, {format_size(int(rate))}/s{left}"


class _Lines:
    """Prints a line after WORTH_SECONDS, and then one each LINE_SECONDS."""

    def __init__(self, what: str, steady: Callable[[], float]) -> None:
        self._what = what
        self._steady = steady
        self._began = steady()
        self._due = self._began + WORTH_SECONDS
        self._lock = Lock()

    def show(self, done: int, whole: int | None) -> None:
        with self._lock:
            now = self._steady()
            if now < self._due:
                return
            self._due = now + LINE_SECONDS
        said = f"{self._what}: {describe(done, whole, now - self._began)}"
        say(said, "progress", verb=self._what, done_bytes=done, total_bytes=whole)

    def close(self) -> None: ...


class _Bar:
    """A bar that appears after WORTH_SECONDS, and disappears at the end."""

    def __init__(self, what: str, steady: Callable[[], float]) -> None:
        self._what = what
        self._steady = steady
        self._due = steady() + WORTH_SECONDS
        self._lock = Lock()
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def show(self, done: int, whole: int | None) -> None:
        with self._lock:
            if self._bar is None and self._steady() >= self._due:
                self._bar = _make_bar()
                self._task = self._bar.add_task(self._what, total=whole, completed=done)
                self._bar.start()
            if self._bar is not None and self._task is not None:
                self._bar.update(self._task, completed=done, total=whole)

    def close(self) -> None:
        with self._lock:
            if self._bar is not None:
                self._bar.stop()


def _make_bar() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.table import Column

    console = Console(stderr=True)
    size = DownloadColumn(binary_units=True, table_column=Column(no_wrap=True))
    left = TimeRemainingColumn(table_column=Column(no_wrap=True))
    columns: tuple[ProgressColumn, ...] = (TextColumn("{task.description}"), size, left)
    if console.width >= WIDE_COLUMNS:
        speed = TransferSpeedColumn(table_column=Column(no_wrap=True))
        columns = (TextColumn("{task.description}"), BarColumn(), size, speed, left)
    return Progress(*columns, console=console, transient=True)


class ShippingProgress:
    """The bytes of all logs, counted once for each replica. For one thread."""

    def __init__(self, replicator: Replicator) -> None:
        self._replicator = replicator
        self._whole = 0

    def look(self) -> tuple[int, int | None]:
        """Return (bytes done, total bytes); the total is None until the folders were read."""
        self._replicator.measure()
        statuses = self._replicator.status()
        behind = sum(status.lag_bytes for status in statuses)
        counts = [status.counters.counts for status in statuses if status.counters is not None]
        durable = sum(each.wal_log_bytes + each.sealed_log_bytes for each in counts)
        self._whole = max(self._whole, behind)
        if not self._whole:
            return durable, None
        # A first sync seals log segments before anything is acknowledged, and sealed data may have been shipped before.
        return min(self._whole, max(durable, self._whole - behind)), self._whole
