"""A bucket with versions is read as it was: after somebody deleted and overwrote what is in it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("boto3")
pytest.importorskip("moto")

from litelog import Config, LogConfig, NothingToRestoreError, ReplicaConfig, Replicator, restore_log, verify_replica
from litelog.errors import ConfigError, CorruptionError, NotFoundError
from litelog.stores.object_store import ByteRange, NotSupportedError, ObjectInfo
from replica_clients.s3 import open_store
from replica_clients.s3.settings import read_settings
from tests.builders.log_builder import make_log
from tests.builders.restoring import files_in
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from litelog.stores.object_store import ObjectStore
    from tests.builders.servers import S3Server


@pytest.fixture
def bucket(server: S3Server) -> str:
    name = server.make_bucket()
    server.admin.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    return name


def between() -> datetime:
    """A time after everything that was put, and before everything that will be: the service's times are seconds."""
    following = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
    wait_until(lambda: datetime.now(UTC) > following)
    return following - timedelta(microseconds=1)


def at(server: S3Server, bucket: str, when: datetime) -> ObjectStore:
    return open_store(f"s3://{bucket}/log", server.options(**{"as-of": when.isoformat()}))


@pytest.mark.slow
def test_what_was_deleted_or_overwritten_is_read_in_its_first_version(server: S3Server, bucket: str) -> None:
    store = open_store(f"s3://{bucket}/log", server.options())
    for key in ("a", "a/b", "b", "c"):
        store.put(key, [f"first {key}".encode()])
    when = between()
    store.put("b", [b"overwritten, and longer"], create_only=False)
    store.put("d", [b"later"])
    store.delete(["a", "c"])
    assert [info.key for info in store.list("")] == ["a/b", "b", "d"]
    before = at(server, bucket, when)
    assert list(before.list("")) == [ObjectInfo(key, 6 + len(key)) for key in ("a", "a/b", "b", "c")]
    assert list(before.list("", "a/b")) == [ObjectInfo("b", 7), ObjectInfo("c", 7)]
    assert [before.open(key).read() for key in ("a", "a/b", "b", "c")] == [
        b"first a",
        b"first a/b",
        b"first b",
        b"first c",
    ]
    assert before.open("b", ByteRange(6, 1)).read() == b"b"
    fresh = at(server, bucket, when)
    assert fresh.open("c").read() == b"first c"
    with pytest.raises(NotFoundError):
        fresh.open("d")
    with pytest.raises(NotFoundError):
        at(server, bucket, when - timedelta(days=1)).open("a")
    now = at(server, bucket, datetime.now(UTC) + timedelta(days=1))
    assert [info.key for info in now.list("")] == ["a", "a/b", "b", "c", "d"]


def test_nothing_is_written_as_of_a_time(server: S3Server, bucket: str) -> None:
    store = at(server, bucket, datetime.now(UTC))
    with pytest.raises(NotSupportedError, match="as-of reads earlier versions, and writes nothing"):
        store.put("a", [b"x"])
    with pytest.raises(NotSupportedError, match="as-of reads earlier versions, and writes nothing"):
        store.delete(["a"])
    assert store.sign("a", 10) is None  # type: ignore[attr-defined]


def test_a_listing_of_more_than_a_page_is_complete(server: S3Server, bucket: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("replica_clients.s3.versions.MAX_PAGE_KEYS", 3)
    store = open_store(f"s3://{bucket}/log", server.options())
    keys = [f"key-{number:02}" for number in range(10)]
    for _ in range(2):
        for key in keys:
            store.put(key, [b"x"], create_only=False)
    found = at(server, bucket, datetime.now(UTC) + timedelta(days=1))
    assert [info.key for info in found.list("")] == keys


@pytest.mark.slow
def test_a_log_is_restored_as_it_was_before_an_attack(server: S3Server, bucket: str, tmp_path: Path) -> None:
    log = make_log(tmp_path / "log")
    log.roll(3)
    log.append(3)
    url = f"s3://{bucket}/log"
    replica = ReplicaConfig(url=url, options=server.options(), snapshot_segments=1)
    config = Config(logs=(LogConfig(path=log.folder, replicas=(replica,)),))
    Replicator(config, state_dir=str(tmp_path / "state"), host="here").run(once=True)
    when = between()
    store = open_store(url, server.options())
    keys = [info.key for info in store.list("")]
    store.put(keys[0], [b"not a claim"], create_only=False)
    store.delete(keys[1:])
    with pytest.raises((NothingToRestoreError, CorruptionError)):
        restore_log(replica, tmp_path / "lost")
    before = ReplicaConfig(url=url, options=server.options(**{"as-of": when.isoformat()}))
    restore_log(before, tmp_path / "restored")
    assert files_in(tmp_path / "restored") == log.files()
    assert verify_replica(before).anomalies == ()


@pytest.mark.parametrize("text", ["yesterday", "", "25:00"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="as-of"):
        read_settings("s3://bucket/log", {"as-of": text})
