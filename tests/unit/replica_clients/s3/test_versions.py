"""A bucket with versions is read as it was, and verified: after somebody deleted and overwrote what is in it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("boto3")
pytest.importorskip("moto")

from litelog import Config, LogConfig, NothingToRestoreError, ReplicaConfig, Replicator, restore_log, verify_replica
from litelog.errors import ConfigError, CorruptionError, NotFoundError
from litelog.objects.layout import parse_claim, parse_sealed, parse_snapshot, parse_wal
from litelog.stores.capabilities import kept_versions
from litelog.stores.object_store import ByteRange, NotSupportedError, ObjectInfo
from litelog.stores.registry import open_writable_store
from replica_clients.s3 import open_store
from replica_clients.s3.settings import read_settings
from tests.builders.log_builder import make_log
from tests.builders.restoring import files_in
from tests.builders.servers import permissions_checked
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from litelog.stores.capabilities import KeyVersions
    from litelog.stores.object_store import ObjectStore
    from litelog.verify.report import VerifyReport
    from tests.builders.log_builder import LogBuilder
    from tests.builders.servers import S3Server

pytestmark = pytest.mark.xdist_group("s3_versions")
"""What moto loads for these takes 40 MiB: one worker pays."""


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


def test_a_place_as_of_a_time_is_refused_for_a_replica_before_any_request() -> None:
    options = {"as-of": "2026-01-02T03:04:05Z", "endpoint": "http://127.0.0.1:9"}
    with pytest.raises(ConfigError, match="leave it out to write a replica"):
        open_writable_store("s3://bucket/log", options)
    open_writable_store("s3://bucket/log", {"endpoint": "http://127.0.0.1:9"}).close()


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
    report = verify_replica(replica)
    assert {key for key in keys if parse_claim(key) is not None} <= {key for _, key in tampered(report)}
    assert not report.is_sound
    before = ReplicaConfig(url=url, options=server.options(**{"as-of": when.isoformat()}))
    restore_log(before, tmp_path / "restored")
    assert files_in(tmp_path / "restored") == log.files()
    assert verify_replica(before).anomalies == ()


def versions(server: S3Server, bucket: str) -> dict[str, KeyVersions]:
    listing = kept_versions(open_store(f"s3://{bucket}/log", server.options()))
    assert listing is not None
    return {each.key: each for each in listing.list("")}


def test_versions_and_delete_markers_are_counted_by_key(
    server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replica_clients.s3.versions.MAX_PAGE_KEYS", 2)
    store = open_store(f"s3://{bucket}/log", server.options())
    for key in ("a", "b", "c", "d"):
        store.put(key, [b"first"])
    store.delete(["a"])
    store.put("b", [b"again"], create_only=False)
    store.delete(["c"])
    store.put("c", [b"first"])
    found = versions(server, bucket)
    counts = {key: (each.contents, each.markers, each.is_hidden) for key, each in found.items()}
    assert counts == {"a": (1, 1, True), "b": (2, 0, False), "c": (2, 1, False), "d": (1, 0, False)}
    assert [each.changed > 0 for each in found.values()] == [True, True, True, False]
    assert all(each.is_versioned for each in found.values())
    assert not found["b"].is_same


def test_equal_contents_are_the_same(server: S3Server, bucket: str) -> None:
    store = open_store(f"s3://{bucket}/log", server.options())
    for content in (b"same", b"same", b"other", b"more!"):
        store.put("a" if content == b"same" else "b", [content], create_only=False)
    found = versions(server, bucket)
    assert (found["a"].is_same, found["b"].is_same) == (True, False)


def test_a_bucket_without_versions_has_none(server: S3Server) -> None:
    bucket = server.make_bucket()
    open_store(f"s3://{bucket}/log", server.options()).put("a", [b"x"])
    assert not versions(server, bucket)["a"].is_versioned
    earlier = at(server, bucket, datetime.now(UTC))
    assert kept_versions(earlier) is None


KINDS = {"epochs": parse_claim, "snapshots": parse_snapshot, "segments": parse_sealed, "wal": parse_wal}


@pytest.fixture
def shipped(server: S3Server, bucket: str, tmp_path: Path) -> tuple[str, LogBuilder]:
    """The bucket of a replica with sealed segments, a snapshot and WAL segments, and its log."""
    log = make_log(tmp_path / "log")
    config = Config(logs=(LogConfig(path=log.folder, replicas=(replica_in(server, bucket),)),))
    for _ in range(2):
        log.roll(1)
        log.append(2)
        Replicator(config, state_dir=str(tmp_path / "state"), host="here").run(once=True)
    return bucket, log


def replica_in(server: S3Server, bucket: str, **options: object) -> ReplicaConfig:
    return ReplicaConfig(url=f"s3://{bucket}/log", options=server.options(**options), snapshot_segments=1)


def tampered(report: VerifyReport) -> list[tuple[str, str]]:
    return [(str(it.kind), it.key) for it in report.anomalies if it.kind in {"deleted", "overwritten"}]


def newest(store: ObjectStore, part: str) -> str:
    return max(info.key for info in store.list("") if KINDS[part](info.key) is not None)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["epochs", "snapshots", "wal"])
def test_verify_names_the_newest_object_that_a_thief_deletes(
    server: S3Server, shipped: tuple[str, LogBuilder], part: str
) -> None:
    bucket, _ = shipped
    replica = replica_in(server, bucket)
    assert verify_replica(replica).anomalies == ()
    store = open_store(replica.url, server.options())
    key = newest(store, part)
    store.delete([key])
    report = verify_replica(replica)
    assert tampered(report) == [("deleted", key)]
    assert not report.is_sound
    marker = server.admin.list_object_versions(Bucket=bucket, Prefix=f"log/{key}")["DeleteMarkers"][0]
    server.admin.delete_object(Bucket=bucket, Key=f"log/{key}", VersionId=marker["VersionId"])
    assert verify_replica(replica).anomalies == ()


@pytest.mark.slow
def test_verify_names_what_a_thief_overwrites(server: S3Server, shipped: tuple[str, LogBuilder]) -> None:
    bucket, _ = shipped
    store = open_store(f"s3://{bucket}/log", server.options())
    when, key = between(), newest(store, "segments")
    store.put(key, [b"what a thief writes"], create_only=False)
    report = verify_replica(replica_in(server, bucket))
    assert tampered(report) == [("overwritten", key)]
    assert report.versions.tampered_since is not None
    assert report.versions.tampered_since > when.timestamp() * 1_000_000
    thiefs = server.admin.list_object_versions(Bucket=bucket, Prefix=f"log/{key}")["Versions"][0]
    server.admin.delete_object(Bucket=bucket, Key=f"log/{key}", VersionId=thiefs["VersionId"])
    assert verify_replica(replica_in(server, bucket)).anomalies == ()


def test_verify_says_which_right_it_lacks_to_list_versions(server: S3Server, shipped: tuple[str, LogBuilder]) -> None:
    bucket, _ = shipped
    reader = server.make_user({"s3:GetObject", "s3:ListBucket"}, bucket)
    with permissions_checked():
        report = verify_replica(replica_in(server, bucket, **reader))
    assert report.is_sound
    assert not report.versions.is_done
    assert f"grant s3:ListBucketVersions on {bucket}" in str(report.versions.error)


@pytest.mark.parametrize("text", ["yesterday", "", "25:00"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="as-of"):
        read_settings("s3://bucket/log", {"as-of": text})
