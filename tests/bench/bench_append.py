"""Appends to our log, against SQLite with every batch durable, and against a buffered file with no sync at all.

The same batches of the same records go to each, taking turns in one run. SQLite: WAL mode, synchronous=FULL, a
transaction a batch, default settings otherwise. The file: Python's own, default buffer, one ``write`` a record.
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

SYNCED, ASYNCHRONOUS, UNSYNCED = "log, fdatasync a batch", "log, futures, fdatasync a group", "log, no sync"
SQLITE, BARE, BUFFERED, JOINED = (
    "sqlite, WAL, FULL",
    "write + fdatasync a batch",
    "file, write a record",
    "file, writelines",
)

COMPARISONS = (
    (SYNCED, SQLITE, 4.0),
    (UNSYNCED, BUFFERED, 0.8),
    (SYNCED, BARE, None),
    (ASYNCHRONOUS, SQLITE, None),
    (UNSYNCED, JOINED, None),
)
"""What, against what, and how many times as fast at least; None: to understand the others by."""

ORDER = (SYNCED, SQLITE, BARE, ASYNCHRONOUS, UNSYNCED, BUFFERED, JOINED)
"""Next to its yardstick each, so that a neighbour's load meets both."""


def append_all(log: LogWriter, batches: list[Batch]) -> None:
    for batch in batches:
        log.append(batch)


def append_futures(log: LogWriter, batches: list[Batch]) -> None:
    futures = [log.append_async(batch) for batch in batches]
    assert futures[-1].result().next == log.durable_sequence


def open_logs(folder: str, batches: list[Batch], stack: ExitStack) -> dict[str, Callable[[], None]]:
    ways = ((SYNCED, "always", append_all), (ASYNCHRONOUS, "always", append_futures), (UNSYNCED, "never", append_all))
    return {
        name: partial(
            append, stack.enter_context(LogWriter(os.path.join(folder, f"log{number}"), fsync=fsync)), batches
        )
        for number, (name, fsync, append) in enumerate(ways)
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
    place = Path(folder)
    bare = stack.enter_context((place / "bare").open("wb", buffering=0))
    buffered = stack.enter_context((place / "buffered").open("wb"))
    joined = stack.enter_context((place / "joined").open("wb"))

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
@click.option("--per-batch", default=1000, help="Records of 100 bytes in a batch.")
@click.option("--batches", default=40, help="Batches that each appends in a round.")
@click.option("--rounds", default=15, help="Interleaved rounds.")
@click.option("--folder", default=None, help="Where to write: on a disk, or nothing is durable.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(per_batch: int, batches: int, rounds: int, folder: str | None, as_json: bool) -> None:
    values = [[os.urandom(100) for _ in range(per_batch)] for _ in range(batches)]
    report = Report(f"{rounds} rounds of {batches} batches of {per_batch} x 100 bytes")
    with bench_folder(folder) as place, ExitStack() as stack:
        calls = open_logs(str(place), values, stack) | open_database(str(place), values, stack)
        calls |= open_files(str(place), values, stack)
        times = interleave({name: partial(measure, calls[name]) for name in ORDER}, rounds)
    for name, taken in times.items():
        report.figures[name] = f"{per_batch * batches / statistics.median(taken) / 1e6:.2f} M records/s"
    for what, against, target in COMPARISONS:
        report.findings.append(Finding(what, against, ratios(times[against], times[what]), target))
    report.print(as_json=as_json)


if __name__ == "__main__":
    main()
