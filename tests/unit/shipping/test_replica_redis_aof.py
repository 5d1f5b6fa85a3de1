"""Redis rewrites its log as a habit: a generation begins with each new base file, without a warning."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from litelog.errors import NothingToRestoreError, SourceError, SourceMissingError
from litelog.objects.claim import Relation
from litelog.reading.replica_reader import ReplicaReader
from litelog.restore.follow import CopyFollower
from litelog.restore.history_plan import Target, find_plan
from litelog.shipping.context import Settings, SnapshotPolicy
from litelog.shipping.divergence import read_divergence
from litelog.stores.object_store import ObjectReplicaClient
from tests.builders.child import runs_in_child
from tests.builders.daemon_builder import Daemon, newest_snapshot
from tests.builders.redis_log import MANIFEST, RedisLog, make_redis_log
from tests.builders.restoring import files_in, restore_to

if TYPE_CHECKING:
    from replica_clients.memory import MemoryStore


@pytest.fixture
def redis(tmp_path: Path) -> RedisLog:
    return make_redis_log(tmp_path / "log")


def start(redis: RedisLog, store: MemoryStore, folder: Path) -> Daemon:
    return Daemon(redis, store, str(folder / "state"), backlog_sealer=True)


def held(redis: RedisLog) -> dict[str, bytes]:
    """The log segments that are in the manifest, and the manifest."""
    found = {name: redis.texts[name] for name in redis.listed if redis.texts[name]}
    with open(redis.path(MANIFEST), "rb") as file:
        return {**found, MANIFEST: file.read()}


def test_a_rewrite_begins_a_generation_and_is_no_warning(redis: RedisLog, store: MemoryStore, tmp_path: Path) -> None:
    daemon = start(redis, store, tmp_path)
    redis.append(3)
    daemon.sync()
    redis.increment(2)
    redis.append(2)
    daemon.sync()
    restore_to(ObjectReplicaClient(store), tmp_path / "before", log_format=redis.format)
    assert files_in(tmp_path / "before") == held(redis)
    assert len(daemon.claims) == 1
    redis.begin(3, b"REDIS0011 another base file")
    redis.append(1)
    daemon.sync()
    assert [claim.relation for claim in daemon.claims] == [Relation.FIRST, Relation.DIVERGED]
    assert "was rewritten: its manifest begins with appendonly.aof.3.base.rdb" in (daemon.claims[1].reason or "")
    restore_to(ObjectReplicaClient(store), tmp_path / "after", log_format=redis.format)
    assert files_in(tmp_path / "after") == held(redis)
    for _ in range(2):
        assert daemon.replica.divergence.open is None
        assert read_divergence(daemon.folder.path) is None
        daemon.restart()
        daemon.sync()
    assert len({claim.generation for claim in daemon.claims}) == 2


@pytest.mark.parametrize("appended", [0, 1])
def test_a_rewrite_while_no_daemon_runs_is_seen_at_the_next_start(
    redis: RedisLog, store: MemoryStore, tmp_path: Path, appended: int
) -> None:
    daemon = start(redis, store, tmp_path)
    redis.append(appended)
    daemon.sync()
    for number in (2, 3):
        redis.begin(number, b"REDIS0011 base file %d" % number)
        redis.append(appended)
    daemon.restart()
    daemon.sync()
    redis.append(2)
    daemon.sync()
    restore_to(ObjectReplicaClient(store), tmp_path / "out", log_format=redis.format)
    assert files_in(tmp_path / "out") == held(redis)
    assert read_divergence(daemon.folder.path) is None


def test_a_snapshot_names_the_base_file_after_it_is_gone(redis: RedisLog, store: MemoryStore, tmp_path: Path) -> None:
    settings = Settings(snapshot_policy=SnapshotPolicy.MIRROR)
    daemon = Daemon(redis, store, str(tmp_path / "state"), backlog_sealer=True, settings=settings)
    redis.append(2)
    daemon.sync()
    for number in (2, 3):
        redis.increment(number)
        redis.append(2)
    daemon.sync()
    base = redis.listed[0]
    redis.begin(4)
    archive = daemon.replica.archive
    assert archive is not None
    archive.request_snapshot()
    snapshot = newest_snapshot(daemon)
    assert snapshot.next > 1
    assert snapshot.segments[0].file == base


def test_a_log_that_was_cut_is_a_warning(redis: RedisLog, store: MemoryStore, tmp_path: Path) -> None:
    daemon = start(redis, store, tmp_path)
    redis.append(3)
    daemon.sync()
    redis.truncate(len(redis.texts[redis.name]) // 3)
    daemon.sync()
    assert daemon.replica.divergence.open is not None


def test_what_the_manifest_does_not_list_is_not_shipped(redis: RedisLog, store: MemoryStore, tmp_path: Path) -> None:
    redis.append(2)
    redis.write(redis.commit(), "appendonly.aof.9.incr.aof")
    redis.write(b"REDIS0011 the next base file", "appendonly.aof.2.base.rdb")
    daemon = start(redis, store, tmp_path)
    daemon.sync()
    restore_to(ObjectReplicaClient(store), tmp_path / "out", log_format=redis.format)
    assert files_in(tmp_path / "out") == held(redis)


def test_a_restore_to_a_time_before_a_rewrite_is_the_log_as_it_was(
    redis: RedisLog, store: MemoryStore, tmp_path: Path
) -> None:
    daemon, moments = start(redis, store, tmp_path), [0]
    for number in (3, 5, 7):
        redis.append(2)
        daemon.sync()
        moments.append(daemon.clock.now())
        (tmp_path / f"expected-{len(moments) - 1}").mkdir()
        for name, content in held(redis).items():
            (tmp_path / f"expected-{len(moments) - 1}" / name).write_bytes(content)
        daemon.clock.advance(60)
        if number == 5:
            daemon.restart()
        redis.begin(number, b"REDIS0011 base file %d" % number)
    daemon.sync()
    for number, moment in enumerate(moments[1:], 1):
        for late in (0, 59 * 1_000_000):
            out = tmp_path / f"out-{number}-{late}"
            restore_to(ObjectReplicaClient(store), out, Target(timestamp=moment + late), log_format=redis.format)
            assert files_in(out) == files_in(tmp_path / f"expected-{number}")
    for early in (Target(timestamp=1), Target(timestamp=moments[1], generation=daemon.claims[-1].generation)):
        with pytest.raises(NothingToRestoreError, match=r"nothing that early; .*: ask for a later time"):
            restore_to(ObjectReplicaClient(store), tmp_path / "none", early, log_format=redis.format)


def test_a_restore_to_a_sequence_lists_what_it_wrote(redis: RedisLog, store: MemoryStore, tmp_path: Path) -> None:
    daemon = start(redis, store, tmp_path)
    redis.append(2)
    first = redis.name
    redis.increment(2)
    redis.append(2)
    daemon.sync()
    restore_to(ObjectReplicaClient(store), tmp_path / "out", Target(sequence=2), log_format=redis.format)
    files = files_in(tmp_path / "out")
    assert files.keys() == {redis.listed[0], first, MANIFEST}
    assert files[MANIFEST].decode().split()[1::6] == [redis.listed[0], first]
    assert redis.texts[first].startswith(files[first])


def test_a_copy_that_follows_lists_what_was_appended(redis: RedisLog, store: MemoryStore, tmp_path: Path) -> None:
    daemon, client, out = start(redis, store, tmp_path), ObjectReplicaClient(store), tmp_path / "out"
    redis.append(1)
    daemon.sync()
    restore_to(client, out, log_format=redis.format)
    plan = find_plan(client, Target(), redis.format)
    with CopyFollower(client, str(out), plan, redis.format) as follower:
        redis.append(1)
        redis.increment(2)
        redis.append(1)
        daemon.sync()
        while follower.step():
            pass
    assert files_in(out) == held(redis)
    redis.begin(4)
    redis.append(1)
    daemon.sync()
    restore_to(client, out, log_format=redis.format, delta=True)
    assert files_in(out) == held(redis)


def test_a_log_without_a_manifest_is_waited_for(redis: RedisLog, store: MemoryStore, tmp_path: Path) -> None:
    redis.append(1)
    redis.delete(MANIFEST)
    daemon = start(redis, store, tmp_path)
    with pytest.raises(SourceMissingError):
        daemon.sync()
    assert not daemon.acknowledged
    redis.increment(2)
    daemon.sync()
    assert daemon.acknowledged


def test_a_manifest_that_lists_a_lost_file_is_refused(redis: RedisLog, store: MemoryStore, tmp_path: Path) -> None:
    """Without its base file, the log would be restored to another data set."""
    redis.append(1)
    base = redis.listed[0]
    content = redis.texts[base]
    redis.delete(base)
    daemon = start(redis, store, tmp_path)
    with pytest.raises(SourceError, match=f"its manifest lists {base}, which is not there"):
        daemon.sync()
    assert not daemon.claims
    Path(redis.path(base)).write_bytes(content)
    daemon.sync()
    restore_to(ObjectReplicaClient(store), tmp_path / "out", log_format=redis.format)
    assert files_in(tmp_path / "out") == held(redis)


def test_a_manifest_that_is_no_manifest_stops_the_daemon(redis: RedisLog, store: MemoryStore, tmp_path: Path) -> None:
    redis.append(1)
    redis.replace(b"file\n", MANIFEST)
    daemon = start(redis, store, tmp_path)
    with pytest.raises(SourceError, match="cannot be read as a manifest"):
        daemon.sync()


@pytest.mark.slow
@runs_in_child
def test_a_command_of_90_mb_is_shipped_sealed_restored_and_read(
    redis: RedisLog, store: MemoryStore, tmp_path: Path
) -> None:
    """Above the limit of other formats, and above what is read of an object that does not state its length."""
    daemon = start(redis, store, tmp_path)
    redis.append(1)
    large = redis.commit(90_000_000)
    redis.write(large)
    redis.append(1)
    daemon.sync()
    restore_to(ObjectReplicaClient(store), tmp_path / "from WAL segments", log_format=redis.format)
    assert files_in(tmp_path / "from WAL segments") == held(redis)
    redis.increment(2)
    redis.append(1)
    daemon.sync()
    archive = daemon.replica.archive
    assert archive is not None
    archive.request_snapshot()
    assert [entry.file for entry in newest_snapshot(daemon).segments] == redis.listed[:2]
    restore_to(ObjectReplicaClient(store), tmp_path / "from sealed segments", log_format=redis.format)
    assert files_in(tmp_path / "from sealed segments") == held(redis)
    with ReplicaReader(ObjectReplicaClient(store)) as reader:
        values = [record.value for columns in reader.batches() for record in columns.records()]
    assert len(values) == 4
    assert values[1] == large
