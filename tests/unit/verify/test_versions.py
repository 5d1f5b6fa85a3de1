"""What somebody deleted or overwrote in a store that keeps versions, and what litelog itself deletes there."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from litelog.errors import StoreError
from litelog.objects.layout import Fencing, claim_key, consumer_key, parse_snapshot, parse_wal, wal_key
from litelog.objects.position import Position
from litelog.retention.policy import RetentionPolicy
from litelog.shipping.context import Settings, SnapshotPolicy
from litelog.stores.retrying_store import RetryingStore
from tests.builders.daemon_builder import Daemon
from tests.builders.log_builder import make_log
from tests.builders.manual_clock import ManualClock
from tests.builders.stores import keys_of
from tests.builders.verify_helper import everything, found, verified
from tests.builders.versioned_store import VersionedStore

if TYPE_CHECKING:
    from pathlib import Path

    from litelog.verify.report import VerifyReport

HOUR = 3600.0


def versioned(objects: dict[str, bytes]) -> VersionedStore:
    store = VersionedStore()
    for key, body in objects.items():
        store.put(key, [body])
    return store


@pytest.fixture
def store() -> VersionedStore:
    return versioned(everything().objects())


def tampered(report: VerifyReport) -> list[tuple[str, str]]:
    return [pair for pair in found(report, harmful=False) if pair[0] in {"deleted", "overwritten"}]


def all_keys(store: VersionedStore) -> list[str]:
    return [info.key for info in store.list("")]


def wal_of(store: VersionedStore, generation: str) -> list[str]:
    return [key for key in keys_of(store, parse_wal) if generation in key]


def latest(store: VersionedStore) -> Any:
    return everything().generations[-1].claim.generation


def test_versions_of_untouched_objects_are_well(store: VersionedStore) -> None:
    report = verified(store)
    assert report.anomalies == ()
    assert report.versions.is_done
    assert (report.versions.error, report.versions.tampered_since) == (None, None)


def test_a_deleted_newest_wal_segment_is_named_with_its_time(store: VersionedStore) -> None:
    key = wal_of(store, latest(store))[-1]
    store.delete([key])
    report = verified(store)
    assert tampered(report) == [("deleted", key)]
    assert not report.is_sound
    assert report.versions.tampered_since == store.versions[key][-1].time
    (what,) = [anomaly.what for anomaly in report.anomalies if anomaly.kind == "deleted"]
    assert "not by litelog" in what
    assert "its bytes are still there" in what


def test_a_deleted_newest_snapshot_is_named(store: VersionedStore) -> None:
    key = max(keys_of(store, parse_snapshot))
    store.delete([key])
    assert ("deleted", key) in tampered(verified(store))


@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_each_deleted_claim_is_named(store: VersionedStore, epoch: int) -> None:
    store.delete([claim_key(epoch)])
    assert ("deleted", claim_key(epoch)) in tampered(verified(store))


def test_the_terminal_of_an_older_generation_is_never_deleted(store: VersionedStore) -> None:
    key = wal_of(store, everything().generations[0].claim.generation)[-1]
    store.delete([key])
    assert tampered(verified(store)) == [("deleted", key)]


def test_a_deleted_sealed_segment_that_a_snapshot_names_is_named(store: VersionedStore) -> None:
    key = next(key for key in all_keys(store) if "/segments/" in key and str(latest(store)) in key)
    store.delete([key])
    assert tampered(verified(store)) == [("deleted", key)]


def test_a_replica_of_which_all_was_deleted_is_not_empty(store: VersionedStore) -> None:
    keys = all_keys(store)
    store.delete(keys)
    report = verified(store)
    assert not report.is_empty
    assert {key for _, key in tampered(report)} >= {key for key in keys if key.startswith("epochs/")}
    assert report.versions.tampered_since == min(versions[-1].time for versions in store.versions.values())


@pytest.mark.parametrize("part", ["epochs/", "/segments/", "/snapshots/", "/wal/"])
def test_an_overwritten_object_is_named_and_harmless_if_it_is_the_same(store: VersionedStore, part: str) -> None:
    key = next(key for key in all_keys(store) if part in key)
    content = store.open(key).read()
    store.put(key, [content], create_only=False)
    report = verified(store)
    assert tampered(report) == [("overwritten", key)]
    assert report.is_sound
    assert report.versions.tampered_since is None
    store.put(key, [content[:-1] + bytes([content[-1] ^ 1])], create_only=False)
    report = verified(store)
    assert ("overwritten", key) in tampered(report)
    assert not report.is_sound
    assert report.versions.tampered_since == store.versions[key][1].time


def test_a_sealed_segment_that_was_deleted_and_put_again_is_overwritten(store: VersionedStore) -> None:
    key = next(key for key in all_keys(store) if "/segments/" in key)
    store.delete([key])
    store.put(key, [b"another"])
    assert ("overwritten", key) in tampered(verified(store))


def test_a_terminal_that_came_late_to_an_emptied_slot_is_well(store: VersionedStore) -> None:
    key = wal_key(Position(latest(store), 0, 0))
    store.put(key, [b"shipped"])
    store.delete([key])
    store.put(key, [b"a terminal"])
    store.delete([key])
    assert tampered(verified(store)) == []


def test_positions_of_consumers_come_and_go(store: VersionedStore) -> None:
    for _ in range(2):
        store.put(consumer_key("reader", 1), [b"{}"])
        store.delete([consumer_key("reader", 1)])
    store.put("notes.txt", [b"x"])
    store.delete(["notes.txt"])
    assert tampered(verified(store)) == []


@pytest.mark.parametrize("fencing", list(Fencing))
@pytest.mark.parametrize("policy", [RetentionPolicy(), RetentionPolicy(max_snapshots=2)])
@pytest.mark.slow
def test_a_daemon_that_ships_seals_covers_and_prunes_is_no_thief(
    tmp_path: Path, policy: RetentionPolicy, fencing: Fencing
) -> None:
    log, store, clock = make_log(tmp_path / "log"), VersionedStore(), ManualClock()
    settings = Settings(snapshot_policy=SnapshotPolicy.KEEP, retention=policy, snapshot_interval=HOUR)
    for host in range(3):
        daemon = Daemon(
            log, store, str(tmp_path / f"state-{host}"), clock=clock, settings=settings, takeover=True, fencing=fencing
        )
        for _ in range(8):
            log.roll(1)
            for _ in range(2):
                log.append(1)
                clock.advance(HOUR / 2)
                daemon.sync()
        assert tampered(verified(store, clock=clock)) == []
        daemon.close()
    hidden = [key for key, versions in store.versions.items() if versions[-1].content is None]
    assert any("/wal/" in key for key in hidden)
    assert any("/snapshots/" in key for key in hidden) is (policy.max_snapshots is not None)
    report = verified(store, clock=clock)
    assert report.versions.is_done
    assert report.is_sound


def test_a_listing_that_is_not_allowed_is_said_and_is_no_failure(store: VersionedStore) -> None:
    store.refusal = StoreError("versions", "", "grant s3:ListBucketVersions", retryable=False)
    report = verified(store)
    assert report.is_sound
    assert not report.versions.is_done
    assert "grant s3:ListBucketVersions" in str(report.versions.error)


def test_a_listing_that_fails_is_a_failure(store: VersionedStore) -> None:
    store.refusal = StoreError("versions", "", "is away")
    report = verified(store)
    assert report.failed == 1
    assert not report.versions.is_done


def test_a_deletion_while_the_versions_are_listed_is_looked_at_again(store: VersionedStore) -> None:
    assert verified(store).versions.is_done
    assert store.listings == 1
    store.delete([wal_of(store, latest(store))[-1]])
    assert verified(store).versions.tampered_since is not None
    assert store.listings == 3


def test_a_retrying_store_passes_the_versions_on(store: VersionedStore) -> None:
    key = wal_of(store, latest(store))[-1]
    store.delete([key])
    assert tampered(verified(RetryingStore(store, threading.Event()))) == [("deleted", key)]
