"""How far a long verb is, on standard error: a bar on a terminal, a few lines otherwise."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from litelog.quantities import format_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PLAIN_STEPS = 10
"""How many lines of progress are printed where there is no terminal."""


@contextmanager
def showing_progress(
    what: str, *, quiet: bool, total: int | None = None, worth_bytes: int = 0
) -> Iterator[Callable[[int, int], None] | None]:
    """A function to call with the bytes that are done and those that there are; None where nothing is to be shown.

    ``total``: the bytes that there are, where that is known before. Fewer than ``worth_bytes`` get no lines.
    """
    if quiet:
        yield None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

        columns = (BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda done, whole: bar.update(task, completed=done, total=whole)
    else:
        yield _PlainProgress(worth_bytes)


class _PlainProgress:
    """A line whenever another tenth is done."""

    def __init__(self, worth_bytes: int) -> None:
        self._worth_bytes = worth_bytes
        self._steps = 0

    def __call__(self, done: int, whole: int) -> None:
        steps = done * PLAIN_STEPS // max(whole, 1)
        if self._steps < steps < PLAIN_STEPS and whole >= self._worth_bytes:
            click.echo(f"{format_size(done)} of {format_size(whole)}", err=True)
        self._steps = steps
