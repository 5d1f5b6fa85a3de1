"""The files that a restore writes, and the replicas and outputs that it refuses."""

from __future__ import annotations

import fcntl
import os
import threading
from dataclasses import replace
from itertools import permutations
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litelog.errors import (
    CorruptionError,
    CorruptObjectError,
    LitelogError,
    LockedError,
    NothingToRestoreError,
    OutputExistsError,
    ReplicaGapError,
)
from litelog.formats.lines import LinesFormat
from litelog.formats.litelog import encode_commit
from litelog.formats.raw import RawFormat
from litelog.objects import claim as claims
from litelog.objects.layout import parse_wal, wal_key
from litelog.restore.execution import restore
from litelog.restore.history_plan import Target, find_plan
from litelog.restore.output import OutputError
from tests.builders.child import in_child, runs_in_child
from tests.builders.replica_builder import FORMAT, ReplicaBuilder, client_of, make_log, make_segment, prefix
from tests.builders.restoring import files_in, restore_to, try_restore
from tests.sampling import examples, sampled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from litelog.restore.plan import RestorePlan
    from tests.builders.replica_builder import GenerationBuilder, LogSegment

SHAPES = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=5), min_size=1, max_size=4)
FINALS = st.sampled_from(["last", "empty"])


def ship_log(
    built: GenerationBuilder,
    log: list[LogSegment],
    draw: Callable[..., Any] | None = None,
    last_final: str | None = None,
) -> None:
    for number, segment in enumerate(log):
        cuts = draw(st.sets(st.integers(0, 4))) if draw else ()
        final = last_final if number == len(log) - 1 else (draw(FINALS) if draw else "last")
        built.ship_segment(segment, cuts, final=final)


@pytest.fixture
def simple() -> ReplicaBuilder:
    builder = ReplicaBuilder()
    built = builder.add()
    for segment in make_log([[2, 1], [1, 3]]):
        built.ship_segment(segment, cuts=[0])
    return builder


def too_large(plan: RestorePlan) -> RestorePlan:
    """A plan for more than any disk holds."""
    return replace(plan, files=(replace(plan.files[0], size=1 << 60), *plan.files[1:]))


def test_a_disk_that_is_too_small_is_found_before_anything_is_read(simple: ReplicaBuilder, tmp_path: Path) -> None:
    plan = too_large(find_plan(simple.client, Target(), FORMAT))
    read: list[object] = []
    with pytest.raises(OutputError, match=r"/out: needs 1048576.0 TiB, and its file system has .* free; nothing was"):
        restore(simple.client, plan, str(tmp_path / "out"), log_format=FORMAT, progress=read.append)
    assert (read, os.listdir(tmp_path)) == ([], [])


def test_the_check_of_free_space_can_be_switched_off(simple: ReplicaBuilder, tmp_path: Path) -> None:
    plan = too_large(find_plan(simple.client, Target(), FORMAT))
    with pytest.raises(LitelogError) as caught:  # the disk's own error, or that of the false plan
        restore(simple.client, plan, str(tmp_path / "out"), log_format=FORMAT, check_space=False)
    assert "its file system has" not in str(caught.value)


def test_the_log_comes_back_byte_for_byte(simple: ReplicaBuilder, tmp_path: Path) -> None:
    result = restore_to(simple.client, tmp_path / "out")
    log = make_log([[2, 1], [1, 3]])
    assert files_in(tmp_path / "out") == {segment.name: segment.data for segment in log}
    assert (result.next, result.commits, result.records, result.files, result.objects) == (7, 4, 7, 2, 4)
    assert result.bytes == sum(len(segment.data) for segment in log)
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.slow
@given(shape=SHAPES, data=st.data(), parallelism=st.sampled_from([1, 2, 8]))
@settings(max_examples=examples(40))
def test_every_sequence_restores_exactly_its_commits(
    shape: list[list[int]], data: st.DataObject, parallelism: int
) -> None:
    builder = ReplicaBuilder()
    log = make_log(shape)
    ship_log(builder.add(), log, data.draw, data.draw(st.sampled_from([None, "last", "empty"])))
    total = log[-1].next
    commits = [count for counts in shape for count in counts]
    sequence = data.draw(st.integers(0, total - 1))
    held = 0
    while held < len(commits) and sum(commits[: held + 1]) <= sequence + 1:
        held += 1
    with TemporaryDirectory() as folder:
        if held == 0:
            with pytest.raises(NothingToRestoreError):
                restore_to(builder.client, f"{folder}/out", Target(sequence=sequence), parallelism=parallelism)
            return
        result = restore_to(builder.client, f"{folder}/out", Target(sequence=sequence), parallelism=parallelism)
        assert files_in(f"{folder}/out") == prefix(log, held)
        assert result.next == sum(commits[:held])


@pytest.mark.slow
def test_each_commit_of_a_log_can_be_restored_to(tmp_path: Path) -> None:
    shape = [[1, 2, 3], [2, 2], [4]]
    builder = ReplicaBuilder()
    log = make_log(shape)
    ship_log(builder.add(), log)
    commits = [count for counts in shape for count in counts]
    for held in range(1, len(commits) + 1):
        sequence = sum(commits[:held]) - 1
        restore_to(builder.client, tmp_path / str(held), Target(sequence=sequence))
        assert files_in(tmp_path / str(held)) == prefix(log, held)


@pytest.mark.slow
@given(shape=SHAPES, data=st.data())
@settings(max_examples=examples(30))
def test_random_histories_of_owners_restore_whole(shape: list[list[int]], data: st.DataObject) -> None:
    """Owners follow each other. Each ships the log from its start up to a random point. Some never begin."""
    builder = ReplicaBuilder()
    log = make_log(shape)
    acknowledged: dict[str, bytes] = {}
    for _ in range(data.draw(st.integers(1, 4))):
        built = builder.add(start=(begun := data.draw(st.booleans())))
        upto = data.draw(st.integers(0, len(log))) if begun else 0
        for segment in log[:upto]:
            built.ship_segment(segment, data.draw(st.sets(st.integers(0, 4))), final=data.draw(FINALS))
        if upto >= len(acknowledged):
            acknowledged = {segment.name: segment.data for segment in log[:upto]}
    with TemporaryDirectory() as folder:
        if not acknowledged:
            with pytest.raises(NothingToRestoreError):
                restore_to(builder.client, f"{folder}/out")
            return
        restore_to(builder.client, f"{folder}/out")
        assert files_in(f"{folder}/out") == acknowledged


def test_a_chosen_generation_is_restored_though_a_later_one_is_there(tmp_path: Path) -> None:
    builder = ReplicaBuilder()
    first, second = make_segment(0, [1, 1], tag=b"first"), make_segment(0, [1, 1, 1], tag=b"second")
    older = builder.add()
    older.ship_segment(first, final=None)
    builder.add().ship_segment(second, final=None)
    restore_to(builder.client, tmp_path / "new")
    restore_to(builder.client, tmp_path / "old", Target(generation=older.name))
    assert files_in(tmp_path / "new") == {second.name: second.data}
    assert files_in(tmp_path / "old") == {first.name: first.data}


@pytest.mark.slow
@pytest.mark.parametrize("parallelism", [1, 2, 8])
def test_parallelism_changes_no_byte(tmp_path: Path, parallelism: int) -> None:
    builder = ReplicaBuilder()
    log = make_log([[3] * 12 for _ in range(5)])
    built = builder.add()
    for segment in log:
        built.ship_segment(segment, cuts=range(12))
    restore_to(builder.client, tmp_path / "out", parallelism=parallelism)
    assert files_in(tmp_path / "out") == {segment.name: segment.data for segment in log}


@pytest.mark.slow
def test_commits_that_cross_frames_come_back(tmp_path: Path) -> None:
    segment = make_segment(0, [1])
    data = segment.data + b"".join(bytes(encode_commit(1 + n, 1, n, [os.urandom(700_000)])) for n in range(6))
    builder = ReplicaBuilder()
    builder.add().ship(data, segment.name)
    restore_to(builder.client, tmp_path / "out")
    assert files_in(tmp_path / "out") == {segment.name: data}


@pytest.mark.slow
def test_few_files_are_open_no_matter_how_many_pieces_there_are(tmp_path: Path) -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    log = make_log([[1] * 3 for _ in range(60)])
    for segment in log:
        built.ship_segment(segment, cuts=range(3))
    seen = []
    restore_to(
        builder.client,
        tmp_path / "out",
        parallelism=2,
        progress=lambda _: seen.append(len(os.listdir("/proc/self/fd"))),
    )
    assert len(seen) == 180
    assert max(seen) - min(seen) <= 2 * 4 + 2


def test_progress_reaches_the_size_of_the_plan(simple: ReplicaBuilder, tmp_path: Path) -> None:
    plan = find_plan(simple.client, Target(), FORMAT)
    seen = []
    restore(simple.client, plan, str(tmp_path / "out"), log_format=FORMAT, progress=seen.append)
    assert [step.pieces for step in seen] == [1, 2, 3, 4]
    assert seen[-1].restored == plan.size


def test_an_unfinished_last_line_of_a_finished_log_segment_is_restored(tmp_path: Path) -> None:
    lines = LinesFormat("*.log")
    builder = ReplicaBuilder(lines)
    built = builder.add()
    built.ship(b"one\ntwo\n", "a-1.log")
    built.ship(b"thr", "a-1.log", final=True)
    built.ship(b"four\n", "a-2.log")
    plan = find_plan(builder.client, Target(), lines)
    restore(builder.client, plan, str(tmp_path / "out"), log_format=lines)
    assert files_in(tmp_path / "out") == {"a-1.log": b"one\ntwo\nthr", "a-2.log": b"four\n"}


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("log_format", [LinesFormat("*.log"), RawFormat("*.log")])
def test_a_generation_that_counts_again_is_restored_after_the_one_it_continues(
    tmp_path: Path, log_format: LinesFormat | RawFormat, sealed: bool
) -> None:
    """The source dropped its first log segment before the second owner met the log."""
    builder = ReplicaBuilder(log_format)
    first = builder.add()
    first.ship(b"one\ntwo\n", "1.log", final=True)
    first.ship(b"three\n", "2.log")
    second = builder.add(builder.claim(first=1))
    second.ship(b"three\nfour\n", "2.log", final=True)
    second.ship(b"five\n", "3.log")
    if sealed:
        first.snapshot(1)
        second.snapshot(2)
    plan = find_plan(builder.client, Target(), log_format)
    restore(builder.client, plan, str(tmp_path / "out"), log_format=log_format)
    assert files_in(tmp_path / "out") == {"1.log": b"one\ntwo\n", "2.log": b"three\nfour\n", "3.log": b"five\n"}


@pytest.mark.slow
@pytest.mark.parametrize("log_format", [LinesFormat("*.log"), RawFormat("*.log")])
@runs_in_child
def test_large_pieces_of_formats_without_sequences_come_back(
    tmp_path: Path, log_format: LinesFormat | RawFormat
) -> None:
    data = b"".join(os.urandom(50_000).hex().encode() + b"\n" for _ in range(60))
    builder = ReplicaBuilder(log_format)
    built = builder.add()
    half = data.index(b"\n", len(data) // 2) + 1
    built.ship(data[:half], "a.log")
    built.ship(data[half:], "a.log")
    plan = find_plan(builder.client, Target(), log_format)
    restore(builder.client, plan, str(tmp_path / "out"), log_format=log_format)
    assert files_in(tmp_path / "out") == {"a.log": data}


@pytest.mark.slow
@pytest.mark.parametrize("kept", [1, 2, 40, 79, 80])
@runs_in_child
def test_a_cut_anywhere_in_a_large_piece_is_exact(tmp_path: Path, kept: int) -> None:
    segment = make_segment(0, [1])
    data, ends = segment.data, [len(segment.data)]
    for number in range(1, 80):
        data += bytes(encode_commit(number, 1, number, [os.urandom(90_000)]))
        ends.append(len(data))
    builder = ReplicaBuilder()
    builder.add().ship(data, segment.name)
    result = restore_to(builder.client, tmp_path / "out", Target(sequence=kept - 1))
    assert files_in(tmp_path / "out") == {segment.name: data[: ends[kept - 1]]}
    assert (result.commits, result.next) == (kept, kept)


@pytest.mark.slow
@pytest.mark.parametrize("size", [3 << 20, 9 << 20, 20 << 20])
def test_commits_larger_than_a_window_come_back(tmp_path: Path, size: int) -> None:
    in_child(lambda: restore_large_commits(tmp_path, size))


def restore_large_commits(folder: Path, size: int) -> None:
    segment = make_segment(0, [1])
    builder = ReplicaBuilder()
    built = builder.add()
    expected = segment.data
    for first, values in ((1, [os.urandom(size), b"small"]), (3, [os.urandom(3 << 20), b"last"])):
        data = b"".join(bytes(encode_commit(first + n, 1, n, [value])) for n, value in enumerate(values))
        built.ship(data if first > 1 else expected + data, segment.name)
        expected += data
    built.shipped.clear()  # the builder's own copy
    del values, data
    restore_to(builder.client, folder / "out", parallelism=2)
    assert files_in(folder / "out") == {segment.name: expected}


def small_replica() -> ReplicaBuilder:
    builder = ReplicaBuilder()
    log = make_log([[1, 1, 1], [1, 1]])
    first = builder.add()
    first.ship_segment(log[0], cuts=[0, 1])
    second = builder.add()
    second.ship_segment(log[0], cuts=[0, 1])
    second.ship_segment(log[1], cuts=[0], final=None)
    return builder


def outcome(objects: dict[str, bytes], folder: str) -> dict[str, bytes] | LitelogError:
    found = try_restore(objects, folder)
    return found if isinstance(found, LitelogError) else found[0]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], dict[str, bytes]]:
    objects = small_replica().objects()
    return objects, outcome(objects, str(tmp_path_factory.mktemp("whole")))


@pytest.mark.slow
@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_in_any_byte_is_found_or_harmless(
    whole: tuple[dict[str, bytes], dict[str, bytes]], tmp_path: Path, bit: int
) -> None:
    objects, expected = whole
    read = harmless = 0
    for key, body in objects.items():
        for at in sampled(range(bit, len(body), 8), 24, f"restore {key} {bit}"):
            damaged = {**objects, key: body[:at] + bytes([body[at] ^ 1 << bit]) + body[at + 1 :]}
            found = outcome(damaged, str(tmp_path))
            if isinstance(found, LitelogError):
                assert isinstance(found, CorruptionError), (key, at, found)
                read += 1
            else:
                assert found == expected, (key, at)
                harmless += 1
    assert read > harmless


@pytest.mark.slow
def test_every_flipped_bit_of_a_claim_is_found_or_harmless() -> None:
    body = claims.encode(claim := ReplicaBuilder().claim())
    found = 0
    for at in range(8 * len(body)):
        damaged = bytearray(body)
        damaged[at // 8] ^= 1 << at % 8
        try:
            assert claims.decode(claim.key, bytes(damaged)) == claim
        except CorruptObjectError:
            found += 1
    assert found > 6 * len(body)


@pytest.mark.slow
def test_every_truncated_object_is_found_or_harmless(
    whole: tuple[dict[str, bytes], dict[str, bytes]], tmp_path: Path
) -> None:
    objects, expected = whole
    for key, body in objects.items():
        for length in {0, 1, 7, len(body) // 2, len(body) - 1}:
            found = outcome({**objects, key: body[:length]}, str(tmp_path))
            assert isinstance(found, CorruptionError) or found == expected, (key, length)


@pytest.mark.slow
def test_every_deleted_object_is_missed_or_harmless(
    whole: tuple[dict[str, bytes], dict[str, bytes]], tmp_path: Path
) -> None:
    objects, expected = whole
    newest = max(key for key in objects if parse_wal(key))
    for gone in objects:
        found = outcome({key: body for key, body in objects.items() if key != gone}, str(tmp_path))
        if gone == newest:
            assert not isinstance(found, LitelogError)  # a replica that never got it looks the same: a shorter prefix
            assert all(expected[name].startswith(data) for name, data in found.items())
        else:
            assert isinstance(found, ReplicaGapError) or found == expected, gone


@pytest.mark.slow
def test_every_swap_duplicate_and_replay_of_objects_is_found_or_harmless(
    whole: tuple[dict[str, bytes], dict[str, bytes]], tmp_path: Path
) -> None:
    objects, expected = whole
    for one, other in permutations(objects, 2):
        for damaged in ({**objects, one: objects[other]}, {**objects, one: objects[other], other: objects[one]}):
            found = outcome(damaged, str(tmp_path))
            assert isinstance(found, CorruptionError) or found == expected, (one, other)


@pytest.mark.slow
def test_an_object_copied_to_any_free_place_is_found_or_harmless(
    whole: tuple[dict[str, bytes], dict[str, bytes]], tmp_path: Path
) -> None:
    objects, expected = whole
    positions = [position for position in map(parse_wal, objects) if position]
    for body in list(objects.values()):
        for position in positions:
            for place in (replace(position, offset=position.offset + 1), replace(position, index=position.index + 1)):
                if wal_key(place) not in objects:
                    found = outcome({**objects, wal_key(place): body}, str(tmp_path))
                    assert isinstance(found, CorruptionError) or found == expected, place


@pytest.mark.parametrize(
    "changes",
    [
        {"file": "../00000000000000000000.log"},
        {"file": "/etc/passwd"},
        {"file": ".."},
        {"file": "x" * 300},
        {"file": "other.log"},
        {"log": "f" * 32},
        {"format": "raw"},
        {"owner": "somebody"},
        {"records": 99},
        {"first": 7},
        {"next": 99},
        {"lowest": 5},
        {"highest": 5},
        {"crc": 1},
        {"crc_total": 1},
        {"length": 1},
        {"previous": "0" * 64},
        {"sealed": "0" * 64},
        {"successor": "epochs/00000001.json"},
    ],
)
@pytest.mark.parametrize("number", [0, 1])
def test_a_header_with_a_wrong_field_is_found(tmp_path: Path, changes: dict[str, int | str], number: int) -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    segment = make_segment(0, [2, 2])
    pieces = [segment.data[: segment.ends[0]], segment.data[segment.ends[0] :]]
    for at, piece in enumerate(pieces):
        built.ship(piece, segment.name, **(changes if at == number else {}))
        if at == number:
            break  # after a wrong claim, everything is wrong
    with pytest.raises(CorruptionError):
        restore_to(builder.client, tmp_path / "out")
    assert os.listdir(tmp_path) == []


def test_a_time_shipped_before_the_previous_one_is_corruption(tmp_path: Path) -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    segment = make_segment(0, [2, 2])
    built.ship(segment.data[: segment.ends[0]], segment.name)
    built.ship(segment.data[segment.ends[0] :], segment.name, shipped=built.clock - 1)
    with pytest.raises(CorruptObjectError, match="time shipped"):
        restore_to(builder.client, tmp_path / "out")


def test_the_error_is_that_of_the_first_piece_in_any_order_of_failures(tmp_path: Path) -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    segment = make_segment(0, [1] * 30)
    built.ship_segment(segment, cuts=range(30))
    objects = builder.objects()
    keys = [wal_key(position) for position in built.positions]
    for key in keys[11:20]:
        objects[key] = b"broken"
    with pytest.raises(CorruptObjectError) as caught:
        restore_to(client_of(objects), tmp_path / "out", parallelism=8)
    assert caught.value.key == keys[11]


def test_commits_that_fail_their_checksum_are_found_under_a_true_chain(tmp_path: Path) -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    segment = make_segment(0, [1, 1, 1])
    bad = bytearray(segment.data)
    bad[segment.ends[0] + 30] ^= 1
    built.ship(bytes(bad), segment.name, described=segment.data)
    with pytest.raises(CorruptionError):
        restore_to(builder.client, tmp_path / "out")


def test_a_log_segment_s_name_may_not_come_twice(tmp_path: Path) -> None:
    builder = ReplicaBuilder(lines := LinesFormat("*.log"))
    built = builder.add()
    built.ship(b"one\n", "a-2.log", final=True)
    built.ship(b"two\n", "a-1.log")
    with pytest.raises(CorruptObjectError, match="sorts after"):
        restore(builder.client, find_plan(builder.client, Target(), lines), str(tmp_path / "out"), log_format=lines)


def test_a_piece_that_the_listing_lacked_is_looked_for_again(simple: ReplicaBuilder, tmp_path: Path) -> None:
    plan = find_plan(simple.client, Target(), FORMAT)
    behind = replace(plan, pieces=(plan.pieces[0], *plan.pieces[2:]))
    restore(simple.client, behind, str(tmp_path / "out"), log_format=FORMAT)
    log = make_log([[2, 1], [1, 3]])
    assert files_in(tmp_path / "out") == {segment.name: segment.data for segment in log}


def test_a_plan_that_cuts_inside_a_commit_is_refused(simple: ReplicaBuilder, tmp_path: Path) -> None:
    plan = find_plan(simple.client, Target(), FORMAT)
    cut = plan.end.offset - 8
    files = (plan.files[0], replace(plan.files[1], size=cut))
    torn = replace(plan, end=replace(plan.end, offset=cut), files=files)
    with pytest.raises(CorruptObjectError, match="last whole commit"):
        restore(simple.client, torn, str(tmp_path / "out"), log_format=FORMAT)
    assert os.listdir(tmp_path) == []


def test_a_piece_that_vanished_since_the_plan_is_a_gap(simple: ReplicaBuilder, tmp_path: Path) -> None:
    plan = find_plan(simple.client, Target(), FORMAT)
    simple.client.delete_wal_segments([plan.pieces[1].position])
    with pytest.raises(ReplicaGapError) as caught:
        restore(simple.client, plan, str(tmp_path / "out"), log_format=FORMAT)
    assert caught.value.position == str(plan.pieces[1].position)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["file", "folder", "link", "dangling"])
def test_an_existing_output_is_not_touched(simple: ReplicaBuilder, tmp_path: Path, kind: str) -> None:
    output = tmp_path / "out"
    if kind == "file":
        output.write_text("mine")
    elif kind == "folder":
        output.mkdir()
        (output / "mine").write_text("mine")
    else:
        target = tmp_path / "target"
        if kind == "link":
            target.mkdir()
        output.symlink_to(target)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    with pytest.raises(OutputExistsError):
        restore_to(simple.client, output)
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_an_empty_folder_is_replaced(simple: ReplicaBuilder, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert restore_to(simple.client, tmp_path / "out").files == 2
    assert len(files_in(tmp_path / "out")) == 2


def test_an_output_that_appears_meanwhile_is_not_touched(simple: ReplicaBuilder, tmp_path: Path) -> None:
    def appear(_: Any) -> None:
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / "mine").write_text("mine")

    with pytest.raises(OutputExistsError):
        restore_to(simple.client, tmp_path / "out", progress=appear)
    assert files_in(tmp_path / "out") == {"mine": b"mine"}
    assert os.listdir(tmp_path) == ["out"]


def test_a_missing_parent_is_named(simple: ReplicaBuilder, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="no such folder"):
        restore_to(simple.client, tmp_path / "missing" / "out")


def test_a_mount_point_is_refused(simple: ReplicaBuilder) -> None:
    with pytest.raises(OutputError, match=r"mount point|root folder"):
        restore_to(simple.client, "/proc")
    with pytest.raises(OutputError, match="root folder"):
        restore_to(simple.client, "/")


def test_files_that_a_killed_restore_left_are_removed(simple: ReplicaBuilder, tmp_path: Path) -> None:
    left = tmp_path / ".out.litelog-restoring"
    left.mkdir()
    (left / "00000000000000000000.log").write_text("half")
    (left / "stale").write_text("half")
    restore_to(simple.client, tmp_path / "out")
    assert set(files_in(tmp_path / "out")) == {segment.name for segment in make_log([[2, 1], [1, 3]])}


def test_two_restores_do_not_share_a_folder(simple: ReplicaBuilder, tmp_path: Path) -> None:
    left = tmp_path / ".out.litelog-restoring"
    left.mkdir()
    held = os.open(left, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        with pytest.raises(LockedError):
            restore_to(simple.client, tmp_path / "out")
        assert left.is_dir()
    finally:
        os.close(held)


def test_a_planted_link_is_not_followed(simple: ReplicaBuilder, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "mine").write_text("mine")
    (tmp_path / ".out.litelog-restoring").symlink_to(victim)
    with pytest.raises(OutputError):
        restore_to(simple.client, tmp_path / "out")
    assert files_in(victim) == {"mine": b"mine"}


@pytest.mark.slow
def test_of_many_restores_at_once_one_wins_and_its_output_is_whole(simple: ReplicaBuilder, tmp_path: Path) -> None:
    outcomes: list[str] = []

    def run() -> None:
        try:
            restore_to(simple.client, tmp_path / "out")
            outcomes.append("done")
        except (LockedError, OutputExistsError):
            outcomes.append("refused")

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("done") == 1
    assert len(outcomes) == 8
    assert len(files_in(tmp_path / "out")) == 2


@pytest.mark.slow
def test_an_interrupted_restore_leaves_nothing(simple: ReplicaBuilder, tmp_path: Path) -> None:
    def interrupt(_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restore_to(simple.client, tmp_path / "out", progress=interrupt)
    assert os.listdir(tmp_path) == []
