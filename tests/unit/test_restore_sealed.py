"""What a restore brings back from sealed segments, snapshots and the WAL segments behind them."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litelog.errors import NothingToRestoreError
from litelog.restore.execution import restore
from litelog.restore.plan import Target, find_plan
from tests.unit.random_replicas import SHAPES, draw_replica
from tests.unit.replica_builder import FORMAT, SECOND, ReplicaBuilder, make_log, make_segment, prefix

SHAPE = [[2, 1, 3], [1, 2], [3, 1, 1], [2, 2]]
LOG = make_log(SHAPE)
COMMITS = [count for counts in SHAPE for count in counts]


def files_in(folder: str | Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def restore_to(client, output, target: Target | None = None, log_format=FORMAT, **options):
    plan = find_plan(client, target or Target(), log_format)
    return restore(client, plan, str(output), log_format=log_format, **options)


def whole(log) -> dict[str, bytes]:
    return {segment.name: segment.data for segment in log}


@pytest.fixture
def mixed() -> ReplicaBuilder:
    """Log segment 0 sealed before the first WAL segment, 1 sealed and pruned, 2 stands sealed for itself, 3 grows."""
    builder = ReplicaBuilder()
    built = builder.add(builder.claim(first=1), start=False)
    built.start([built.seal_unshipped(0, LOG[0])])
    built.ship_segment(LOG[1], cuts=[0])
    built.stand_for_sealed(LOG[2])
    built.snapshot(2)
    built.prune(2)
    built.ship_segment(LOG[3], cuts=[0], final=None)
    return builder


def test_all_kinds_of_objects_make_one_log(mixed, tmp_path):
    result = restore_to(mixed.client, tmp_path / "out")
    assert files_in(tmp_path / "out") == whole(LOG)
    assert (result.next, result.commits, result.records) == (18, len(COMMITS), 18)
    assert (result.files, result.bytes) == (4, sum(len(segment.data) for segment in LOG))
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("held", range(1, len(COMMITS) + 1))
def test_each_commit_can_be_restored_to_whatever_holds_it(mixed, tmp_path, held):
    target = Target(sequence=sum(COMMITS[:held]) - 1)
    result = restore_to(mixed.client, tmp_path / "out", target)
    assert files_in(tmp_path / "out") == prefix(LOG, held)
    assert (result.next, result.commits) == (sum(COMMITS[:held]), held)


@pytest.mark.parametrize("held", range(1, len(COMMITS) + 1))
def test_each_commits_time_can_be_restored_to(mixed, tmp_path, held):
    last = sum(COMMITS[: held - 1])
    restore_to(mixed.client, tmp_path / "out", Target(timestamp=last * SECOND))
    assert files_in(tmp_path / "out") == prefix(LOG, held)


@pytest.mark.parametrize("index", range(4))
def test_an_index_is_the_last_one_restored(mixed, tmp_path, index):
    restore_to(mixed.client, tmp_path / "out", Target(index=index))
    assert files_in(tmp_path / "out") == whole(LOG[: index + 1])


def test_indexes_that_are_there_are_named(mixed):
    with pytest.raises(NothingToRestoreError, match="indexes 0 to 3"):
        find_plan(mixed.client, Target(index=4), FORMAT)


@given(shape=SHAPES, data=st.data(), parallelism=st.sampled_from([1, 2, 8]))
@settings(max_examples=60, deadline=None)
def test_random_replicas_restore_to_every_commit(shape, data, parallelism):
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


@pytest.mark.parametrize("size", [1, 3 << 20])
def test_large_sealed_segments_come_back_in_groups_of_frames(tmp_path, size):
    from litelog.formats.litelog import encode_commit
    from tests.unit.replica_builder import LogSegment

    segment = make_segment(0, [1])
    data, ends = segment.data, [*segment.ends]
    for number in range(1, 30):
        data += bytes(encode_commit(number, 1, number, [os.urandom(size if number == 7 else 900_000)]))
        ends.append(len(data))
    builder = ReplicaBuilder()
    built = builder.add(builder.claim(first=1), start=False)
    built.start([built.seal_unshipped(0, LogSegment(segment.name, data, tuple(ends), 30))])
    result = restore_to(builder.client, tmp_path / "out")
    assert files_in(tmp_path / "out") == {segment.name: data}
    assert (result.records, result.objects) == (30, 1)
    restore_to(builder.client, tmp_path / "cut", Target(sequence=20))
    assert files_in(tmp_path / "cut") == {segment.name: data[: ends[20]]}
