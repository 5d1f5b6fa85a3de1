"""Restores from sealed segments, snapshots and the WAL segments after them."""

from __future__ import annotations

import fcntl
import os
import sys
import threading
from dataclasses import replace
from io import BytesIO
from itertools import permutations
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litelog.codec.checksum import crc32c
from litelog.errors import (
    CorruptionError,
    CorruptObjectError,
    LitelogError,
    LockedError,
    NothingToRestoreError,
    ReplicaGapError,
    SequenceGapError,
    UnknownVersionError,
)
from litelog.formats.lines import LinesFormat
from litelog.formats.litelog import encode_commit, segment_name
from litelog.log.reader import LogReader
from litelog.log.writer import LogWriter
from litelog.objects.layout import parse_wal, sealed_key, snapshot_key
from litelog.objects.snapshot import Snapshot
from litelog.reading.contents import BaseSnapshot
from litelog.restore.choose_replica import DivergedReplicasError, choose
from litelog.restore.execution import restore
from litelog.restore.history_plan import Target, find_plan, plan_restore
from litelog.restore.journal import JOURNAL_NAME
from litelog.restore.output import OutputError
from litelog.restore.plan import TooEarlyError
from tests.builders.child import runs_in_child
from tests.builders.random_replicas import SHAPES, draw_replica
from tests.builders.replica_builder import (
    FORMAT,
    SECOND,
    LogSegment,
    ReplicaBuilder,
    client_of,
    make_log,
    make_segment,
    make_unfinished,
    prefix,
)
from tests.builders.replica_builder import LOG as LOG_NAME
from tests.builders.restoring import files_in, restore_to, try_restore, whole
from tests.sampling import examples, sampled, times

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import BinaryIO

    from litelog.restore.execution import RestoreResult
    from litelog.stores.object_store import ObjectReplicaClient

SHAPE = [[2, 1, 3], [1, 2], [3, 1, 1], [2, 2]]
LOG = make_log(SHAPE)
COMMITS = [count for counts in SHAPE for count in counts]


@pytest.fixture
def mixed() -> ReplicaBuilder:
    """Log segment 0 went up sealed before the first WAL segment, 1 was sealed and pruned, 2 is sealed and has a
    ``final`` that stands for it, and 3 grows."""
    builder = ReplicaBuilder()
    built = builder.add(builder.claim(first=1), start=False)
    built.start([built.seal_unshipped(0, LOG[0])])
    built.ship_segment(LOG[1], cuts=[0])
    built.stand_for_sealed(LOG[2])
    built.snapshot(2)
    built.prune(2)
    built.ship_segment(LOG[3], cuts=[0], final=None)
    return builder


def test_all_kinds_of_objects_make_one_log(mixed: ReplicaBuilder, tmp_path: Path) -> None:
    result = restore_to(mixed.client, tmp_path / "out")
    assert files_in(tmp_path / "out") == whole(LOG)
    assert (result.next, result.commits, result.records) == (18, len(COMMITS), 18)
    assert (result.files, result.bytes) == (4, sum(len(segment.data) for segment in LOG))
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("held", range(1, len(COMMITS) + 1))
def test_each_commit_can_be_restored_to_from_any_object_that_holds_it(
    mixed: ReplicaBuilder, tmp_path: Path, held: int
) -> None:
    target = Target(sequence=sum(COMMITS[:held]) - 1)
    result = restore_to(mixed.client, tmp_path / "out", target)
    assert files_in(tmp_path / "out") == prefix(LOG, held)
    assert (result.next, result.commits) == (sum(COMMITS[:held]), held)


@pytest.mark.parametrize("held", range(1, len(COMMITS) + 1))
def test_each_commits_time_can_be_restored_to(mixed: ReplicaBuilder, tmp_path: Path, held: int) -> None:
    last = sum(COMMITS[: held - 1])
    restore_to(mixed.client, tmp_path / "out", Target(timestamp=last * SECOND))
    assert files_in(tmp_path / "out") == prefix(LOG, held)


@pytest.mark.parametrize("index", range(4))
def test_an_index_is_the_last_one_restored(mixed: ReplicaBuilder, tmp_path: Path, index: int) -> None:
    restore_to(mixed.client, tmp_path / "out", Target(index=index))
    assert files_in(tmp_path / "out") == whole(LOG[: index + 1])


def test_indexes_that_are_there_are_named(mixed: ReplicaBuilder) -> None:
    with pytest.raises(NothingToRestoreError, match="indexes 0 to 3"):
        find_plan(mixed.client, Target(index=4), FORMAT)


@pytest.mark.slow
@given(shape=SHAPES, data=st.data(), parallelism=st.sampled_from([1, 2, 8]))
@settings(max_examples=examples(30))
def test_random_replicas_restore_to_every_commit(shape: Any, data: st.DataObject, parallelism: Any) -> None:
    builder, log = draw_replica(data, shape)
    commits = [count for counts in shape for count in counts]
    with TemporaryDirectory() as folder:
        reached = builder.generations[-1]
        plan = None
        try:
            plan = find_plan(builder.client, Target(), FORMAT)
        except NothingToRestoreError:
            assert not reached.entries
            assert not reached.positions
            return
        restore(builder.client, plan, f"{folder}/all", log_format=FORMAT, parallelism=parallelism)
        everything = files_in(f"{folder}/all")
        held = next(n for n in range(len(commits), -1, -1) if prefix(log, n) == everything)
        for count in range(1, held + 1):
            target = Target(sequence=sum(commits[:count]) - 1)
            restore_to(builder.client, f"{folder}/{count}", target, parallelism=parallelism)
            assert files_in(f"{folder}/{count}") == prefix(log, count)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 3 << 20])
@runs_in_child
def test_large_sealed_segments_come_back_in_groups_of_frames(tmp_path: Path, size: int) -> None:

    segment = make_segment(0, [1])
    data, ends = segment.data, [*segment.ends]
    for number in range(1, 30):
        data += bytes(encode_commit(number, 1, number, [os.urandom(size if number == 7 else 350_000)]))
        ends.append(len(data))
    builder = ReplicaBuilder()
    built = builder.add(builder.claim(first=1), start=False)
    built.start([built.seal_unshipped(0, LogSegment(segment.name, data, tuple(ends), 30))])
    result = restore_to(builder.client, tmp_path / "out")
    assert files_in(tmp_path / "out") == {segment.name: data}
    assert (result.records, result.objects) == (30, 1)
    restore_to(builder.client, tmp_path / "cut", Target(sequence=20))
    assert files_in(tmp_path / "cut") == {segment.name: data[: ends[20]]}


@pytest.mark.slow
@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_in_any_byte_is_found_by_name_or_harmless(
    mixed: ReplicaBuilder, tmp_path: Path, bit: int
) -> None:
    objects = mixed.objects()
    named = 0
    for key, body in objects.items():
        for at in sampled(range(bit, len(body), 24), 9, f"restore sealed {key} {bit}"):
            found = try_restore(
                {**objects, key: body[:at] + bytes([body[at] ^ 1 << bit]) + body[at + 1 :]}, str(tmp_path)
            )
            if isinstance(found, LitelogError):
                assert isinstance(found, CorruptionError), (key, at, found)
                named += 1
            else:
                assert found[0] == whole(LOG), (key, at)
    assert named > times(20, at_night=100)


@pytest.mark.slow
def test_every_truncated_or_deleted_object_is_missed_by_name_or_harmless(mixed: ReplicaBuilder, tmp_path: Path) -> None:
    objects = mixed.objects()
    newest = max(key for key in objects if parse_wal(key))
    for key, body in objects.items():
        for length in (None, 0, 7, len(body) // 2, len(body) - 1):
            damaged = {name: data for name, data in objects.items() if name != key}
            found = try_restore(damaged if length is None else {**damaged, key: body[:length]}, str(tmp_path))
            if key == newest and length is None:
                assert found[0] in [prefix(LOG, held) for held in range(1, len(COMMITS))]
            else:
                assert isinstance(found, CorruptionError) or found[0] == whole(LOG), (key, length)


@pytest.mark.slow
def test_every_swap_and_replay_of_objects_is_found_or_harmless(mixed: ReplicaBuilder, tmp_path: Path) -> None:
    objects = mixed.objects()
    for one, other in permutations(objects, 2):
        for damaged in ({**objects, one: objects[other]}, {**objects, one: objects[other], other: objects[one]}):
            found = try_restore(damaged, str(tmp_path))
            assert isinstance(found, CorruptionError) or found[0] == whole(LOG), (one, other)


@pytest.fixture
def kept() -> ReplicaBuilder:
    """Sealed and in snapshots, and no WAL segment deleted yet."""
    return make_unfinished(LOG, snapshots=[1, 3], last_cuts=[])


@pytest.mark.parametrize("damage", ["deleted", "empty", "cut", "flipped"])
@pytest.mark.parametrize("index", range(3))
def test_lost_bytes_of_a_sealed_segment_are_taken_from_its_wal_segments_and_named(
    kept: ReplicaBuilder, tmp_path: Path, index: int, damage: str
) -> None:
    objects = kept.objects()
    key = sealed_key(kept.generations[0].name, index)
    body = objects.pop(key)
    if damage != "deleted":
        objects[key] = {"empty": b"", "cut": body[:-1], "flipped": body[:40] + bytes([body[40] ^ 1]) + body[41:]}[
            damage
        ]
    found, result = try_restore(objects, str(tmp_path))
    assert found == whole(LOG)
    assert {repaired.key for repaired in result.repaired} == {key}
    assert {(repaired.file, repaired.replica) for repaired in result.repaired} == {(LOG[index].name, "memory://copy")}
    assert (result.commits, result.records) == (len(COMMITS), 18)


@pytest.mark.parametrize("held", range(1, len(COMMITS) + 1))
def test_a_bound_is_found_in_the_wal_where_the_sealed_segments_are_damaged(
    kept: ReplicaBuilder, tmp_path: Path, held: int
) -> None:
    objects = {key: body if "/segments/" not in key else b"x" for key, body in kept.objects().items()}
    found, result = try_restore(objects, str(tmp_path), Target(sequence=sum(COMMITS[:held]) - 1))
    assert found == prefix(LOG, held)
    assert (result.commits, result.next) == (held, sum(COMMITS[:held]))


def test_a_damaged_newest_snapshot_is_named_and_an_older_one_taken(kept: ReplicaBuilder, tmp_path: Path) -> None:
    objects = kept.objects()
    key = snapshot_key(kept.generations[0].name, 3)
    found, result = try_restore({**objects, key: b"x"}, str(tmp_path))
    assert found == whole(LOG)
    assert [(repaired.key, repaired.file) for repaired in result.repaired] == [(key, None)]


def test_data_that_no_snapshot_covers_any_more_is_named(mixed: ReplicaBuilder, tmp_path: Path) -> None:
    objects = mixed.objects()
    key = snapshot_key(mixed.generations[0].name, 2)
    found = try_restore({**objects, key: b"x"}, str(tmp_path))
    assert isinstance(found, CorruptObjectError)
    assert found.key == key


@pytest.mark.parametrize("kind", ["snapshot", "footer"])
def test_an_object_of_a_newer_litelog_is_refused_by_its_version(
    kept: ReplicaBuilder, tmp_path: Path, kind: str
) -> None:
    from litelog.codec.lz4_frames import compress_frames, decompress_frames

    objects, name = kept.objects(), kept.generations[0].name
    if kind == "snapshot":
        key = snapshot_key(name, 3)
        text = decompress_frames(objects[key], 1 << 20).replace(b'"version":1', b'"version":2')
        objects[key] = b"".join(compress_frames(text))
    else:
        key = sealed_key(name, 1)
        body = bytearray(objects[key])
        length = int.from_bytes(body[-12:-8], "little")
        body[-16:-14] = (3).to_bytes(2, "little")
        body[-8:-4] = crc32c(bytes(body[-length:-8])).to_bytes(4, "little")
        objects[key] = bytes(body)
    found = try_restore(objects, str(tmp_path))
    assert isinstance(found, UnknownVersionError)
    assert found.key == key


def pruned() -> ReplicaBuilder:
    """Three log segments that only sealed segments hold, and a growing one."""
    builder = ReplicaBuilder()
    built = builder.add()
    for segment in LOG[:3]:
        built.ship_segment(segment, cuts=[0])
    built.snapshot(3)
    built.ship_segment(LOG[3], cuts=[0], final=None)
    built.prune(3)
    return builder


def all_wal() -> ReplicaBuilder:
    builder = ReplicaBuilder()
    built = builder.add()
    for segment in LOG[:3]:
        built.ship_segment(segment, cuts=[1])
    built.ship_segment(LOG[3], final=None, upto=1)
    return builder


def restore_several(replicas: list[dict[str, bytes]], output: Path, target: Target | None = None) -> RestoreResult:
    choice = choose([client_of(objects) for objects in replicas], target or Target(), lambda _: FORMAT)
    return restore(choice.client, choice.plan, str(output), log_format=FORMAT, fallbacks=choice.fallbacks)


@pytest.mark.slow
@pytest.mark.parametrize("other", [pruned, all_wal], ids=["sealed", "wal"])
@pytest.mark.parametrize("index", range(3))
def test_lost_bytes_of_a_sealed_segment_are_taken_from_another_replica(
    tmp_path: Path, index: int, other: Callable[..., Any]
) -> None:
    chosen = pruned()
    key = sealed_key(chosen.generations[0].name, index)
    objects = {**chosen.objects(), key: b"x"}
    result = restore_several([objects, other().objects()], tmp_path / "out")
    assert files_in(tmp_path / "out") == whole(LOG)
    assert {repaired.key for repaired in result.repaired} <= {key}
    restore_several([objects, other().objects()], tmp_path / "cut", Target(sequence=6))
    assert files_in(tmp_path / "cut") == prefix(LOG, 4)


def test_another_log_of_the_same_shape_does_not_help(tmp_path: Path) -> None:
    chosen = pruned()
    objects = {**chosen.objects(), sealed_key(chosen.generations[0].name, 1): b"x"}
    foreign, first = ReplicaBuilder(), 0
    built = foreign.add()
    for counts in SHAPE:
        segment = make_segment(first, counts, tag=b"s")
        built.ship_segment(segment)
        first = segment.next
    built.snapshot(4)
    with pytest.raises(LitelogError) as caught:
        restore_several([objects, foreign.objects()], tmp_path / "out")
    assert isinstance(caught.value, (CorruptObjectError, DivergedReplicasError))
    assert os.listdir(tmp_path) == []


def continued(*, dropped: int = 2, shift: int = 0) -> tuple[ReplicaBuilder, list[int]]:
    """A generation with the first log segments, and its successor, which names only those that its source had not
    dropped."""
    builder = ReplicaBuilder()
    built = builder.add()
    for segment in LOG[:3]:
        built.ship_segment(segment, cuts=[0])
    built.snapshot(2)
    built.prune(2)
    newer = builder.add(builder.claim(first=3 + shift, shift=shift), start=False)
    newer.start([newer.seal_unshipped(number + shift, LOG[number]) for number in range(dropped, 3)])
    newer.ship_segment(LOG[3], cuts=[0], final=None)
    return builder, [built.claim.time, newer.claim.time]


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("dropped", [1, 2])
def test_a_chain_of_generations_is_one_history(tmp_path: Path, dropped: int, shift: int) -> None:
    builder, _ = continued(dropped=dropped, shift=shift)
    plan = find_plan(builder.client, Target(), FORMAT)
    assert [part.claim.epoch for part in plan.parts] == [1, 2]
    result = restore(builder.client, plan, str(tmp_path / "out"), log_format=FORMAT)
    assert files_in(tmp_path / "out") == whole(LOG)
    assert (result.files, result.commits, result.next) == (4, len(COMMITS), 18)
    for held in range(1, len(COMMITS) + 1):
        restore_to(builder.client, tmp_path / str(held), Target(sequence=sum(COMMITS[:held]) - 1))
        assert files_in(tmp_path / str(held)) == prefix(LOG, held)
    for index in range(4):
        restore_to(builder.client, tmp_path / f"index{index}", Target(index=index + shift))
        assert files_in(tmp_path / f"index{index}") == whole(LOG[: index + 1])


def mirrored() -> ReplicaBuilder:
    """The source dropped log segment 0 before the second snapshot, and 1 before the last one."""
    builder = ReplicaBuilder()
    built = builder.add()
    for segment in LOG[:3]:
        built.ship_segment(segment)
    built.ship_segment(LOG[3], final=None)
    for upto, first in ((1, 0), (2, 1), (3, 2)):
        built.snapshot(upto, first)
        built.prune(upto)
    return builder


@pytest.mark.parametrize("held", range(1, len(COMMITS) + 1))
def test_segments_that_the_newest_snapshot_dropped_are_restored_from_an_older_one(tmp_path: Path, held: int) -> None:
    builder = mirrored()
    index = next(index for index in range(len(SHAPE)) if held <= sum(map(len, SHAPE[: index + 1])))
    begins = LOG[min(index, 2)].name  # a restore reads an older snapshot only for targets before the newest
    expected = {name: data for name, data in prefix(LOG, held).items() if name >= begins}
    reached = sum(COMMITS[:held])
    targets = [Target(sequence=reached - 1), Target(timestamp=sum(COMMITS[: held - 1]) * SECOND)]
    if held == sum(map(len, SHAPE[: index + 1])):
        targets.append(Target(index=index))
    for number, target in enumerate(targets):
        restore_to(builder.client, tmp_path / f"{number}", target)
        assert files_in(tmp_path / f"{number}") == expected


def test_a_target_in_the_first_named_commit_restores_the_dropped_part_before_it(tmp_path: Path) -> None:
    restore_to(mirrored().client, tmp_path / "out", Target(sequence=LOG[1].next))
    assert files_in(tmp_path / "out") == whole(LOG[1:2])


def test_a_target_that_no_snapshot_names_any_more_is_too_early(tmp_path: Path) -> None:
    builder = mirrored()
    name = builder.generations[0].name
    builder.client.delete_snapshots([(name, 0), (name, 1)])
    restore_to(builder.client, tmp_path / "out", Target(sequence=LOG[0].next))
    for target in (Target(index=0), Target(sequence=0), Target(timestamp=0)):
        with pytest.raises(TooEarlyError) as caught:
            find_plan(builder.client, target, FORMAT)
        assert caught.value.index == 1


def test_a_damaged_older_snapshot_is_named_where_a_point_may_need_it(tmp_path: Path) -> None:
    objects = mirrored().objects()
    key = next(key for key in objects if key.endswith("/snapshots/0000000000000001.snapshot.lz4"))
    objects[key] = objects[key][:-1]
    with pytest.raises(CorruptObjectError, match=key):
        find_plan(client_of(objects), Target(sequence=0), FORMAT)
    restore_to(client_of(objects), tmp_path / "out", Target(sequence=LOG[1].next - 1))
    assert files_in(tmp_path / "out") == whole(LOG[1:2])


@pytest.mark.parametrize("damaged", [False, True])
def test_a_point_between_the_segments_of_two_snapshots_is_refused(tmp_path: Path, damaged: bool) -> None:
    """Log segment 1 was dropped before a snapshot named it, or the only snapshot that names it is damaged."""
    builder = ReplicaBuilder()
    built = builder.add()
    for segment in LOG[:3]:
        built.ship_segment(segment)
    built.ship_segment(LOG[3], final=None)
    for upto, first in ((1, 0), (2, 1), (3, 2)) if damaged else ((1, 0), (3, 2)):
        built.snapshot(upto, first)
        built.prune(upto)
    objects = builder.objects()
    if damaged:
        key = next(key for key in objects if key.endswith("/snapshots/0000000000000002.snapshot.lz4"))
        objects[key] = objects[key][:-1]
    client = client_of(objects)
    for number, target in enumerate((Target(index=0), Target(sequence=LOG[0].next - 1))):
        restore_to(client, tmp_path / f"{number}", target)
        assert files_in(tmp_path / f"{number}") == whole(LOG[:1])
    behind = LOG[1].next - 1
    for target in (Target(index=1), Target(sequence=behind), Target(timestamp=behind * SECOND)):
        with pytest.raises(CorruptObjectError if damaged else TooEarlyError):
            find_plan(client, target, FORMAT)


def test_files_that_a_successor_dropped_are_restored_only_for_an_earlier_target(tmp_path: Path) -> None:
    builder = mirrored()
    old = builder.generations[0]
    entry = replace(old.entries[2], index=2)
    second = builder.add(builder.claim(first=3), start=False)
    second.start([entry])
    second.ship_segment(LOG[3])
    restore_to(builder.client, tmp_path / "all")
    assert files_in(tmp_path / "all") == whole(LOG[2:])
    restore_to(builder.client, tmp_path / "then", Target(sequence=LOG[0].next - 1))
    assert files_in(tmp_path / "then") == whole(LOG[:1])


def test_a_named_generation_is_restored_by_itself(tmp_path: Path) -> None:
    builder, _ = continued()
    restore_to(builder.client, tmp_path / "out", Target(generation=builder.generations[1].name))
    assert files_in(tmp_path / "out") == whole(LOG[2:])


def test_a_predecessor_that_retention_took_is_not_missed(tmp_path: Path) -> None:
    builder, _ = continued()
    older = builder.generations[0].name
    objects = {key: body for key, body in builder.objects().items() if f"{older}/snapshots" not in key}
    found, _ = try_restore(objects, str(tmp_path))
    assert found == whole(LOG[2:])


@pytest.mark.parametrize("lost", [0, 1])
def test_a_predecessor_that_lost_its_snapshot_is_missed(tmp_path: Path, lost: int) -> None:
    """Retention takes the oldest generation first, and its first WAL segment before its last snapshot."""
    builder = ReplicaBuilder()
    for number in range(2):
        built = builder.add(builder.claim(first=number), start=False)
        built.start()
        for segment in LOG[number:2]:
            built.ship_segment(segment, cuts=[0])
    newest = builder.add(builder.claim(first=2), start=False)
    newest.start()
    newest.ship_segment(LOG[2], cuts=[0], final=None)
    restore_to(builder.client, tmp_path / "all")
    assert files_in(tmp_path / "all") == whole(LOG[:3])
    name = builder.generations[lost].name
    builder.client.delete_snapshots([(name, lost)])
    with pytest.raises(CorruptionError, match=snapshot_key(name, lost)):
        restore_to(builder.client, tmp_path / "out")


def test_a_sequence_that_is_missing_between_generations_is_a_gap(tmp_path: Path) -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship_segment(LOG[0])
    built.ship_segment(LOG[1], final=None, upto=1)
    newer = builder.add(builder.claim(first=2), close=False, start=False)
    newer.start([newer.seal_unshipped(1, LOG[2])])
    newer.ship_segment(LOG[3], final=None)
    found = try_restore(builder.objects(), str(tmp_path))
    assert isinstance(found, SequenceGapError)


@pytest.mark.parametrize("upto", [1, None])
def test_missing_parts_of_a_dropped_log_segment_do_not_end_a_restore(tmp_path: Path, upto: int | None) -> None:
    """The earlier generation ends within a log segment that the later one held whole, and no longer names."""
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship_segment(LOG[0])
    built.ship_segment(LOG[1], final=None, upto=upto)
    newer = builder.add(builder.claim(first=1), start=False)
    newer.start([newer.seal_unshipped(0, LOG[0])])
    newer.ship_segment(LOG[1])
    newer.ship_segment(LOG[2])
    newer.snapshot(3, first=2)
    newer.ship_segment(LOG[3], final=None)
    restore_to(builder.client, tmp_path / "out")
    assert files_in(tmp_path / "out") == whole(LOG if upto is None else LOG[2:])


@pytest.mark.parametrize("commits", range(1, 5))
def test_a_time_before_a_generation_is_found_in_the_one_that_it_continues(tmp_path: Path, commits: int) -> None:
    lines = LinesFormat("*.log")
    texts = [b"%d\n" % number for number in range(6)]
    builder = ReplicaBuilder(lines)
    built = builder.add()
    for number, text in enumerate(texts[:4]):
        built.ship(text, "a.log" if number < 2 else "b.log", final=number == 1)
    times = [1_000 + SECOND * (number + 2) for number in range(4)]
    newer = builder.add(builder.claim(first=1), start=False)
    newer.start([newer.seal_unshipped(0, LogSegment("a.log", b"0\n1\n", (2, 4), 2))])
    newer.ship(b"2\n3\n4\n", "b.log", final=True)
    restore_to(builder.client, tmp_path / "out", Target(timestamp=times[commits - 1]), lines)
    assert b"".join(body for _, body in sorted(files_in(tmp_path / "out").items())) == b"".join(texts[:commits])


@pytest.mark.parametrize(("second", "commits"), [(9, None), (10, 1), (35, 1), (499, 1), (500, 7)])
def test_a_later_record_ends_a_restore_to_a_time_even_if_it_is_in_a_predecessor(
    tmp_path: Path, second: int, commits: int | None
) -> None:
    log = [
        make_segment(0, [1, 1, 1], [10 * SECOND, 500 * SECOND, 20 * SECOND]),
        make_segment(3, [1, 1], [30 * SECOND, 40 * SECOND]),
        make_segment(5, [1, 1], [50 * SECOND, 60 * SECOND]),
    ]
    builder = ReplicaBuilder()
    built = builder.add()
    for segment in log[:2]:
        built.ship_segment(segment)
    newer = builder.add(builder.claim(first=2), start=False)
    newer.start([newer.seal_unshipped(1, log[1])])
    newer.ship_segment(log[2], final=None)
    target = Target(timestamp=second * SECOND)
    if commits is None:
        with pytest.raises(NothingToRestoreError, match="nothing that early"):
            find_plan(builder.client, target, FORMAT)
        return
    restore_to(builder.client, tmp_path / "out", target)
    assert files_in(tmp_path / "out") == prefix(log, commits)


@pytest.mark.parametrize(("sequence", "commits"), [(5, 2), (6, 2), (7, 2), (8, 3)])
def test_a_target_in_the_first_commit_of_a_generation_restores_its_predecessor(
    tmp_path: Path, sequence: int, commits: int
) -> None:
    log = make_log([[3, 3], [3, 2]])
    builder = ReplicaBuilder()
    builder.add().ship_segment(log[0])
    newer = builder.add(builder.claim(first=1))
    newer.ship_segment(log[1], final=None)
    restore_to(builder.client, tmp_path / "out", Target(sequence=sequence))
    assert files_in(tmp_path / "out") == prefix(log, commits)


def test_the_error_for_an_early_target_names_the_first_record_that_was_sealed() -> None:
    builder = ReplicaBuilder()
    builder.add().stand_for_sealed(make_segment(7, [2, 2]))
    with pytest.raises(NothingToRestoreError, match="begins with sequence 7, stamped 1970-01-01T00:00:07"):
        find_plan(builder.client, Target(timestamp=1), FORMAT)


@pytest.mark.parametrize("commits", range(1, 6))
def test_marks_keep_the_grain_of_time_in_formats_without_timestamps(tmp_path: Path, commits: int) -> None:
    lines = LinesFormat("*.log")
    builder = ReplicaBuilder(lines)
    built = builder.add()
    for number in range(5):
        built.ship(b"%d\n" % number, "a.log" if number < 3 else "b.log", final=number in (2, 4))
    built.snapshot(2)
    built.prune(2)
    restore_to(builder.client, tmp_path / "out", Target(timestamp=1_000 + SECOND * (commits + 1)), lines)
    found = b"".join(body for _, body in sorted(files_in(tmp_path / "out").items()))
    assert found == b"".join(b"%d\n" % number for number in range(commits))


class Counted:
    """A client that counts the bytes of sealed segments it gives, and ends the process after a number of reads."""

    def __init__(self, client: ObjectReplicaClient, reads_left: Any = 1 << 30) -> None:
        self.client, self.reads_left, self.given, self.lock = client, reads_left, 0, threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    def read_sealed_segment(self, *place: int | str) -> bytes:
        with self.open_sealed_segment(*place) as stream:
            return stream.read()

    def open_sealed_segment(self, *place: Any) -> BinaryIO:
        with self.lock:
            self.reads_left -= 1
            if self.reads_left < 0:
                os._exit(9)
            body = self.client.read_sealed_segment(*place)
            self.given += len(body)
        return BytesIO(body)


def build_large() -> tuple[ReplicaBuilder, dict[str, bytes]]:
    """Two log segments of 29 MB in three groups of frames each, and their bytes. For tests that run in a child."""
    builder = ReplicaBuilder()
    built = builder.add(builder.claim(first=2), start=False)
    log, sequence = [], 0
    for _ in range(2):
        segment = make_segment(sequence, [1])
        data, ends = segment.data, [*segment.ends]
        for number in range(sequence + 1, sequence + 30):
            data += bytes(encode_commit(number, 1, number, [os.urandom(1_000_000)]))
            ends.append(len(data))
        sequence += 30
        log.append(LogSegment(segment.name, data, tuple(ends), sequence))
    built.start([built.seal_unshipped(number, segment) for number, segment in enumerate(log)])
    return builder, whole(log)


def kill_restore(builder: ReplicaBuilder, output: Path, reads: int) -> int:
    """Restore in a process that ends, as by kill -9, at a given read."""
    child = os.fork()
    if child == 0:
        restore_to(Counted(builder.client, reads), output, parallelism=1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


TEMPORARY = ".out.litelog-restoring"


@pytest.mark.slow
@runs_in_child
def test_a_killed_restore_continues_with_the_bytes_that_it_had_verified(tmp_path: Path) -> None:
    builder, expected = build_large()
    assert kill_restore(builder, tmp_path / "out", reads=6) == 9
    assert not (tmp_path / "out").exists()
    counted, full = Counted(builder.client), Counted(builder.client)
    result = restore_to(counted, tmp_path / "out")
    restore_to(full, tmp_path / "full")
    assert files_in(tmp_path / "out") == expected
    assert (result.records, result.bytes) == (60, sum(map(len, expected.values())))
    assert counted.given < full.given - (12 << 20)
    assert sorted(os.listdir(tmp_path)) == ["full", "out"]


class Changing(Counted):
    """A client whose first stream of frames has a changed byte near its end, or breaks off there."""

    def __init__(self, client: ObjectReplicaClient, change: str) -> None:
        super().__init__(client)
        self.change = change
        self.reads: list[int] = []

    def open_sealed_segment(self, *place: Any) -> BinaryIO:
        body = bytearray(super().open_sealed_segment(*place).read())
        self.reads.append(len(body))
        if len(body) > 10 << 20 and self.change:
            change, self.change = self.change, ""
            if change == "flipped":
                body[-700_000] ^= 4
            else:
                del body[-700_000:]
        return BytesIO(body)


@pytest.mark.slow
@pytest.mark.parametrize("change", ["", "flipped", "cut"])
@runs_in_child
def test_frames_that_change_in_transit_are_read_again_without_those_before_them(tmp_path: Path, change: str) -> None:
    builder, expected = build_large()
    client = Changing(builder.client, change)
    restore_to(client, tmp_path / "out", parallelism=1)
    assert files_in(tmp_path / "out") == expected
    streams = [size for size in client.reads if size > 2 << 20]
    assert len(streams) == 6
    assert len([size for size in client.reads if 900_000 < size <= 2 << 20]) == bool(change)


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["flipped", "cut", "gone", "journal", "other"])
@runs_in_child
def test_a_restore_reuses_bytes_of_a_killed_one_only_if_their_checksums_hold(tmp_path: Path, damage: str) -> None:
    builder, expected = build_large()
    assert kill_restore(builder, tmp_path / "out", reads=6) == 9
    left = tmp_path / TEMPORARY
    first = left / min(expected)
    if damage == "flipped":
        with first.open("r+b") as file:
            file.seek(5_000_000)
            byte = file.read(1)
            file.seek(5_000_000)
            file.write(bytes([byte[0] ^ 4]))
    elif damage == "cut":
        os.truncate(first, 5_000_000)
    elif damage == "gone":
        first.unlink()
    elif damage == "journal":
        journal = left / JOURNAL_NAME
        journal.write_bytes(journal.read_bytes()[:-20] + b"garbage\xff\n[]\n00000000 [1]\n")
    else:
        (left / "left.over").write_bytes(b"x")
    restore_to(builder.client, tmp_path / "out")
    assert files_in(tmp_path / "out") == expected


@pytest.mark.slow
@runs_in_child
def test_a_killed_restore_may_be_followed_by_one_to_another_point(tmp_path: Path) -> None:
    builder, expected = build_large()
    assert kill_restore(builder, tmp_path / "out", reads=6) == 9
    restore_to(builder.client, tmp_path / "out", Target(sequence=10))
    (name, data), *more = files_in(tmp_path / "out").items()
    assert not more
    assert expected[name].startswith(data)
    assert len(data) < 12_000_000


class Vanishing:
    """A client that runs ``act`` before the first read of a sealed segment."""

    def __init__(self, client: ObjectReplicaClient, act: Callable[..., Any]) -> None:
        self.client, self.act, self.lock = client, act, threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    def read_sealed_segment(self, *place: int | str) -> bytes:
        with self.lock:
            act, self.act = self.act, None
            if act is not None:
                act()
        return self.client.read_sealed_segment(*place)

    def open_sealed_segment(self, *place: Any) -> BinaryIO:
        return BytesIO(self.read_sealed_segment(*place))


def restore_vanishing(
    builder: ReplicaBuilder, output: Path, act: Callable[..., Any], *, replan: bool = True
) -> RestoreResult:
    client = Vanishing(builder.client, act)
    plan = find_plan(client, Target(), FORMAT)
    again = (lambda: find_plan(client, Target(), FORMAT)) if replan else None
    return restore(client, plan, str(output), log_format=FORMAT, replan=again)


def test_a_restore_plans_again_if_retention_removes_an_object_meanwhile(kept: ReplicaBuilder, tmp_path: Path) -> None:
    built = kept.generations[0]

    def retain() -> None:
        built.ship(b"", LOG[3].name, final=True)
        built.snapshot(4, first=1)
        kept.client.delete_sealed_segments([(built.name, 0)])
        built.prune(4)

    restore_vanishing(kept, tmp_path / "out", retain)
    assert files_in(tmp_path / "out") == whole(LOG[1:])
    assert os.listdir(tmp_path) == ["out"]


def test_wal_segments_that_were_sealed_meanwhile_are_read_as_such(kept: ReplicaBuilder, tmp_path: Path) -> None:
    built = kept.generations[0]

    def cover() -> None:
        built.ship(b"", LOG[3].name, final=True)
        built.snapshot(4)
        built.prune(4)

    restore_vanishing(kept, tmp_path / "out", cover)
    assert files_in(tmp_path / "out") == whole(LOG)


@pytest.mark.parametrize("replan", [True, False])
def test_bytes_that_no_other_object_has_are_reported_as_missing(tmp_path: Path, replan: bool) -> None:
    builder = pruned()
    name = builder.generations[0].name

    def lose() -> None:
        builder.client.delete_sealed_segments([(name, 1)])

    with pytest.raises(ReplicaGapError) as caught:
        restore_vanishing(builder, tmp_path / "out", lose, replan=replan)
    assert caught.value.position == sealed_key(name, 1)
    assert os.listdir(tmp_path) == []


def calls_of(function: Callable[..., Any]) -> int:
    """How many functions Python calls in it."""
    calls = 0

    def count(_frame: Any, event: Any, _argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


class NoLookup:
    """Refuses requests for headers: a plan that needs only the snapshot makes none."""

    def headers(self, positions: list[Any]) -> list[Any]:
        assert not positions
        return []


@pytest.mark.slow
@pytest.mark.parametrize("target", [Target(), Target(index=7), Target(index=50)])
def test_a_plan_is_linear_in_its_objects_and_asks_for_none(mixed: ReplicaBuilder, target: Target) -> None:
    template = mixed.generations[0].entries[0]

    def plan_of(count: Any) -> Any:
        entries = tuple(
            replace(template, index=number, sealed_index=number, first=number, next=number + 1, records=1,
                    file=segment_name(number))
            for number in range(count)
        )  # fmt: skip
        claim = replace(mixed.generations[0].claim, first=count)
        snapshot = Snapshot(claim.log, claim.format, claim.generation, claim.owner, 0, count, 0, segments=entries)
        return plan_restore("r", BaseSnapshot(claim, snapshot, "0" * 64), (), target, NoLookup(), FORMAT)

    one, ten = (calls_of(lambda count=count: plan_of(count)) for count in (1_000, 10_000))
    assert ten < 11 * one
    plan = plan_of(1_000)
    assert len(plan.sealed) == (1_000 if target.index is None else target.index + 1)


@pytest.fixture
def copy(kept: ReplicaBuilder, tmp_path: Path) -> Path:
    """The output of an earlier restore, and a file that its owner added."""
    restore_to(kept.client, tmp_path / "out", Target(index=1))
    (tmp_path / "out" / "notes.txt").write_text("mine")
    (tmp_path / "out" / ".lock").touch()
    return tmp_path / "out"


def test_a_delta_reads_only_missing_data(kept: ReplicaBuilder, copy: Path) -> None:
    inodes = {path.name: path.stat().st_ino for path in copy.iterdir()}
    counted = Counted(kept.client)
    result = restore_to(counted, copy, delta=True)
    assert files_in(copy) == {**whole(LOG), "notes.txt": b"mine", ".lock": b""}
    assert {name: (copy / name).stat().st_ino for name in inodes} == inodes
    assert (result.commits, result.bytes) == (len(COMMITS), sum(len(segment.data) for segment in LOG))
    assert os.listdir(copy.parent) == ["out"]


def test_a_delta_replaces_segments_that_differ_and_drops_foreign_ones(kept: ReplicaBuilder, copy: Path) -> None:
    (copy / LOG[0].name).write_bytes(LOG[0].data[:-1] + b"?")
    (copy / LOG[1].name).write_bytes(LOG[1].data + b"more")
    (copy / segment_name(999)).write_bytes(b"diverged")
    restore_to(kept.client, copy, delta=True)
    assert files_in(copy) == {**whole(LOG), "notes.txt": b"mine", ".lock": b""}


def test_a_delta_keeps_no_index_and_no_tombstone_of_replaced_segments(kept: ReplicaBuilder, copy: Path) -> None:
    """They describe the records and times of another history, so readers would skip records of this one."""
    damaged, gone = LOG[0].name, segment_name(999)
    (copy / damaged).write_bytes(LOG[0].data[:-1] + b"?")
    (copy / gone).write_bytes(b"diverged")
    for name in (damaged, gone, LOG[1].name):
        (copy / name.replace(".log", ".index")).write_bytes(b"entries")
    (copy / ".tombstone").write_bytes(b"{}")
    restore_to(kept.client, copy, delta=True)
    kept_index = LOG[1].name.replace(".log", ".index")
    assert files_in(copy) == {**whole(LOG), "notes.txt": b"mine", ".lock": b"", kept_index: b"entries"}


def test_a_start_time_is_found_in_a_log_that_a_delta_put_in_anothers_place(tmp_path: Path) -> None:
    """Both histories have the same shape, and the replaced log has earlier timestamps."""
    builder = ReplicaBuilder()
    built = builder.add()
    stamps = [number * SECOND for number in range(100)]
    for folder, moments in (("log", stamps), ("copy", [0] * 100)):
        with LogWriter(str(tmp_path / folder), log_id=UUID(LOG_NAME)) as writer:
            for time in moments:
                writer.append(b"." * 500, timestamps=time)
    name = segment_name(0)
    built.ship((tmp_path / "log" / name).read_bytes(), name)
    restore_to(builder.client, tmp_path / "copy", delta=True)
    with LogReader(str(tmp_path / "copy"), start_time=stamps[50]) as reader:
        assert [record.timestamp for record in reader] == stamps[50:]


def test_a_delta_that_fails_leaves_the_older_copy_as_it_was(kept: ReplicaBuilder, copy: Path) -> None:
    before = files_in(copy)
    objects = {key: body for key, body in kept.objects().items() if "/segments/0000000000000002" not in key}
    objects = {key: body for key, body in objects.items() if "/wal/0000000000000002" not in key}
    with pytest.raises(ReplicaGapError):
        restore_to(client_of(objects), copy, delta=True)
    assert files_in(copy) == before
    assert os.listdir(copy.parent) == ["out"]


def test_a_delta_leaves_a_log_alone_that_a_writer_has_open(kept: ReplicaBuilder, copy: Path) -> None:
    with (copy / ".lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(LockedError):
            restore_to(kept.client, copy, delta=True)


def test_a_delta_to_nothing_is_a_restore(kept: ReplicaBuilder, tmp_path: Path) -> None:
    restore_to(kept.client, tmp_path / "new", delta=True)
    assert files_in(tmp_path / "new") == whole(LOG)


@pytest.mark.slow
def test_a_delta_refuses_entries_that_it_cannot_keep(kept: ReplicaBuilder, copy: Path) -> None:
    (copy / "folder").mkdir()
    with pytest.raises(OutputError, match="folder"):
        restore_to(kept.client, copy, delta=True)
    assert (copy / "folder").is_dir()
