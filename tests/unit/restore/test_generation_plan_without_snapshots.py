"""A generation whose snapshots are all damaged is restored from the footers of its sealed segments."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING, Any

import pytest

from litelog.errors import CorruptionError, CorruptObjectError, LitelogError, NothingToRestoreError
from litelog.objects.claim import batch_owner
from litelog.objects.layout import parse_sealed, parse_snapshot, parse_wal, sealed_key, snapshot_key
from litelog.restore.execution import restore
from litelog.restore.history_plan import Target, find_plan
from tests.builders.replica_builder import FORMAT, ReplicaBuilder, client_of, make_log, make_segment, make_unfinished
from tests.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LOG = make_log([[2, 1], [1, 2], [3, 1], [2, 2]])
EXPECTED = {segment.name: segment.data for segment in LOG}


def pruned() -> ReplicaBuilder:
    """Three sealed log segments, whose WAL segments are deleted except for the last one, and a fourth that grows."""
    return make_unfinished(LOG, snapshots=[2, 3], prune=3)


def only_wal() -> ReplicaBuilder:
    return make_unfinished(LOG)


def first_contact() -> ReplicaBuilder:
    builder = ReplicaBuilder()
    built = builder.add(builder.claim(first=3), start=False)
    built.start([built.seal_unshipped(index, segment) for index, segment in enumerate(LOG[:3])])
    built.ship_segment(LOG[3], cuts=[0], final=None)
    return builder


def nothing_behind() -> ReplicaBuilder:
    builder = ReplicaBuilder()
    built = builder.add()
    for segment in LOG:
        built.ship_segment(segment, cuts=[0])
    built.snapshot(4)
    built.prune(4)
    return builder


def without_snapshots(builder: ReplicaBuilder) -> dict[str, bytes]:
    return {key: b"x" if parse_snapshot(key) else body for key, body in builder.objects().items()}


def deleted_snapshots(builder: ReplicaBuilder) -> dict[str, bytes]:
    return {key: body for key, body in builder.objects().items() if not parse_snapshot(key)}


def outcome(objects: dict[str, bytes], folder: Path) -> tuple[dict[str, bytes], list[str]]:
    client = client_of(objects)
    result = restore(client, find_plan(client, Target(), FORMAT), str(folder), log_format=FORMAT)
    return {path.name: path.read_bytes() for path in folder.iterdir()}, [repaired.key for repaired in result.repaired]


def test_an_unnamed_sealed_segment_does_not_count_next_to_its_wal_segments(tmp_path: Path) -> None:
    """A crash left it there. Then the log was rewritten, and other bytes were shipped."""
    objects = without_snapshots(only_wal())
    other = ReplicaBuilder()
    rival = other.add()
    rival.ship_segment(make_segment(0, [2, 1], tag=b"x"), cuts=[0])
    rival.seal(0)
    key = next(key for key in other.objects() if parse_sealed(key))
    assert sealed_key(*parse_sealed(key)) == key
    assert any(parse_wal(there) for there in objects)
    objects[key] = other.objects()[key]
    assert outcome(objects, tmp_path / "out")[0] == EXPECTED


@pytest.mark.parametrize("make", [pruned, only_wal, first_contact, nothing_behind])
def test_all_of_it_comes_back_and_the_damage_is_named(make: Callable[..., Any], tmp_path: Path) -> None:
    objects = without_snapshots(make())
    found, repaired = outcome(objects, tmp_path / "out")
    assert found == EXPECTED
    assert repaired == [max(key for key in objects if parse_snapshot(key))]


@pytest.mark.parametrize("make", [pruned, first_contact, nothing_behind])
def test_snapshots_that_were_deleted_are_made_up_for_as_damaged_ones_are(
    make: Callable[..., Any], tmp_path: Path
) -> None:
    builder = make()
    found, repaired = outcome(deleted_snapshots(builder), tmp_path / "out")
    assert found == EXPECTED
    assert repaired == [snapshot_key(builder.generations[0].name, builder.generations[0].claim.first)]


def test_sealed_segments_without_a_snapshot_or_a_wal_segment_are_not_nothing(tmp_path: Path) -> None:
    builder = nothing_behind()
    objects = {key: body for key, body in deleted_snapshots(builder).items() if not parse_wal(key)}
    target = Target(generation=builder.generations[0].name)
    with pytest.raises(CorruptObjectError, match="sealed segments of indexes 0 to 3 and no WAL segments"):
        find_plan(client_of(objects), target, FORMAT)


@pytest.mark.parametrize("make", [nothing_behind, first_contact])
def test_a_generation_that_is_lost_except_for_sealed_segments_is_not_nothing(make: Callable[..., Any]) -> None:
    builder = make()
    if make is first_contact:
        builder.generations[0].seal(3)
    objects = {key: body for key, body in deleted_snapshots(builder).items() if not parse_wal(key)}
    with pytest.raises(CorruptObjectError, match="sealed segments of indexes 0 to 3 and no WAL segments"):
        find_plan(client_of(objects), Target(), FORMAT)


@pytest.mark.parametrize("by_spark", [False, True])
def test_a_restore_does_not_replace_a_lost_generation_by_an_earlier_one(by_spark: bool) -> None:
    """The leftovers of a failed Spark write are an exception: no reader may read them."""
    builder = ReplicaBuilder()
    before = builder.add()
    before.ship_segment(LOG[0], cuts=[0])
    claim = builder.claim()
    lost = builder.add(replace(claim, owner=batch_owner(claim.log)) if by_spark else claim)
    for index, segment in enumerate(LOG[:2]):
        lost.ship_segment(segment)
        lost.seal(index)
    gone = [key for key in builder.objects() if lost.name in key and not parse_sealed(key)]
    client = client_of({key: body for key, body in builder.objects().items() if key not in gone})
    if by_spark:
        assert find_plan(client, Target(), FORMAT).claim == before.claim
        return
    with pytest.raises(CorruptObjectError, match="an earlier generation") as found:
        find_plan(client, Target(), FORMAT)
    assert found.value.key == snapshot_key(lost.name, 0)
    assert find_plan(client, Target(generation=before.name), FORMAT).claim == before.claim


def test_a_first_contact_that_was_broken_off_before_its_snapshot_is_nothing_yet() -> None:
    builder = ReplicaBuilder()
    built = builder.add(builder.claim(first=3), start=False)
    built.seal_unshipped(0, LOG[0])
    with pytest.raises(NothingToRestoreError, match="holds nothing yet"):
        find_plan(builder.client, Target(generation=built.name), FORMAT)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_sealed_segment_that_is_gone_with_the_snapshots_is_reported(tmp_path: Path, lost: int) -> None:
    builder = pruned()
    objects = deleted_snapshots(builder)
    del objects[sealed_key(builder.generations[0].name, lost)]
    with pytest.raises(CorruptObjectError, match="is missing; and no other snapshot"):
        outcome(objects, tmp_path / "out")


@pytest.mark.slow
def test_each_commit_can_be_restored_to(tmp_path: Path) -> None:
    client = client_of(without_snapshots(pruned()))
    for sequence in (1, 2, 3, 5, 8, 9, 11, 13):
        target, out = Target(sequence=sequence), tmp_path / str(sequence)
        result = restore(client, find_plan(client, target, FORMAT), str(out), log_format=FORMAT)
        assert result.next == sequence + 1
        assert b"".join(data for _, data in sorted(EXPECTED.items())).startswith(
            b"".join(path.read_bytes() for path in sorted(out.iterdir()))
        )


@pytest.mark.slow
@pytest.mark.parametrize("make", [pruned, only_wal, first_contact, nothing_behind])
def test_any_other_lost_or_flipped_object_is_named_or_harmless(make: Any, tmp_path: Path) -> None:
    objects = without_snapshots(make())
    data = [key for key in objects if parse_sealed(key) or parse_wal(key)]
    newest = max(key for key in data if parse_wal(key))
    for number, key in enumerate(data):
        damaged = [{other: body for other, body in objects.items() if other != key}]
        for at in sampled(range(0, len(objects[key]), 7), 12, f"rebuilt {make.__name__} {key}"):
            body = bytearray(objects[key])
            body[at] ^= 1 << at % 8
            damaged.append({**objects, key: bytes(body)})
        for attempt, changed in enumerate(damaged):
            try:
                found, _ = outcome(changed, tmp_path / f"{number}-{attempt}")
            except CorruptionError:
                continue
            assert found == EXPECTED or (key == newest and attempt == 0)


def test_sealed_segments_in_the_place_of_each_other_are_named(tmp_path: Path) -> None:
    objects, name = without_snapshots(pruned()), pruned().generations[0].name
    for one, two in permutations(range(3), 2):
        swapped = {**objects, sealed_key(name, one): objects[sealed_key(name, two)]}
        with pytest.raises(CorruptionError):
            outcome(swapped, tmp_path / f"{one}-{two}")


def test_another_logs_sealed_segment_is_named(tmp_path: Path) -> None:
    builder = ReplicaBuilder()
    built = builder.add(replace(builder.claim(first=1), log="f" * 32), start=False)
    built.start([built.seal_unshipped(0, LOG[0])])
    key = sealed_key(built.name, 0)
    objects = without_snapshots(pruned())
    with pytest.raises(CorruptObjectError, match="log is f"):
        outcome({**objects, key: builder.objects()[key]}, tmp_path / "out")


def test_a_sealed_segment_that_leaves_records_out_is_named(tmp_path: Path) -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship_segment(LOG[0])
    built._next = LOG[0].next + 1
    built.ship_segment(make_segment(LOG[0].next + 1, [2]))
    built.seal(1)
    key = sealed_key(built.name, 1)
    with pytest.raises(LitelogError, match="gap"):
        outcome({**without_snapshots(pruned()), key: builder.objects()[key]}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_missing_segments_are_reported_with_what_is_left_and_what_to_do(tmp_path: Path, lost: int) -> None:
    builder = pruned()
    objects, name = without_snapshots(builder), builder.generations[0].name
    del objects[sealed_key(name, lost)]
    left = ["indexes 1 to 2", "indexes 0 to 2 (2 of them)", "indexes 0 to 1"][lost]
    with pytest.raises(CorruptObjectError) as found:
        outcome(objects, tmp_path / "out")
    assert parse_snapshot(found.value.key)
    for words in (left, "WAL segments from", "another replica", "--generation"):
        assert words in str(found.value)
    assert not (tmp_path / "out").exists()
