"""Appends numbered records to a log of another program's format until it is killed, as that program does.

It prints the next sequence after each batch.

python append_foreign.py FORMAT LOG SEED SEGMENT_BYTES [FSYNC] [PAUSE]    FSYNC: always, or anything else for never

At a start it cuts what a crash left after the last whole commit, as the programs do. SpacetimeDB leaves that, and
continues in a new log segment. It also compresses finished log segments in place.
"""

from __future__ import annotations

import os
import random
import sys
import time
from typing import TYPE_CHECKING

from litelog.errors import CorruptCommitError
from litelog.formats import Expectation
from litelog.formats.redis_aof.manifest import read_manifest, write_manifest
from litelog.formats.registry import open_format
from tests.builders import stdb_log
from tests.builders.kafka_log import write_batch
from tests.builders.old_logs import NETLOG_HEADER, influx_message, netlog_message, netlog_name
from tests.builders.redis_log import MANIFEST
from tests.builders.redis_server import encode as encode_command

if TYPE_CHECKING:
    from litelog.formats import LogFormat

FIRST = {"netlog": 0, "influxdb": 1, "kafka": 0, "redis-aof": 0, "spacetimedb": 0}
"""The first sequence of a log."""

COMPRESSED = 0.4
"""The share of the finished log segments that SpacetimeDB compresses."""


def main(name: str, folder: str, seed: str, segment_bytes: str, fsync: str = "always", pause: str = "0") -> None:
    choose = random.Random(int(seed))
    os.makedirs(folder, exist_ok=True)
    if name == "kafka":
        with open(os.path.join(folder, "partition.metadata"), "w") as file:
            file.write("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    path, number = recover(name, open_format(name), folder)
    print(number, flush=True)  # noqa: T201
    while True:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644) if path else -1
        while file >= 0 and os.fstat(file).st_size < int(segment_bytes):
            count = choose.randint(1, 50)
            values = [b"%d:" % n + choose.randbytes(choose.randrange(200)) for n in range(number, number + count)]
            data = encode(name, number, values)
            assert os.write(file, data) == len(data)
            if fsync == "always":
                os.fsync(file)
            number += count
            print(number, flush=True)  # noqa: T201
            time.sleep(float(pause))
        if file >= 0:
            os.fsync(file)
            os.close(file)
        finished, path = path, roll(name, folder, number)
        if name == "spacetimedb" and finished and choose.random() < COMPRESSED:
            compress(finished)


def encode(name: str, first: int, values: list[bytes]) -> bytes:
    if name == "netlog":
        return b"".join(map(netlog_message, values))
    if name == "influxdb":
        return b"".join(influx_message(index, value) for index, value in enumerate(values, first))
    if name == "spacetimedb":
        return b"".join(stdb_log.encode_commit(number, value) for number, value in enumerate(values, first))
    if name == "redis-aof":
        return b"".join(encode_command(("SET", b"%d:" % number, value)) for number, value in enumerate(values, first))
    return write_batch(first, [(at, 0, None, value, []) for at, value in enumerate(values)])


def roll(name: str, folder: str, number: int) -> str:
    """Begin a log segment, durably. Redis then lists it in its manifest."""
    listed = listed_files(folder) if name == "redis-aof" else []
    names = {
        "netlog": netlog_name(number),
        "influxdb": str(number),
        "kafka": f"{number:020d}.log",
        "spacetimedb": stdb_log.segment_name(number),
    }
    file_name = names.get(name, f"appendonly.aof.{len(listed) + 1}.incr.aof")
    write_durably(folder, file_name, {"netlog": NETLOG_HEADER, "spacetimedb": stdb_log.HEADERS[1]}.get(name, b""))
    if name == "redis-aof":
        manifest, content = write_manifest([*listed, file_name])
        write_durably(folder, f"temp-{manifest}", content)
        os.rename(os.path.join(folder, f"temp-{manifest}"), os.path.join(folder, manifest))
        sync_folder(folder)
    return os.path.join(folder, file_name)


def compress(path: str) -> None:
    """Replace a finished log segment by a compressed one, as SpacetimeDB does."""
    folder, name = os.path.split(path)
    with open(path, "rb") as file:
        content = file.read()
    write_durably(folder, f".{name}.tmp", stdb_log.compress(content))
    os.rename(os.path.join(folder, f".{name}.tmp"), path)
    sync_folder(folder)


def write_durably(folder: str, name: str, content: bytes) -> None:
    with open(os.path.join(folder, name), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)


def sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def listed_files(folder: str) -> list[str]:
    """The files that Redis's manifest lists, in order; none without a manifest."""
    try:
        with open(os.path.join(folder, MANIFEST), "rb") as file:
            return read_manifest(file.read())
    except FileNotFoundError:
        return []


def recover(name: str, log_format: LogFormat, folder: str) -> tuple[str, int]:
    """The newest log segment, cut after its last whole commit, and the next sequence; no path for a new log."""
    if name == "redis-aof":
        return recover_redis(log_format, folder)
    orders = {each: log_format.segment_order(each) for each in os.listdir(folder)}
    for _, newest in sorted(((order, each) for each, order in orders.items() if order is not None), reverse=True):
        path = os.path.join(folder, newest)
        with open(path, "rb") as file:
            content = file.read()
        data = stdb_log.logical_bytes(content) if name == "spacetimedb" else content
        try:
            found = log_format.scan(path, memoryview(data), 0, Expectation())
        except CorruptCommitError as error:
            found = log_format.scan(path, memoryview(data)[: error.offset], 0, Expectation())
        if found.end and found.next is not None:
            if name == "spacetimedb" and (found.end < len(data) or data != content):
                return "", found.next
            os.truncate(path, found.end)
            return path, found.next
        os.unlink(path)
    return "", FIRST[name]


def recover_redis(log_format: LogFormat, folder: str) -> tuple[str, int]:
    """As ``recover``. Its files do not name their first sequence, and a file that the manifest does not list is not
    part of the log."""
    listed, number = listed_files(folder), 0
    for file_name in listed:
        path = os.path.join(folder, file_name)
        with open(path, "rb") as file:
            found = log_format.scan(path, memoryview(file.read()), 0, Expectation())
        number += found.records
        os.truncate(path, found.end)
    return (os.path.join(folder, listed[-1]), number) if listed else ("", 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
