"""A real broker: its partitions are replicated while it runs, it is killed and wiped, and starts on what is restored.

The tests run where Kafka is installed (see tests/README.md).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders.kafka_broker import KafkaBroker, find_libs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(find_libs() is None, reason="Kafka or Java is not installed (see tests/README.md)"),
]

LITELOG = [sys.executable, "-m", "litelog_cli"]
WAIT_SECONDS = 60
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafkaBroker]:
    started = KafkaBroker(tmp_path / "broker")
    started.format()
    started.start()
    yield started
    started.end()


class Sidecar:
    """The daemon next to the broker, and its configuration: all partitions, each with a replica."""

    def __init__(self, folder: Path, broker: KafkaBroker) -> None:
        self.folder = folder
        self.config = folder / "litelog.yml"
        self.config.write_text(
            f"state-dir: {folder}/state\naddr: off\npoll-interval: 100ms\nsync-interval: 100ms\nlogs:\n"
            f"  - dir: {broker.data}\n    format: kafka\n    replicas:\n      - url: file://{folder}/replicas/{{name}}\n"
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.folder / "daemon-output").open("ab") as output:
            command = [*LITELOG, "replicate", "--config", str(self.config)]
            self._process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(WAIT_SECONDS) == 0, self.output
        self._process = None

    @property
    def output(self) -> str:
        return (self.folder / "daemon-output").read_text()

    def replica(self, partition: str) -> str:
        return f"file://{self.folder}/replicas/{partition}"

    def offsets(self, partition: str) -> list[int]:
        """The offsets of all records in the replica of a partition."""
        return [record["sequence"] for record in self.cat(self.replica(partition))]

    def cat(self, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in litelog("cat", "--json", *arguments).splitlines()]


def litelog(*arguments: str) -> str:
    done = subprocess.run([*LITELOG, *arguments], capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    return done.stdout


def until(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"not yet: {what}"
        time.sleep(0.1)


def checkpoint(broker: KafkaBroker) -> dict[str, int]:
    """The high watermarks that the broker has written to disk, by topic."""
    lines = (broker.data / "replication-offset-checkpoint").read_text().splitlines()[2:]
    return {topic: int(offset) for topic, _, offset in (line.split() for line in lines)}


def produce(broker: KafkaBroker) -> list[str]:
    """Create topics of each kind, with records. Returns their names."""
    codecs = [verb for codec in CODECS for verb in (f"create plain.{codec}", f"plain plain.{codec} {codec}")]
    rolled = ["create rolled segment.bytes=2048", "sizes rolled 60 150"]
    transactions = ["create transactions", "transactions transactions"]
    broker.client(*codecs, *rolled, "create busy segment.bytes=65536", *transactions)
    return [*(f"plain.{codec}" for codec in CODECS), "rolled", "transactions"]


def test_a_broker_starts_on_what_was_restored_after_kill_9(broker: KafkaBroker, tmp_path: Path) -> None:
    sidecar = Sidecar(tmp_path, broker)
    sidecar.start()
    topics = produce(broker)
    before = broker.dump_all(topics)
    with (tmp_path / "acknowledged").open("wb") as output:
        producer = broker.start_client("acknowledged busy", output)
        until("records are acknowledged", lambda: (tmp_path / "acknowledged").stat().st_size > 20_000)
        broker.end()
        producer.wait(WAIT_SECONDS)
    until(
        "all is shipped", lambda: all(_next(sidecar, topic) >= checkpoint(broker)[topic] for topic in [*topics, "busy"])
    )
    sidecar.stop()
    acknowledged = [int(line) for line in (tmp_path / "acknowledged").read_text().split()]
    shipped = sidecar.offsets("busy-0")
    assert shipped == list(range(checkpoint(broker)["busy"]))
    assert acknowledged[: len(shipped)] == shipped[: len(acknowledged)]
    assert len(shipped) > 1000

    shutil.rmtree(broker.data)
    broker.format()
    litelog("restore", "--all", "--if-replica-exists", "--config", str(sidecar.config), "-q")
    names = {f"{topic}-0" for topic in [*topics, "busy", "__cluster_metadata"]}
    assert names <= {path.name for path in broker.data.iterdir()}
    broker.start()
    after = broker.dump_all([*topics, "busy"])
    # The broker ends the open transaction in time: its marker is one more offset, and no record.
    assert {topic: after[topic][:-1] for topic in topics} == {topic: before[topic][:-1] for topic in topics}
    *records, bounds = after["busy"]
    assert [record["offset"] for record in records] == shipped
    assert bounds == {"first": 0, "end": len(shipped)}
    broker.client("sizes busy 3 10", "plain plain.zstd zstd")
    again = broker.dump_all(["busy", "plain.zstd"])
    assert again["busy"][-1] == {"first": 0, "end": len(shipped) + 3}
    assert again["plain.zstd"][: len(before["plain.zstd"]) - 1] == before["plain.zstd"][:-1]
    assert len(again["plain.zstd"]) == 2 * len(before["plain.zstd"]) - 1


def test_a_compaction_begins_no_generation_and_loses_nothing(broker: KafkaBroker, tmp_path: Path) -> None:
    create = "create keyed segment.bytes=2048 min.cleanable.dirty.ratio=0.01 delete.retention.ms=0"
    broker.client(create, "keyed keyed 300")
    sidecar = Sidecar(tmp_path, broker)
    sidecar.start()
    until("all is shipped", lambda: _next(sidecar, "keyed") == 300)
    folder = broker.data / "keyed-0"
    inodes = {path.name: path.stat().st_ino for path in folder.glob("*.log")}
    broker.client("configure keyed cleanup.policy=compact")
    until("the cleaner ran", lambda: (folder / min(inodes)).stat().st_ino != inodes[min(inodes)])
    broker.client("sizes keyed 30 100")
    until("all is shipped", lambda: _next(sidecar, "keyed") == 330)
    sidecar.stop()
    served = broker.dump("keyed")
    assert len(served) - 1 < 330
    assert len(litelog("generations", "--json", sidecar.replica("keyed-0")).splitlines()) == 1
    assert sidecar.offsets("keyed-0") == list(range(330))
    (tmp_path / "restored").mkdir()
    litelog("restore", "-q", "-o", str(tmp_path / "restored" / "keyed-0"), sidecar.replica("keyed-0"))
    found = {
        record["sequence"]: record
        for record in sidecar.cat("--format", "kafka", str(tmp_path / "restored" / "keyed-0"))
    }
    assert {record["offset"] for record in served[:-1]} <= found.keys()


def _next(sidecar: Sidecar, topic: str) -> int:
    """The offset after all that is shipped of partition 0."""
    if not os.path.isdir(f"{sidecar.folder}/replicas/{topic}-0"):
        return 0
    lines = litelog("segments", "--json", sidecar.replica(f"{topic}-0")).splitlines()
    return max((json.loads(line)["next"] or 0 for line in lines), default=0)
