"""Repairs of log segments whose commits were moved: cut and inserted bytes, swapped files, and what stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litelog.formats.kafka import KafkaFormat
from litelog.formats.litelog import LitelogFormat
from litelog.formats.netlog import NetlogFormat
from litelog.formats.spacetimedb import SpacetimeDBFormat
from litelog.repair.displaced import good_commits
from litelog.repair.execution import repair
from tests.builders.recorded_logs import recorded_segments
from tests.builders.repaired_logs import (
    FIRST,
    LAST,
    LOG,
    MIDDLE,
    backups,
    diverged,
    done,
    held,
    replica,
    run,
    whole,
    write,
)
from tests.builders.replica_builder import ReplicaBuilder, client_of, make_log, make_segment

if TYPE_CHECKING:
    from pathlib import Path

    from litelog.formats import LogFormat

SECOND, THIRD = MIDDLE.ends[0], MIDDLE.ends[1]


def cut(data: bytes, start: int, length: int) -> bytes:
    return data[:start] + data[start + length :]


def inserted(data: bytes, start: int, extra: bytes) -> bytes:
    return data[:start] + extra + data[start:]


MOVED = {
    "bytes cut at the beginning": cut(MIDDLE.data, 0, 10),
    "the header cut": cut(MIDDLE.data, 0, 64),
    "bytes cut in the middle": cut(MIDDLE.data, SECOND + 5, 20),
    "aligned bytes cut in the middle": cut(MIDDLE.data, SECOND + 8, 16),
    "bytes cut in two places": cut(cut(MIDDLE.data, THIRD + 8, 16), 72, 8),
    "a commit cut": cut(MIDDLE.data, SECOND, THIRD - SECOND),
    "the first commit cut": cut(MIDDLE.data, 64, SECOND - 64),
    "bytes cut at the end": cut(MIDDLE.data, len(MIDDLE.data) - 10, 10),
    "bytes inserted at the beginning": inserted(MIDDLE.data, 0, b"zzzzz"),
    "bytes inserted in a commit": inserted(MIDDLE.data, SECOND + 5, b"zzz"),
    "aligned bytes inserted in a commit": inserted(MIDDLE.data, SECOND + 8, bytes(16)),
    "bytes inserted between two commits": inserted(MIDDLE.data, SECOND, b"zzzzz"),
    "a commit inserted again": inserted(MIDDLE.data, THIRD, MIDDLE.data[SECOND:THIRD]),
    "bytes inserted at the end": MIDDLE.data + b"zzzzz",
}


@pytest.mark.parametrize("kind", ["wal", "sealed"])
@pytest.mark.parametrize("data", MOVED.values(), ids=list(MOVED))
def test_a_log_segment_with_moved_commits_is_what_it_was(data: bytes, kind: str, tmp_path: Path) -> None:
    write(tmp_path, {**whole(), MIDDLE.name: data})
    result = run(tmp_path, replica(kind))
    assert (held(tmp_path), result.left) == (whole(), 0), done(result)
    assert backups(tmp_path) == {MIDDLE.name: data}
    assert run(tmp_path, replica(kind)).plan.places == ()


def test_moved_commits_of_the_newest_log_segment_are_put_back(tmp_path: Path) -> None:
    for data in (cut(LAST.data, LAST.ends[0] + 8, 16), cut(LAST.data, LAST.ends[0] + 5, 20)):
        write(tmp_path, {**whole(), LAST.name: data})
        assert run(tmp_path, replica()).left == 0
        assert held(tmp_path) == whole()


def test_the_plan_says_how_many_commits_were_moved(tmp_path: Path) -> None:
    damaged = {**whole(), MIDDLE.name: cut(MIDDLE.data, SECOND + 8, 16)}
    write(tmp_path, damaged)
    result = run(tmp_path, replica(), confirm=False)
    assert done(result) == [("replace", MIDDLE.name, 0, len(MIDDLE.data))]
    assert result.plan.places[0].reason == "2 commits at other places of the file, all of them in the replica"
    assert (result.left, held(tmp_path)) == (0, damaged)


SWAPS = [(0, 1), (1, 2), (0, 2), (1, 3)]
FOUR = make_log([[2, 1, 3], [1, 1, 2, 1], [2, 2, 1], [1, 3]])


@pytest.mark.parametrize("kind", ["wal", "sealed"])
@pytest.mark.parametrize("pair", SWAPS)
def test_swapped_log_segments_are_what_they_were(pair: tuple[int, int], kind: str, tmp_path: Path) -> None:
    one, other = (FOUR[number] for number in pair)
    swapped = {one.name: other.data, other.name: one.data}
    write(tmp_path, {**whole(FOUR), **swapped})
    result = run(tmp_path, replica(kind, FOUR), confirm=False)
    assert result.left == 0
    result = run(tmp_path, replica(kind, FOUR))
    assert (held(tmp_path), result.left) == (whole(FOUR), 0), done(result)
    assert backups(tmp_path) == swapped
    assert f"commits belong in {other.name}, all of them in the replica" in result.plan.places[0].reason


def test_swapped_log_segments_are_left_without_a_replica(tmp_path: Path) -> None:
    swapped = {**whole(), FIRST.name: MIDDLE.data, MIDDLE.name: FIRST.data}
    write(tmp_path, swapped)
    assert run(tmp_path).left > 0
    assert held(tmp_path) == swapped


def test_a_commit_that_the_replica_lacks_makes_the_file_stay(tmp_path: Path) -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    for segment in (FIRST, MIDDLE):
        built.ship_segment(segment)
    built.ship_segment(LAST, final=None, upto=2)
    client = client_of(builder.objects())
    for place in (0, 8):  # the good commits after it are found at multiples of 8, and elsewhere
        damaged = {**whole(), LAST.name: cut(LAST.data, 80 + place, 16 if place else 5)}
        write(tmp_path, damaged)
        result = run(tmp_path, client)
        assert held(tmp_path) == damaged
        assert result.left == 1
        assert "the replica lacks 1 good commit of the 2 there" in result.plan.places[0].reason
    swapped = {**whole(), MIDDLE.name: LAST.data, LAST.name: MIDDLE.data}
    write(tmp_path, swapped)
    assert run(tmp_path, client).left > 0
    assert held(tmp_path) == swapped


@pytest.mark.parametrize("kind", ["wal", "sealed"])
def test_a_replica_that_disagrees_makes_the_file_stay(kind: str, tmp_path: Path) -> None:
    other = make_segment(6, [1, 1, 2, 1], tag=b"o")
    for data in (*list(MOVED.values())[:7], FIRST.data):
        damaged = {**whole(), MIDDLE.name: data}
        if data == FIRST.data:
            damaged[FIRST.name] = MIDDLE.data
        write(tmp_path, damaged)
        result = run(tmp_path, replica(kind, [FIRST, other, LAST]))
        assert held(tmp_path) == damaged, done(result)
        assert result.left > 0


def test_a_copy_of_another_log_segment_stays(tmp_path: Path) -> None:
    """It is unknown whether the log segment held what the replica holds."""
    damaged = {**whole(), LAST.name: MIDDLE.data}
    write(tmp_path, damaged)
    assert run(tmp_path, replica()).left == 1
    assert held(tmp_path) == damaged


def test_a_torn_tail_with_whole_commits_in_it_is_not_cut_off(tmp_path: Path) -> None:
    damaged = {**whole(), LAST.name: inserted(LAST.data, LAST.ends[0], b"zzz")}
    write(tmp_path, damaged)
    result = run(tmp_path)
    assert (result.left, held(tmp_path)) == (1, damaged)
    assert "2 good commits after the damage" in result.plan.places[0].reason


def test_an_earlier_generation_supplies_what_ends_with_a_commit_of_the_log(tmp_path: Path) -> None:
    write(tmp_path, {**whole(), MIDDLE.name: cut(MIDDLE.data, SECOND + 8, 16)})
    assert run(tmp_path, diverged(LOG, [FIRST])).left == 0
    assert held(tmp_path) == whole()
    damaged = {**whole(), MIDDLE.name: cut(MIDDLE.data, SECOND + 8, 16)[: -(len(MIDDLE.data) - MIDDLE.ends[2])]}
    write(tmp_path, damaged)
    assert run(tmp_path, diverged(LOG, [FIRST])).left > 0
    assert held(tmp_path) == damaged


RECORDED: dict[str, tuple[LogFormat, str]] = {
    "kafka": (KafkaFormat(), "plain_none"),
    "spacetimedb": (SpacetimeDBFormat(), "epochs"),
}


def _commits(log_format: LogFormat, name: str, data: bytes) -> list[bytes]:
    def read(offset: int, length: int) -> bytes:
        return data[offset : offset + length]

    runs = good_commits(log_format, name, read, 0, len(data))
    return [data[commit.start : commit.end] for commits in runs for commit in commits]


@pytest.mark.parametrize("shift", range(1, 9))
def test_commits_are_found_at_any_byte(shift: int) -> None:
    expected = _commits(LitelogFormat(), MIDDLE.name, MIDDLE.data)
    assert len(expected) == 4
    moved = inserted(MIDDLE.data, 0, b"z" * shift)
    assert _commits(LitelogFormat(), MIDDLE.name, moved) == expected
    assert _commits(LitelogFormat(), MIDDLE.name, cut(MIDDLE.data, SECOND, shift)) == [expected[0], *expected[2:]]


@pytest.mark.parametrize("kind", list(RECORDED))
def test_commits_of_other_programs_are_found_at_any_byte(kind: str) -> None:
    log_format, scene = RECORDED[kind]
    found = [each for each in recorded_segments(kind, scene, "") if log_format.segment_order(each[0]) is not None]
    name, data = found[0]
    expected = _commits(log_format, name, data)
    assert expected
    assert _commits(log_format, name, inserted(data, 0, b"zzz")) == expected


def test_a_log_of_which_no_commit_states_its_sequence_stays(tmp_path: Path) -> None:
    """Equal bytes may be another commit there."""
    log_format = NetlogFormat()
    found = [each for each in recorded_segments("netlog", "sets", "") if log_format.segment_order(each[0]) is not None]
    (one, first), (other, second) = found[:2]
    write(tmp_path, {one: second, other: first})
    result = repair(str(tmp_path), log_format, confirm=True)
    assert held(tmp_path) == {one: second, other: first}, result.plan
