"""Reads a log to Arrow batches, with every check, against two yardsticks. All of them take turns in one run.

The log is read from its files by LogReader, and from memory with the steps of LogReader, without the cost of file reads
and buffers. The yardsticks are a struct loop over length-prefixed records of the same values, and CRC-32C alone over
the same bytes, each from files and from memory as well. The files are in the page cache.
"""

from __future__ import annotations

import os
import statistics
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

import click
from measuring import Finding, Report, bench_folder, measure, ratios

from litelog.codec.checksum import crc32c
from litelog.formats import Expectation
from litelog.formats.litelog import LitelogFormat, SegmentHeader, encode_commit, segment_name
from litelog.log.cursor import LARGE_PIECE_BYTES
from litelog.log.reader import LogReader
from litelog.system.memory import keep_freed_memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from litelog.formats.columns import Columns

VALUE_BYTES = 100
BORROWED, COPIED, LOOP, CHECKSUM = "to Arrow, borrowed", "to Arrow, copied", "struct loop", "CRC-32C alone"
MEMORY, FILES = "from memory", "from files"
REPEATS = 5
PREFIX = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Bytes:
    """The same values in two forms: a log segment, and length-prefixed records."""

    segment: memoryview
    prefixed: memoryview
    records: int


def make_bytes(mebibytes: int, per_commit: int) -> Bytes:
    values = [os.urandom(VALUE_BYTES) for _ in range(per_commit)]
    parts: list[bytes | bytearray] = [SegmentHeader(UUID(int=1), 0, 0).encode()]
    commits = (mebibytes << 20) // len(encode_commit(0, 1, 0, values))
    parts += [encode_commit(number * per_commit, 1, number, values) for number in range(commits)]
    prefixed = b"".join(PREFIX.pack(VALUE_BYTES) + value for value in values) * commits
    return Bytes(memoryview(b"".join(parts)), memoryview(prefixed), commits * per_commit)


def read_memory(data: memoryview, piece_bytes: int, *, copy: bool) -> int:
    """Read ``data`` piece by piece, as a reader of a file does, and return the number of records."""
    form, expect, name = LitelogFormat(), Expectation(), segment_name(0)
    offset = records = 0
    while offset < len(data):
        columns = form.decode(name, data[offset : offset + piece_bytes], offset, expect)
        records += _convert(columns, copy=copy)
        last = int(columns.value_starts[-1] + columns.value_lengths[-1])
        offset += -(-(last + 4) // 8) * 8
        expect = Expectation(int(columns.sequences[-1]) + 1)
    return records


def read_files(folder: Path, *, copy: bool) -> int:
    with LogReader(str(folder)) as reader:
        return sum(_convert(columns, copy=copy) for columns in reader.batches())


def _convert(columns: Columns, *, copy: bool) -> int:
    """Convert to Arrow, into new memory if ``copy``, and return the number of records."""
    batches = [columns.to_arrow()] if copy else list(columns.to_arrow_batches())
    return sum(batch.num_rows for batch in batches)


def loop_structs(data: memoryview) -> int:
    offset = records = 0
    values: list[bytes] = []
    keep, unpack, size = values.append, PREFIX.unpack_from, len(data)
    while offset < size:
        (length,) = unpack(data, offset)
        offset += 4
        keep(bytes(data[offset : offset + length]))
        offset += length
        records += 1
        if records % 4096 == 0:
            values.clear()
    return records


def checksum_memory(data: memoryview, piece_bytes: int) -> int:
    value = 0
    for start in range(0, len(data), piece_bytes):
        value = crc32c(data[start : start + piece_bytes], value)
    return value


def checksum_file(path: Path, piece_bytes: int) -> int:
    value = offset = 0
    with path.open("rb", buffering=0) as file:
        while piece := os.pread(file.fileno(), piece_bytes, offset):
            value = crc32c(piece, value)
            offset += len(piece)
    return value


@click.command(help=__doc__)
@click.option("--folder", type=click.Path(exists=True), help="Folder to work in, with room for 3 times --size.")
@click.option("--size", default=64, help="MiB of log.")
@click.option("--piece", default=LARGE_PIECE_BYTES >> 10, help="KiB read at a time.")
@click.option("--per-commit", default=1000, help="Number of 100-byte records in each commit.")
@click.option("--rounds", default=7, help="Number of interleaved rounds.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(folder: str | None, size: int, piece: int, per_commit: int, rounds: int, as_json: bool) -> None:
    keep_freed_memory()  # as the commands do
    data, piece_bytes = make_bytes(size, per_commit), piece << 10
    report = Report(f"reading {size} MiB, pieces of {piece} KiB")
    with bench_folder(folder) as work:
        log, prefixed = work / "log", work / "prefixed"
        log.mkdir()
        segment = log / segment_name(0)
        segment.write_bytes(data.segment)
        prefixed.write_bytes(data.prefixed)
        sources: dict[str, dict[str, Callable[[], int]]] = {
            FILES: {
                BORROWED: lambda: read_files(log, copy=False),
                COPIED: lambda: read_files(log, copy=True),
                CHECKSUM: lambda: checksum_file(segment, piece_bytes),
                LOOP: lambda: loop_structs(memoryview(prefixed.read_bytes())),
            },
            MEMORY: {
                BORROWED: lambda: read_memory(data.segment, piece_bytes, copy=False),
                COPIED: lambda: read_memory(data.segment, piece_bytes, copy=True),
                CHECKSUM: lambda: checksum_memory(data.segment, piece_bytes),
                LOOP: lambda: loop_structs(data.prefixed),
            },
        }
        for source, calls in sources.items():
            for name in (BORROWED, COPIED, LOOP):
                if calls[name]() != data.records:
                    raise SystemExit(f"{name}, {source}: did not read {data.records} records")
            times = take_turns(calls, rounds)
            for name, taken in times.items():
                report.figures[f"{name}, {source}"] = f"{data.records / statistics.median(taken) / 1e6:.1f} M records/s"
            for name in (BORROWED, COPIED):
                for yardstick, target in ((LOOP, 10.0), (CHECKSUM, 0.4)):
                    found = ratios(times[yardstick], times[name])
                    report.findings.append(Finding(f"{name}, {source}", yardstick, found, target))
    report.print(as_json=as_json)


def take_turns(calls: dict[str, Callable[[], int]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds that each call takes, round by round.

    Short calls run several times in a round and next to each other, so that load from other programs on the machine
    affects both sides of a ratio.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    short = [name for name in calls if name != LOOP]
    for _ in range(rounds):
        taken = dict.fromkeys(calls, 0.0)
        for name in [*short * REPEATS, LOOP]:
            taken[name] += measure(calls[name]) / (1 if name == LOOP else REPEATS)
        for name in calls:
            times[name].append(taken[name])
    return times


if __name__ == "__main__":
    main()
