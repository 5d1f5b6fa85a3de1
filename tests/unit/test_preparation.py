"""Reading ahead changes the pace and nothing else: what comes before a fault is shipped, whole and in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litelog import wal_segment
from litelog.config import Config, LogConfig, ReplicaConfig
from litelog.errors import CorruptionError
from litelog.formats.litelog import encode_commit, segment_name
from litelog.layout import wal_key
from litelog.log.writer import LogWriter
from litelog.registry import open_client
from litelog.replicator import Replicator

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 4096
"""Bytes in a WAL segment: a few commits, so that nearly every run is a large one, and several are made ahead."""


def ship(tmp_path: Path) -> None:
    replica = ReplicaConfig(url=str(tmp_path / "replica"), max_segment_bytes=LIMIT)
    config = Config(logs=(LogConfig(path=str(tmp_path / "log"), replicas=(replica,)),))
    Replicator(config, state_dir=str(tmp_path / "state"), host="here").run(once=True)


def shipped_bytes(tmp_path: Path) -> dict[str, bytes]:
    """What the replica holds of each log segment."""
    client = open_client(str(tmp_path / "replica"))
    found: dict[str, bytes] = {}
    for info in client.wal_segments(client.generations()[-1]):
        segment = wal_segment.decode(wal_key(info.position), client.read_wal_segment(info.position))
        assert len(found.get(segment.header.file, b"")) == segment.header.offset
        found[segment.header.file] = found.get(segment.header.file, b"") + segment.data()
    return found


@pytest.mark.parametrize("good", [1, 3, 4, 9, 30, 31])
def test_all_good_commits_before_a_corrupt_one_are_shipped(tmp_path: Path, good: int) -> None:
    with LogWriter(str(tmp_path / "log")) as writer:
        for _ in range(good):
            writer.append(b"v" * 900)
    path = tmp_path / "log" / segment_name(0)
    whole = path.read_bytes()
    bad = bytearray(encode_commit(good, 0, 1 << 50, [b"x" * 900]))
    bad[500] ^= 1
    path.write_bytes(whole + bad + encode_commit(good + 1, 0, 1 << 50, [b"y" * 900]))
    with pytest.raises(CorruptionError):
        ship(tmp_path)
    assert shipped_bytes(tmp_path) == {path.name: whole}


@pytest.mark.parametrize("segment_bytes", [3000, 10_000, 1 << 20])
def test_runs_made_ahead_are_the_log_in_order(tmp_path: Path, segment_bytes: int) -> None:
    with LogWriter(str(tmp_path / "log"), segment_bytes=segment_bytes) as writer:
        writer.append(b"what is there when the replica is met goes up sealed, but for its newest log segment")
        ship(tmp_path)
        for number in range(60):
            writer.append(b"%d" % number * 300)
    ship(tmp_path)
    assert shipped_bytes(tmp_path) == {path.name: path.read_bytes() for path in (tmp_path / "log").glob("*.log")}
