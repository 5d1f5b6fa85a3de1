"""A program in the daemon's process reads the shipped records as soon as they are acknowledged."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from litelog.config import Config, LogConfig, ReplicaConfig
from litelog.errors import ConfigError
from litelog.formats import Expectation
from litelog.formats.litelog import LitelogFormat
from litelog.log.writer import LogWriter
from litelog.objects import wal_segment
from litelog.objects.layout import wal_key
from litelog.replicator import Replicator
from litelog.stores.registry import open_client
from tests.waiting import WAIT_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from litelog.objects.claim import Claim
    from litelog.shipping.events import WalSegmentShipped


class Began:
    """A listener that knows when a generation begins."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def on_generation_started(self, log: str, replica: str, claim: Claim) -> None:
        self.event.set()

    def on_wal_segment_shipped(self, event: WalSegmentShipped) -> None: ...

    def on_segment_sealed(self, event: object) -> None: ...

    def on_snapshot_written(self, event: object) -> None: ...


def make_replicator(tmp_path: Path, listener: Began | None = None) -> Replicator:
    replica = ReplicaConfig(url=str(tmp_path / "replica"), sync_interval=0.001)
    config = Config(logs=(LogConfig(path=str(tmp_path / "log"), replicas=(replica,)),))
    return Replicator(config, state_dir=str(tmp_path / "state"), host="here", listener=listener)


@pytest.mark.slow
def test_a_subscriber_reads_every_record_once_while_they_are_appended(tmp_path: Path) -> None:
    log, url = str(tmp_path / "log"), str(tmp_path / "replica")
    began = Began()
    replicator = make_replicator(tmp_path, began)
    client = open_client(url)
    values: list[bytes] = []
    with LogWriter(log, segment_bytes=2000) as writer:
        writer.append(b"0")
        running = threading.Thread(target=replicator.run)
        running.start()
        assert began.event.wait(WAIT_SECONDS)
        with replicator.subscribe(log, url) as segments:
            for number in range(1, 200):
                writer.append(b"%d" % number)
            while len(values) < 200:
                assert segments.wait(WAIT_SECONDS)
                info = segments.next()
                assert info is not None
                segment = wal_segment.decode(wal_key(info.position), client.read_wal_segment(info.position))
                header = segment.header
                data = memoryview(segment.data())
                columns = LitelogFormat().decode(header.file, data, header.offset, Expectation(header.first))
                values += [record.value for record in columns.records()]
        replicator.stop()
        running.join()
    assert values == [b"%d" % number for number in range(200)]


@pytest.mark.slow
def test_a_log_that_is_not_replicated_cannot_be_subscribed_to(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not replicated"):
        make_replicator(tmp_path).subscribe(str(tmp_path / "log"), "elsewhere")
