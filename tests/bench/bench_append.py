"""Measures appends to a log, against SQLite with every batch durable, and against a buffered file without any sync.

All of them take turns in one run and write the same batches of records. SQLite runs in WAL mode with synchronous=FULL,
one transaction per batch, and default settings otherwise. The file is Python's own, with the default buffer and one
``write`` per record.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from measuring import Finding, Report, bench_folder, interleave, measure, ratios

from litelog.log.writer import LogWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    Batch = list[bytes]

SYNCED, ASYNCHRONOUS, UNSYNCED = "log, fdatasync per batch", "log, futures, fdatasync per group", "log, no sync"
SQLITE, BARE, BUFFERED, JOINED = (
    "sqlite, WAL, FULL",
    "write + fdatasync per batch",
    "file, write per record",
    "file, writelines",
)

COMPARISONS = (
    (SYNCED, SQLITE, 4.0),
    (UNSYNCED, BUFFERED, 0.8),
    (SYNCED, BARE, None),
    (ASYNCHRONOUS, SQLITE, None),
    (UNSYNCED, JOINED, None),
)
"""What is measured, its yardstick, and the least ratio of their speeds; None: shown for context, without a target."""

ORDER = (SYNCED, SQLITE, BARE, ASYNCHRONOUS, UNSYNCED, BUFFERED, JOINED)
"""Each runs next to its yardstick, so that load from other programs on the machine affects both."""


def append_all(log: LogWriter, batches: list[Batch]) -> None:
    for batch in batches:
        log.append(batch)


def append_futures(log: LogWriter, batches: list[Batch]) -> None:
    futures = [log.append_async(batch) for batch in batches]
    assert futures[-1].result().next == log.durable_sequence


def open_logs(folder: str, batches: list[Batch], stack: ExitStack) -> dict[str, Callable[[], None]]:
    modes = ((SYNCED, "always", append_all), (ASYNCHRONOUS, "always", append_futures), (UNSYNCED, "never", append_all))
    return {
        name: partial(
            append, stack.enter_context(LogWriter(os.path.join(folder, f"log{number}"), fsync=fsync)), batches
        )
        for number, (name, fsync, append) in enumerate(modes)
    }


def open_database(folder: str, batches: list[Batch], stack: ExitStack) -> dict[str, Callable[[], None]]:
    database = stack.enter_context(closing(sqlite3.connect(os.path.join(folder, "log.sqlite"), isolation_level=None)))
    assert database.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE log (sequence INTEGER PRIMARY KEY, value BLOB NOT NULL)")

    def insert() -> None:
        for batch in batches:
            database.execute("BEGIN")
            database.executemany("INSERT INTO log (value) VALUES (?)", zip(batch))
            database.execute("COMMIT")

    return {SQLITE: insert}


def open_files(folder: str, batches: list[Batch], stack: ExitStack) -> dict[str, Callable[[], None]]:
    root = Path(folder)
    bare = stack.enter_context((root / "bare").open("wb", buffering=0))
    buffered = stack.enter_context((root / "buffered").open("wb"))
    joined = stack.enter_context((root / "joined").open("wb"))

    def write_bare() -> None:
        for batch in batches:
            bare.write(b"".join(batch))
            os.fdatasync(bare.fileno())

    def write_records() -> None:
        for batch in batches:
            for value in batch:
                buffered.write(value)
        buffered.flush()

    def write_lines() -> None:
        for batch in batches:
            joined.writelines(batch)
        joined.flush()

    return {BARE: write_bare, BUFFERED: write_records, JOINED: write_lines}


@click.command(help=__doc__)
@click.option("--per-batch", default=1000, help="Number of 100-byte records in a batch.")
@click.option("--batches", default=40, help="Number of batches per round.")
@click.option("--rounds", default=15, help="Number of interleaved rounds.")
@click.option("--folder", default=None, help="Folder to work in. It has to be on a disk.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(per_batch: int, batches: int, rounds: int, folder: str | None, as_json: bool) -> None:
    values = [[os.urandom(100) for _ in range(per_batch)] for _ in range(batches)]
    report = Report(f"{rounds} rounds of {batches} batches of {per_batch} x 100 bytes")
    with bench_folder(folder) as work, ExitStack() as stack:
        calls = open_logs(str(work), values, stack) | open_database(str(work), values, stack)
        calls |= open_files(str(work), values, stack)
        times = interleave({name: partial(measure, calls[name]) for name in ORDER}, rounds)
    for name, taken in times.items():
        report.figures[name] = f"{per_batch * batches / statistics.median(taken) / 1e6:.2f} M records/s"
    for measured, yardstick, target in COMPARISONS:
        report.findings.append(Finding(measured, yardstick, ratios(times[yardstick], times[measured]), target))
    report.print(as_json=as_json)


if __name__ == "__main__":
    main()
