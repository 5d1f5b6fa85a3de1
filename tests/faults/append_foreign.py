"""Appends numbered records to a log of another program's format until it is killed, as that program does.

It prints the next sequence after each batch.

python append_foreign.py FORMAT LOG SEED SEGMENT_BYTES [FSYNC] [PAUSE]    FSYNC: always, or anything else for never

At a start it cuts what a crash left after the last whole commit, as the programs do.
"""

from __future__ import annotations

import os
import random
import sys
import time
from typing import TYPE_CHECKING

from litelog.errors import CorruptCommitError
from litelog.formats import Expectation
from litelog.formats.registry import open_format
from tests.builders.kafka_log import write_batch
from tests.builders.old_logs import NETLOG_HEADER, influx_message, netlog_message, netlog_name

if TYPE_CHECKING:
    from litelog.formats import LogFormat

FIRST = {"netlog": 0, "influxdb": 1, "kafka": 0}
"""The first sequence of a log."""


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
        path = roll(name, folder, number)


def encode(name: str, first: int, values: list[bytes]) -> bytes:
    if name == "netlog":
        return b"".join(map(netlog_message, values))
    if name == "influxdb":
        return b"".join(influx_message(index, value) for index, value in enumerate(values, first))
    return write_batch(first, [(at, 0, None, value, []) for at, value in enumerate(values)])


def roll(name: str, folder: str, number: int) -> str:
    """Begin a log segment, durably."""
    file_name = {"netlog": netlog_name(number), "influxdb": str(number), "kafka": f"{number:020d}.log"}[name]
    path = os.path.join(folder, file_name)
    with open(path, "wb") as file:
        file.write(NETLOG_HEADER if name == "netlog" else b"")
        file.flush()
        os.fsync(file.fileno())
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    return path


def recover(name: str, log_format: LogFormat, folder: str) -> tuple[str, int]:
    """The newest log segment, cut after its last whole commit, and the next sequence; no path for a new log."""
    orders = {each: log_format.segment_order(each) for each in os.listdir(folder)}
    for _, newest in sorted(((order, each) for each, order in orders.items() if order is not None), reverse=True):
        path = os.path.join(folder, newest)
        with open(path, "rb") as file:
            data = file.read()
        try:
            found = log_format.scan(path, memoryview(data), 0, Expectation())
        except CorruptCommitError as error:
            found = log_format.scan(path, memoryview(data)[: error.offset], 0, Expectation())
        if found.end and found.next is not None:
            os.truncate(path, found.end)
            return path, found.next
        os.unlink(path)
    return "", FIRST[name]


if __name__ == "__main__":
    main(*sys.argv[1:])
