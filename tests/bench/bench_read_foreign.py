"""Reads the log segments of other programs to Arrow, from memory, with every check, against two yardsticks.

The yardsticks are a loop in Python, and CRC-32C alone over the same bytes. All of them take turns in one run. The ratio
of these two bounds what a reader can reach against the loop: it cannot be faster than one pass over its bytes. The loop
for spacetimedb reads each commit with ``struct``, checks its CRC-32C, and keeps its bytes. That for kafka runs over the
records of aiokafka's parser, with its checksum, and keeps each one's offset, timestamp, key and value.
"""

from __future__ import annotations

import os
import statistics
import struct
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
from measuring import Finding, Report, measure, ratios

from litelog.codec.checksum import crc32c
from litelog.codec.fnv import fnv1a
from litelog.formats import Expectation
from litelog.formats.capabilities import scan_columns
from litelog.formats.registry import open_format
from litelog.log.cursor import LARGE_PIECE_BYTES
from litelog.system.memory import keep_freed_memory

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.builders.kafka_log import write_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from litelog.formats import LogFormat

ARROW, LOOP, CHECKSUM = "to Arrow", "loop", "CRC-32C alone"
KAFKA_VALUE_BYTES = 100


@dataclass(frozen=True, slots=True)
class Sample:
    """A log segment, its name, and the loop that reads it."""

    name: str
    data: memoryview
    records: int
    loop: Callable[[memoryview], int]


def make_spacetimedb(size: int, commit_bytes: int) -> Sample:
    body = os.urandom(commit_bytes)
    parts = [bytes.fromhex("286473295e3201000000")]
    records = size // (commit_bytes + 26)
    for first in range(records):
        commit = struct.pack("<QQHI", first, 0, 1, commit_bytes) + body
        parts.append(commit + crc32c(commit).to_bytes(4, "little"))
    return Sample(f"{0:020d}.stdb.log", memoryview(b"".join(parts)), records, loop_spacetimedb)


def loop_spacetimedb(data: memoryview) -> int:
    unpack, at, size, records = struct.Struct("<QQHI").unpack_from, 10, len(data), 0
    values: list[bytes] = []
    keep = values.append
    while at < size:
        _, _, _, length = unpack(data, at)
        end = at + 22 + length
        if crc32c(data[at:end]) != int.from_bytes(data[end : end + 4], "little"):
            raise SystemExit("a checksum is wrong")
        keep(bytes(data[at + 22 : end]))
        at = end + 4
        records += 1
        if records % 4096 == 0:
            values.clear()
    return records


def make_kafka(size: int, commit_bytes: int) -> Sample:
    """Batches of records with 100 random bytes each, and no keys."""
    values = [os.urandom(KAFKA_VALUE_BYTES) for _ in range(1000)]
    count = max(1, commit_bytes // (KAFKA_VALUE_BYTES + 10))
    parts: list[bytes] = []
    for first in range(0, size // (KAFKA_VALUE_BYTES + 10), count):
        entries = [(place, place // 4, None, values[(first + place) % 1000], []) for place in range(count)]
        parts.append(write_batch(first, list(entries)))
    return Sample(f"{0:020d}.log", memoryview(b"".join(parts)), count * len(parts), loop_kafka)


def loop_kafka(data: memoryview) -> int:
    from aiokafka.record.memory_records import MemoryRecords  # `pip install aiokafka`

    found, records = MemoryRecords(bytes(data)), 0
    rows: list[tuple[int, int, bytes | None, bytes | None]] = []
    while found.has_next():
        batch = found.next_batch()
        if not batch.validate_crc():
            raise SystemExit("a checksum is wrong")
        rows.extend((record.offset, record.timestamp, record.key, record.value) for record in batch)
        records += len(rows)
        rows.clear()
    return records


NETLOG_HEADER = struct.pack(">BBI10x", 1, 16, 1_700_000_000)
PER_SET = 100
"""Messages in a set, as many as the server gathers by default."""


def make_netlog(size: int, commit_bytes: int) -> Sample:
    message = netlog_message(os.urandom(commit_bytes))
    count = size // len(message)
    return Sample(f"{0:020d}.data", memoryview(NETLOG_HEADER + message * count), count, loop_netlog)


def make_netlog_sets(size: int, commit_bytes: int) -> Sample:
    """Sets of messages, each of the given number of bytes."""
    held = netlog_message(netlog_message(os.urandom(commit_bytes)) * PER_SET, codec=1)
    count = size // len(held)
    return Sample(f"{0:020d}.data", memoryview(NETLOG_HEADER + held * count), count * PER_SET, loop_netlog)


def netlog_message(payload: bytes, codec: int = 0) -> bytes:
    return struct.pack(">BII", codec, zlib.crc32(payload), len(payload)) + payload


def loop_netlog(data: memoryview) -> int:
    values: list[bytes] = []
    records = 0
    for codec, payload in netlog_payloads(data, 16):
        if codec:
            held = [bytes(inner) for _, inner in netlog_payloads(payload, 0)]
            values += held
            records += len(held)
        else:
            values.append(bytes(payload))
            records += 1
        if len(values) >= 4096:
            values.clear()
    return records


def netlog_payloads(data: memoryview, at: int) -> Iterator[tuple[int, memoryview]]:
    unpack, size = struct.Struct(">BII").unpack_from, len(data)
    while at < size:
        codec, checksum, length = unpack(data, at)
        payload = data[at + 9 : at + 9 + length]
        if zlib.crc32(payload) != checksum:
            raise SystemExit("a checksum is wrong")
        yield codec, payload
        at += 9 + length


def make_influxdb(size: int, commit_bytes: int) -> Sample:
    count = size // (commit_bytes + 26)
    body = np.frombuffer(os.urandom(commit_bytes), np.uint8)
    messages = np.zeros((count, commit_bytes + 26), np.uint8)
    messages[:, 14:22] = np.arange(1, count + 1, dtype=">u8").view(np.uint8).reshape(count, 8)
    messages[:, 22:26] = np.frombuffer(struct.pack(">I", commit_bytes), np.uint8)
    messages[:, 26:] = body
    starts = np.arange(count) * (commit_bytes + 26)
    checksums = fnv1a(messages.tobytes(), starts + 4, starts + commit_bytes + 26)
    messages[:, :4] = checksums.astype(">u4").view(np.uint8).reshape(count, 4)
    return Sample("1", memoryview(messages.tobytes()), count, loop_influxdb)


def loop_influxdb(data: memoryview) -> int:
    unpack, at, size, records = struct.Struct(">IHQQI").unpack_from, 0, len(data), 0
    values: list[bytes] = []
    while at < size:
        checksum, _, _, _, length = unpack(data, at)
        state = 0x811C9DC5
        for byte in data[at + 4 : at + 26 + length]:
            state = (state ^ byte) * 0x01000193 & 0xFFFF_FFFF
        if state != checksum:
            raise SystemExit("a checksum is wrong")
        values.append(bytes(data[at + 26 : at + 26 + length]))
        at += 26 + length
        records += 1
        if records % 4096 == 0:
            values.clear()
    return records


def make_redis_aof(size: int, commit_bytes: int) -> Sample:
    value = os.urandom(commit_bytes).replace(b"\r\n", b"..")
    count = size // (commit_bytes + 50)
    head, tail = b"*3\r\n$3\r\nSET\r\n$12\r\n", b"\r\n$%d\r\n%b\r\n" % (len(value), value)
    parts = [b"%bkey:%08d%b" % (head, number, tail) for number in range(count)]
    return Sample("appendonly.aof.1.incr.aof", memoryview(b"".join(parts)), count, loop_redis_aof)


def loop_redis_aof(data: memoryview) -> int:
    """These files have no checksums to compute."""
    body, at, records = bytes(data), 0, 0
    values: list[bytes] = []
    while at < len(body):
        start, end = at, body.index(b"\r\n", at)
        words, at = int(body[at + 1 : end]), end + 2
        for _ in range(words):
            end = body.index(b"\r\n", at)
            at = end + 4 + int(body[at + 1 : end])
        values.append(body[start:at])
        records += 1
        if records % 4096 == 0:
            values.clear()
    return records


SAMPLES = {
    "kafka": make_kafka,
    "spacetimedb": make_spacetimedb,
    "influxdb": make_influxdb,
    "netlog": make_netlog,
    "netlog-sets": make_netlog_sets,
    "redis-aof": make_redis_aof,
}


def read(form: LogFormat, sample: Sample, piece_bytes: int) -> int:
    """Read the log segment piece by piece, as a reader of a file does, and return the number of records."""
    expect, data = Expectation(), sample.data
    offset = records = 0
    while offset < len(data):
        scan, columns = scan_columns(form, sample.name, data[offset : offset + piece_bytes], offset, expect)
        records += sum(batch.num_rows for batch in columns.to_arrow_batches())
        offset, expect = scan.end, scan.expectation
    return records


def checksum(data: memoryview, piece_bytes: int) -> int:
    value = 0
    for start in range(0, len(data), piece_bytes):
        value = crc32c(data[start : start + piece_bytes], value)
    return value


@click.command(help=__doc__)
@click.option("--format", "format_name", type=click.Choice(sorted(SAMPLES)), default="spacetimedb", show_default=True)
@click.option("--size", default=32, help="MiB of log.")
@click.option("--commit", default=1000, help="Bytes of records in each commit.")
@click.option("--rounds", default=7, help="Number of interleaved rounds.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(format_name: str, size: int, commit: int, rounds: int, as_json: bool) -> None:
    keep_freed_memory()  # as the commands do
    sample, form = SAMPLES[format_name](size << 20, commit), open_format(format_name.removesuffix("-sets"))
    calls: dict[str, Callable[[], int]] = {
        ARROW: lambda: read(form, sample, LARGE_PIECE_BYTES),
        LOOP: lambda: sample.loop(sample.data),
        CHECKSUM: lambda: checksum(sample.data, LARGE_PIECE_BYTES),
    }
    for name in (ARROW, LOOP):
        if calls[name]() != sample.records:
            raise SystemExit(f"{name}: did not read {sample.records} records")
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(measure(call))
    report = Report(f"reading {size} MiB of {format_name}, commits of {commit} bytes")
    for name, taken in times.items():
        median = statistics.median(taken)
        rate = f"{sample.records / median / 1e6:.2f} M records/s, " if name != CHECKSUM else ""
        report.figures[name] = f"{rate}{len(sample.data) / median / (1 << 20):,.0f} MiB/s"
    for yardstick in (LOOP, CHECKSUM):
        report.findings.append(Finding(ARROW, yardstick, ratios(times[yardstick], times[ARROW])))
    # What the first ratio would be if all that is read were checksummed, and nothing else were done.
    report.findings.append(Finding(f"bound: {CHECKSUM}", LOOP, ratios(times[LOOP], times[CHECKSUM])))
    report.print(as_json=as_json)


if __name__ == "__main__":
    main()
