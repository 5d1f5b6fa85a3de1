"""Maintenance merges small log segments, deletes what dead writes left, and prunes; no record changes."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow")

from litelog.codec.frame_codecs import Compression, FrameCodec
from litelog.errors import ConfigError, CorruptObjectError, ForeignClaimError, NoReplicaError, NothingToRestoreError
from litelog.formats.registry import open_format
from litelog.objects import claim as claims
from litelog.objects.layout import parse_sealed
from litelog.reading.contents import list_pieces
from litelog.reading.generations import read_claim
from litelog.reading.latest import find_latest
from litelog.reading.sealed_reader import open_sealed
from litelog.restore.history_plan import Target
from litelog.retention.policy import RetentionPolicy
from litelog.spark.maintenance.merging import choose_merges, merged_length
from litelog.spark.maintenance.plan import (
    MaintenanceOptions,
    NotBatchError,
    WriteInProgressError,
    plan_maintenance,
)
from litelog.spark.sink.options import parse_write_options
from litelog.spark.sink.plan import OvertakenError
from litelog.spark.sink.publish import publish
from litelog.verify.execution import verify
from tests.builders.batch_replicas import (
    client_of,
    clock_after,
    commits_of,
    copy_of,
    die_in_write,
    records_of,
    run,
    small_appends,
)
from tests.builders.manual_clock import ManualClock
from tests.builders.many_generations import CountedReplica, taken_over
from tests.builders.stores import keys_of

if TYPE_CHECKING:
    from pathlib import Path

    from litelog.objects.snapshot_entries import SnapshotEntry


def entries_of(replica: CountedReplica) -> tuple[SnapshotEntry, ...]:
    client = client_of(replica)
    return list_pieces(client, find_latest(client)).base.entries


def require_well(replica: CountedReplica) -> None:
    report = verify(replica.store, formats=open_format)
    assert [str(anomaly) for anomaly in report.anomalies if anomaly.harmful] == []
    assert report.failed == 0


@pytest.mark.slow
def test_small_log_segments_become_one_with_the_same_commits(tmp_path: Path) -> None:
    replica = small_appends(12)
    before, commits = records_of(replica), commits_of(replica, tmp_path / "before")
    done = run(replica)
    assert done.generation is not None
    assert records_of(replica) == before
    assert commits_of(replica, tmp_path / "after") == commits
    assert [entry.records for entry in entries_of(replica)] == [22, 2]
    require_well(replica)


def test_a_second_run_does_nothing() -> None:
    replica = small_appends(5)
    run(replica)
    keys = replica.inner.list("")
    again = run(replica)
    assert again.plan.is_empty
    assert again.generation is None
    assert [info.key for info in replica.inner.list("")] == [info.key for info in keys]


def test_a_merged_log_grows_and_is_merged_again() -> None:
    replica = small_appends(4)
    run(replica)
    for _ in range(4):
        replica.append()
    run(replica)
    replica.append()
    assert [int(record.value) for record in records_of(replica)] == list(range(18))
    assert len(entries_of(replica)) <= 4
    require_well(replica)


def test_merged_log_segments_keep_their_codec_or_get_another_one() -> None:
    replica = small_appends(4)
    before = records_of(replica)

    def codecs() -> list[FrameCodec]:
        return [open_sealed(client_of(replica), entry).footer.codec for entry in entries_of(replica)]

    run(replica, MaintenanceOptions(compression=Compression.ZSTD))
    assert records_of(replica) == before
    assert codecs() == [FrameCodec.ZSTD, FrameCodec.LZ4]
    for chosen, codec, appends in ((None, FrameCodec.ZSTD, 4), (Compression.LZ4HC, FrameCodec.LZ4, 16)):
        for _ in range(appends):
            replica.append()
        run(replica, MaintenanceOptions(compression=chosen))
        assert codecs()[0] is codec
    assert [int(record.value) for record in records_of(replica)] == list(range(48))
    require_well(replica)


def test_a_compression_without_its_package_is_refused_before_anything_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ConfigError, match=r"zstandard; run: .*\[zstd\]"):
        MaintenanceOptions(compression=Compression.ZSTD)
    with pytest.raises(ConfigError, match=r"zstandard; run: .*\[zstd\]"):
        parse_write_options({"path": "/x", "compression": "zstd"})
    assert parse_write_options({"path": "/x", "compression": "LZ4HC"}).compression is Compression.LZ4HC


def test_ship_times_stay_as_exact_as_before(tmp_path: Path) -> None:
    replica = small_appends(6)
    middle = entries_of(replica)[2]
    before = commits_of(replica, tmp_path / "before", Target(timestamp=middle.highest))
    run(replica)
    assert commits_of(replica, tmp_path / "after", Target(timestamp=middle.highest)) == before
    merged = entries_of(replica)[0]
    assert merged.exact
    assert merged.shipped_last >= middle.shipped_last


def test_a_point_before_the_first_record_is_not_in_the_replica(tmp_path: Path) -> None:
    """The indexes of merged log segments lead to no log segment of the predecessor."""
    replica = small_appends(6, records=3)
    with pytest.raises(NothingToRestoreError):
        commits_of(replica, tmp_path / "before", Target(sequence=1))
    run(replica)
    with pytest.raises(NothingToRestoreError):
        commits_of(replica, tmp_path / "after", Target(sequence=1))


def test_young_log_segments_are_not_merged() -> None:
    replica = small_appends(4)
    assert run(replica, hours=0.9).plan.is_empty
    assert len(entries_of(replica)) == 4


def test_readers_choose_the_merged_generation_without_the_shortcut() -> None:
    """An older claim does not name its predecessor's last log segment: then all generations are compared."""
    replica = small_appends(5)
    before = records_of(replica)
    run(replica)
    replica.append()
    client = client_of(replica)
    names = client.claims()
    for name in names:
        claim = read_claim(client, name)
        replica.inner.put(claim.key, [claims.encode(replace(claim, predecessor_file=None))], create_only=False)
    assert find_latest(client).epoch == names[-1].epoch
    assert records_of(replica)[: len(before)] == before


@pytest.mark.slow
def test_merging_ends_and_copies_each_record_a_few_times() -> None:
    replica = small_appends(1, records=40)
    sizes = []
    for _ in range(15):
        replica.append(records=40)
        done = run(replica, MaintenanceOptions(segment_bytes=20_000))
        sizes.append(done.plan.merged_bytes)
        assert run(replica, MaintenanceOptions(segment_bytes=20_000)).plan.is_empty
    written = sum(entry.length for entry in entries_of(replica))
    assert sum(sizes) < 5 * written
    assert len(entries_of(replica)) < 12
    assert [int(record.value) for record in records_of(replica)] == list(range(16 * 40))


def test_no_merged_log_segment_is_larger_than_the_limit() -> None:
    replica = small_appends(20, records=20)
    entries = entries_of(replica)
    groups = choose_merges(entries, 5000, lambda _: True)
    assert [entry for group in groups for entry in group] == list(entries)
    assert max(map(merged_length, groups)) <= 5000
    assert groups[-1] == entries[-1:]
    assert choose_merges(entries, 0, lambda _: True) == [(entry,) for entry in entries]


def test_a_log_segment_after_a_gap_in_the_sequences_is_not_joined() -> None:
    entries = entries_of(small_appends(5))
    entries = (*entries[:2], *(replace(e, first=(e.first or 0) + 7, next=(e.next or 0) + 7) for e in entries[2:]))
    assert [len(group) for group in choose_merges(entries, 1 << 20, lambda _: True)] == [2, 2, 1]


def test_what_a_dead_write_left_is_deleted() -> None:
    replica = small_appends(2)
    plan = die_in_write(replica)
    before = records_of(replica)
    left = [key for key in keys_of(replica.inner, parse_sealed) if plan.staging.claim.generation in key]
    assert len(left) == 2
    done = run(replica)
    assert done.deleted == 2
    assert not set(left) & set(keys_of(replica.inner, parse_sealed))
    assert records_of(replica) == before
    assert run(replica).plan.is_empty
    require_well(replica)


def test_a_write_that_may_still_run_is_left_alone() -> None:
    replica = small_appends(3)
    die_in_write(replica)
    keys = [info.key for info in replica.inner.list("")]
    with pytest.raises(WriteInProgressError, match=r"begun in generation .* silent for 24 hours"):
        run(replica, hours=23)
    assert [info.key for info in replica.inner.list("")] == keys
    assert plan_maintenance(client_of(replica), MaintenanceOptions(), clock_after(23).now()).orphans == ()


def test_a_write_that_only_seemed_dead_fails_and_is_not_visible() -> None:
    replica = small_appends(2)
    plan = die_in_write(replica)
    before = records_of(replica)
    entries = entries_of(replica)[:1]
    run(replica)
    with pytest.raises(OvertakenError):
        publish(client_of(replica), plan, [entries], ManualClock())
    assert records_of(replica) == before


def test_what_the_very_first_write_left_is_deleted() -> None:
    replica = small_appends(0)
    die_in_write(replica)
    assert run(replica).deleted == 2
    assert keys_of(replica.inner, parse_sealed) == []
    assert run(replica).plan.is_empty
    replica.append()
    assert len(records_of(replica)) == 2


def test_a_snapshot_that_cannot_be_read_keeps_all_objects() -> None:
    replica = small_appends(2)
    die_in_write(replica)
    replica.append()
    key = next(info.key for info in replica.inner.list("") if "/snapshots/" in info.key)
    body = bytearray(replica.inner.open(key).read())
    body[-1] ^= 1
    replica.inner.put(key, [bytes(body)], create_only=False)
    done = run(replica, MaintenanceOptions(segment_bytes=0))
    assert done.plan.orphans == ()
    assert done.plan.unreadable == 1


def test_merged_log_segments_are_pruned_once_they_are_old() -> None:
    replica = small_appends(6)
    before = records_of(replica)
    options = MaintenanceOptions(RetentionPolicy(max_age=2 * 3600.0))
    for hours in (24, 25.5):
        run(replica, options, hours=hours)
        assert len(keys_of(replica.inner, parse_sealed)) == 7
    run(replica, options, hours=27)
    assert len(keys_of(replica.inner, parse_sealed)) == 2
    assert records_of(replica) == before
    require_well(replica)
    replica.append()
    assert len(records_of(replica)) == 14


def test_a_replica_of_a_daemon_is_refused(tmp_path: Path) -> None:
    replica = taken_over(1, tmp_path)
    keys = [info.key for info in replica.inner.list("")]
    with pytest.raises(NotBatchError, match="belongs to a daemon"):
        run(replica)
    assert [info.key for info in replica.inner.list("")] == keys
    with pytest.raises(ForeignClaimError):
        replica.append()


def test_an_empty_place_is_no_replica() -> None:
    with pytest.raises(NoReplicaError):
        run(small_appends(0))


@pytest.mark.slow
def test_a_damaged_log_segment_is_named_and_nothing_is_published() -> None:
    replica = small_appends(6)
    entry = entries_of(replica)[2]
    whole = replica.inner.open(entry.key).read()
    for at in range(0, len(whole), 61):
        damaged = copy_of(replica)
        body = bytearray(whole)
        body[at] ^= 4
        damaged.inner.put(entry.key, [bytes(body)], create_only=False)
        with pytest.raises(CorruptObjectError, match=entry.key):
            run(damaged)
        assert len(entries_of(damaged)) == 6
        damaged.inner.put(entry.key, [whole], create_only=False)
        assert run(damaged, hours=96).generation is not None
        assert records_of(damaged) == records_of(replica)


@pytest.mark.parametrize("given", [{"grace": 60.0}, {"segment_bytes": -1}, {"segment_bytes": 2 << 30}])
def test_limits_that_do_not_fit_are_refused(given: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        MaintenanceOptions(**given)  # type: ignore[arg-type]
