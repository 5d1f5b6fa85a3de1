"""Flips every bit of small replicas, and restores each damaged replica as a reader does."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from litelog.errors import LitelogError
from litelog.formats import Expectation
from litelog.formats.influxdb import InfluxdbFormat
from litelog.formats.kafka import KafkaFormat
from litelog.formats.netlog import NetlogFormat
from litelog.formats.redis_aof import RedisAofFormat
from litelog.formats.redis_aof.manifest import write_manifest
from litelog.formats.registry import open_format
from litelog.formats.spacetimedb import SpacetimeDBFormat
from litelog.objects import snapshot as snapshots
from litelog.objects import wal_segment
from litelog.objects.layout import parse_claim, parse_snapshot, parse_wal, sealed_key
from litelog.objects.sealed_decoding import decode_frame
from litelog.objects.sealed_segment import read_footer
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon
from tests.builders.log_builder import LogBuilder
from tests.builders.manual_clock import ManualClock
from tests.builders.recorded_logs import recorded_segments
from tests.builders.redis_server import encode
from tests.builders.replica_builder import FORMAT, ReplicaBuilder, make_log
from tests.builders.stdb_log import HEADERS, compress, encode_commit, segment_name
from tests.builders.verify_helper import found, verified

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from litelog.formats import LogFormat


TINY = make_log([[1, 1], [1]])


def sealed_and_growing() -> ReplicaBuilder:
    """A claim, a sealed segment, two snapshots and a WAL segment. The other WAL segments are pruned."""
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship_segment(TINY[0], cuts=[0])
    built.snapshot(1)
    built.prune(1)
    built.ship_segment(TINY[1], final=None)
    builder.client.delete_snapshots([(built.name, 0)])
    return builder


def ended_and_continued() -> ReplicaBuilder:
    """Two claims, a snapshot and WAL segments each, and a terminal between them."""
    builder = ReplicaBuilder()
    builder.add().ship_segment(TINY[0], cuts=[0], final=None)
    builder.add().ship(TINY[0].data, TINY[0].name)
    return builder


NOW = 1_800_000_000_000_000
"""When foreign logs are shipped, in microseconds since 1970: later than all of their records, and always the same."""


class Shipped:
    """A replica of a few log segments, as a daemon ships them: sealed, and the last one as WAL."""

    def __init__(self, log_format: LogFormat, segments: Sequence[tuple[str, bytes]]) -> None:
        """``segments``: names and bytes, oldest first."""
        self._format, self._segments = log_format, segments

    def objects(self) -> dict[str, bytes]:
        store = MemoryStore("shipped")
        with TemporaryDirectory() as folder:
            log = os.path.join(folder, "orders-0")
            os.mkdir(log)
            for name, data in self._segments:
                Path(log, name).write_bytes(data)
            clock = ManualClock(NOW)
            daemon = Daemon(LogBuilder(log, self._format), store, f"{folder}/state", clock=clock, backlog_sealer=True)
            daemon.sync()
            daemon.close()
        return {each.key: store.open(each.key).read() for each in store.list("")}


def kafka_partition() -> Shipped:
    name, data = recorded_segments("kafka", "plain_none")[0]
    commits = KafkaFormat().commits(name, memoryview(data), 0, Expectation())
    cut = commits[1]
    return Shipped(KafkaFormat(), [(name, data[: cut.start]), (f"{cut.first:020d}.log", data[cut.start : cut.end])])


def netlog_topic() -> Shipped:
    return Shipped(NetlogFormat(), recorded_segments("netlog", "sets", ".data")[:2])


def influxdb_topic() -> Shipped:
    return Shipped(InfluxdbFormat(), recorded_segments("influxdb", "table", "")[:2])


REPLICAS = {"sealed": sealed_and_growing, "ended": ended_and_continued}


def redis_aof() -> Shipped:
    names = [f"appendonly.aof.1.{kind}" for kind in ("base.aof", "incr.aof")]
    contents = [encode(("SELECT", "0")) + encode(("SET", "a", "1")), encode(("SET", "b", "2"))]
    return Shipped(RedisAofFormat(), [write_manifest(names), *zip(names, contents, strict=True)])


def spacetimedb_commitlog() -> Shipped:
    """The first log segment is compressed in place."""
    commits = [encode_commit(0, b"a", 2), encode_commit(2, b"bc"), encode_commit(3, b"d" * 30)]
    first, second = HEADERS[1] + b"".join(commits[:2]), HEADERS[1] + commits[2]
    return Shipped(SpacetimeDBFormat(), [(segment_name(0), compress(first)), (segment_name(3), second)])


FOREIGN_REPLICAS = {
    "kafka": kafka_partition,
    "netlog": netlog_topic,
    "influxdb": influxdb_topic,
    "redis-aof": redis_aof,
    "spacetimedb": spacetimedb_commitlog,
}
"""Replicas of logs that other programs wrote."""

_ALL: Mapping[str, Callable[[], ReplicaBuilder | Shipped]] = {**REPLICAS, **FOREIGN_REPLICAS}


def restored(objects: dict[str, bytes]) -> dict[str, bytes] | None:
    """The files that a reader restores of a replica's newest generation; None if an object cannot be read.

    The objects are decoded as every reader decodes them. Nothing else is checked.
    """
    try:
        epoch = max(name for key in objects if (name := parse_claim(key)) is not None).epoch
        mine = {key: body for key, body in objects.items() if key.startswith(f"generations/{epoch:08x}")}
        base = max((key for key in mine if parse_snapshot(key)), default=None)
        files: dict[str, bytes] = {}
        start = 0
        if base is not None:
            snapshot = snapshots.decode(base, mine[base])
            start = snapshot.next
            for entry in snapshot.segments:
                files[entry.file] = unsealed(entry.key, objects[entry.key])
        for key in sorted(mine):
            position = parse_wal(key)
            if position is not None and position.index >= start:
                segment = wal_segment.decode_checked(key, mine[key])
                if segment.header.sealed is not None:
                    there = sealed_key(position.generation, position.index)
                    files[segment.header.file] = unsealed(there, mine[there])
                    continue
                assert segment.header.offset == len(files.get(segment.header.file, b"")) or segment.header.successor
                files[segment.header.file] = files.get(segment.header.file, b"") + segment.data()
    except (LitelogError, KeyError, AssertionError):
        return None
    return files


def unsealed(key: str, body: bytes) -> bytes:
    footer = read_footer(key, lambda start, length: body[start : start + length], len(body))
    frames = (footer.frames[number] for number in range(len(footer.frames)))
    return b"".join(
        decode_frame(key, footer, number, body[frame.start : frame.stop]) for number, frame in enumerate(frames)
    )


Flip = tuple[str, int, int]
"""An object's key, the number of a byte in the object, and the number of a bit in that byte."""


def flips_of(name: str) -> list[Flip]:
    """Every bit of a replica."""
    objects = _ALL[name]().objects()
    return [(key, at, bit) for key, body in objects.items() for at in range(len(body)) for bit in range(8)]


def judge_flips(name: str, flips: Iterable[Flip]) -> tuple[int, int]:
    """Flip bits, one at a time, and verify each damaged replica.

    Returns how many flips verify reports with the object's key, and how many are harmless. AssertionError for a flip
    that is neither.
    """
    whole = _ALL[name]().objects()
    log_format = open_format(name) if name in FOREIGN_REPLICAS else FORMAT
    expected = restored(whole)
    assert found(verified(whole, log_format, parallelism=1)) == []
    assert expected
    loud = harmless = 0
    for key, at, bit in flips:
        body = whole[key]
        damaged = {**whole, key: body[:at] + bytes([body[at] ^ 1 << bit]) + body[at + 1 :]}
        report = verified(damaged, log_format, parallelism=1)
        if report.harmful:
            harmful = (anomaly for anomaly in report.anomalies if anomaly.harmful)
            assert any(key in (anomaly.key, *anomaly.what.split()) for anomaly in harmful)
            loud += 1
        else:
            assert restored(damaged) == expected, (key, at)
            harmless += 1
    return loud, harmless
