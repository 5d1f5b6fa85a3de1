"""Reads a log in memory to Arrow batches, every check on, against two yardsticks, interleaved in one run.

Yardsticks: a struct loop over length-prefixed records of the same values, and CRC-32C alone over the same bytes.
"""

from __future__ import annotations

import os
import statistics
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

import click
from measuring import Finding, Report, measure, ratios

from litelog.checksum import crc32c
from litelog.compression import keep_freed_memory
from litelog.formats import Expectation
from litelog.formats.litelog import LitelogFormat, SegmentHeader, encode_commit, segment_name

if TYPE_CHECKING:
    from collections.abc import Callable

VALUE_BYTES = 100
BORROWED, COPIED, LOOP, CHECKSUM = "to Arrow, borrowed", "to Arrow, copied", "struct loop", "CRC-32C alone"
SHORT = (BORROWED, CHECKSUM, COPIED)
REPEATS = 5
PREFIX = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Bytes:
    """The same values twice: as a log segment, and length-prefixed."""

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


def read_batches(data: memoryview, piece_bytes: int, *, copy: bool) -> int:
    """Reads ``data`` piece by piece, as a reader of a file would, and returns the records read."""
    form, expect, name = LitelogFormat(), Expectation(), segment_name(0)
    place = records = 0
    while place < len(data):
        columns = form.decode(name, data[place : place + piece_bytes], place, expect)
        batches = [columns.to_arrow()] if copy else list(columns.to_arrow_batches())
        records += sum(batch.num_rows for batch in batches)
        last = int(columns.value_starts[-1] + columns.value_lengths[-1])
        place += -(-(last + 4) // 8) * 8
        expect = Expectation(int(columns.sequences[-1]) + 1)
    return records


def loop_structs(data: memoryview) -> int:
    place = records = 0
    values: list[bytes] = []
    keep, unpack, size = values.append, PREFIX.unpack_from, len(data)
    while place < size:
        (length,) = unpack(data, place)
        place += 4
        keep(bytes(data[place : place + length]))
        place += length
        records += 1
        if records % 4096 == 0:
            values.clear()
    return records


def run_checksum(data: memoryview, piece_bytes: int) -> int:
    value = 0
    for place in range(0, len(data), piece_bytes):
        value = crc32c(data[place : place + piece_bytes], value)
    return value


@click.command(help=__doc__)
@click.option("--size", default=64, help="MiB of log.")
@click.option("--piece", default=4096, help="KiB read at a time.")
@click.option("--per-commit", default=1000, help="Records of 100 bytes in each commit.")
@click.option("--rounds", default=7, help="Interleaved rounds.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(size: int, piece: int, per_commit: int, rounds: int, as_json: bool) -> None:
    keep_freed_memory()  # as the commands do
    data, piece_bytes = make_bytes(size, per_commit), piece << 10
    calls: dict[str, Callable[[], int]] = {
        BORROWED: lambda: read_batches(data.segment, piece_bytes, copy=False),
        COPIED: lambda: read_batches(data.segment, piece_bytes, copy=True),
        LOOP: lambda: loop_structs(data.prefixed),
        CHECKSUM: lambda: run_checksum(data.segment, piece_bytes),
    }
    for name in list(calls)[:3]:
        if calls[name]() != data.records:
            raise SystemExit(f"{name}: did not read {data.records} records")
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        taken = dict.fromkeys(calls, 0.0)
        # Short ones several times and next to each other, so that a noisy neighbour meets both sides of a ratio.
        for name in [*SHORT * REPEATS, LOOP]:
            taken[name] += measure(calls[name]) / (1 if name == LOOP else REPEATS)
        for name in calls:
            times[name].append(taken[name])
    report = Report(f"reading {size} MiB, pieces of {piece} KiB")
    for name, taken in times.items():
        report.figures[name] = f"{data.records / statistics.median(taken) / 1e6:.1f} M records/s"
    for name in (BORROWED, COPIED):
        for yardstick, target in ((LOOP, 10.0), (CHECKSUM, 0.4)):
            report.findings.append(Finding(name, yardstick, ratios(times[yardstick], times[name]), target))
    report.print(as_json=as_json)


if __name__ == "__main__":
    main()
