"""A copy that follows takes over side files that change, once a snapshot has them, and asks ever less often."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litelog.formats.netlog import NetlogFormat
from litelog.restore.follow import CopyFollower
from litelog.restore.followed_side_files import FollowedSideFiles
from litelog.restore.history_plan import Target, find_plan
from litelog.stores.object_store import ObjectReplicaClient
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon
from tests.builders.log_builder import make_log
from tests.builders.restoring import restore_to
from tests.builders.stores import CountingStore

if TYPE_CHECKING:
    from pathlib import Path

    from litelog.objects.side_files import SideFile
    from tests.builders.log_builder import LogBuilder

FORMAT = NetlogFormat()
SETTINGS = "settings.json"


@pytest.fixture
def topic(tmp_path: Path) -> LogBuilder:
    made = make_log(tmp_path / "topic", "netlog")
    (tmp_path / "topic" / SETTINGS).write_bytes(b"first")
    made.roll(2)
    return made


@pytest.fixture
def counting() -> CountingStore:
    return CountingStore(MemoryStore())


def follow(store: CountingStore, out: Path) -> CopyFollower:
    client = ObjectReplicaClient(store)
    restore_to(client, out, log_format=FORMAT)
    return CopyFollower(client, str(out), find_plan(client, Target(), FORMAT), FORMAT)


def step_to_the_end(follower: CopyFollower) -> None:
    while follower.step():
        pass


def test_a_side_file_that_changed_arrives_with_the_next_snapshot(
    topic: LogBuilder, counting: CountingStore, tmp_path: Path
) -> None:
    daemon, out = Daemon(topic, counting, str(tmp_path / "state")), tmp_path / "out"
    daemon.sync()
    with follow(counting, out) as follower:
        step_to_the_end(follower)
        assert (out / SETTINGS).read_bytes() == b"first"
        (tmp_path / "topic" / SETTINGS).write_bytes(b"second")
        topic.roll(2)
        daemon.sync()
        step_to_the_end(follower)
        assert (out / SETTINGS).read_bytes() == b"first"
        archive = daemon.replica.archive
        assert archive is not None
        archive.request_snapshot()
        topic.append(1)
        daemon.sync()
        for _ in range(10):
            step_to_the_end(follower)
        assert (out / SETTINGS).read_bytes() == b"second"
        assert sorted(path.name for path in out.iterdir() if path.name.startswith(".")) == []
        for name, data in topic.files().items():
            assert (out / name).read_bytes() == data


def test_a_copy_that_was_left_alone_takes_the_newest_when_it_catches_up(
    topic: LogBuilder, counting: CountingStore, tmp_path: Path
) -> None:
    daemon, out = Daemon(topic, counting, str(tmp_path / "state")), tmp_path / "out"
    daemon.sync()
    with follow(counting, out) as follower:
        (tmp_path / "topic" / SETTINGS).write_bytes(b"second")
        for _ in range(3):
            topic.roll(2)
            daemon.sync()
        archive = daemon.replica.archive
        assert archive is not None
        archive.request_snapshot()
        topic.append(1)
        daemon.sync()
        (out / SETTINGS).write_bytes(b"changed here" * 20_000)
        step_to_the_end(follower)
        for _ in range(3):
            step_to_the_end(follower)
    assert (out / SETTINGS).read_bytes() == b"second"


def test_an_idle_follower_asks_ever_less_often(topic: LogBuilder, counting: CountingStore, tmp_path: Path) -> None:
    daemon = Daemon(topic, counting, str(tmp_path / "state"))
    daemon.sync()
    written: list[SideFile] = []
    followed = FollowedSideFiles(ObjectReplicaClient(counting), written.append)
    followed.expect(99)
    counting.requests.clear()
    for _ in range(1000):
        followed.poll(daemon.claims[0])
    assert counting.requests["list"] <= 10
    assert [(file.name, file.body) for file in written] == [(SETTINGS, b"first")]
