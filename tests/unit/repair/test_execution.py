"""What a repair of a local log does: bytes of replicas, torn tails, what it leaves, and what it keeps."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from litelog.errors import ConfigError, LockedError, NothingToRestoreError, SourceError, SourceMissingError, StoreError
from litelog.formats import Expectation
from litelog.formats.influxdb import InfluxdbFormat
from litelog.log.unfinished_repair import BACKUPS, NEW, RepairSteps, complete_repair, remove_steps, write_steps
from litelog.log.writer import LogWriter
from litelog.repair.execution import repair
from litelog.stores.object_store import ObjectReplicaClient
from replica_clients.memory import MemoryStore
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
    ship,
    whole,
    write,
)
from tests.builders.replica_builder import ReplicaBuilder, client_of, make_log, make_segment
from tests.sampling import sampled

if TYPE_CHECKING:
    from pathlib import Path


def flipped(data: bytes, *places: int) -> bytes:
    changed = bytearray(data)
    for place in places:
        changed[place] ^= 1
    return bytes(changed)


DAMAGES = {
    "a flip": {MIDDLE.name: flipped(MIDDLE.data, MIDDLE.ends[0] + 20)},
    "flips in two commits": {MIDDLE.name: flipped(MIDDLE.data, 70, MIDDLE.ends[1] + 20)},
    "a header": {MIDDLE.name: flipped(MIDDLE.data, 20)},
    "zeros": {MIDDLE.name: MIDDLE.data[: MIDDLE.ends[0]] + bytes(100) + MIDDLE.data[MIDDLE.ends[0] + 100 :]},
    "all of it": {MIDDLE.name: b"x" * len(MIDDLE.data)},
    "a cut": {MIDDLE.name: MIDDLE.data[: MIDDLE.ends[1] + 5]},
    "a cut between two commits": {MIDDLE.name: MIDDLE.data[: MIDDLE.ends[1]]},
    "zeros after a cut": {MIDDLE.name: MIDDLE.data[: MIDDLE.ends[1]] + bytes(90)},
    "nothing in it": {MIDDLE.name: b""},
    "a torn tail": {LAST.name: LAST.data[:-5]},
    "a flip in the last commit": {LAST.name: flipped(LAST.data, len(LAST.data) - 3)},
    "a flip in each": {segment.name: flipped(segment.data, segment.ends[0] + 20) for segment in LOG},
}


@pytest.mark.parametrize("kind", ["wal", "sealed"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
def test_a_log_is_what_it_was_after_a_repair_from_a_replica(
    damage: dict[str, bytes], kind: str, tmp_path: Path
) -> None:
    write(tmp_path, {**whole(), **damage})
    result = run(tmp_path, replica(kind))
    assert (held(tmp_path), result.left) == (whole(), 0), done(result)
    assert backups(tmp_path) == damage
    assert result.backup is not None
    assert run(tmp_path, replica(kind)).plan.places == ()


@pytest.mark.parametrize("kind", ["wal", "sealed"])
def test_a_missing_log_segment_is_created(kind: str, tmp_path: Path) -> None:
    write(tmp_path, whole([FIRST, LAST]))
    result = run(tmp_path, replica(kind))
    assert done(result) == [("create", MIDDLE.name, 0, len(MIDDLE.data))]
    assert (held(tmp_path), result.left, result.backup) == (whole(), 0, None)


@pytest.mark.slow
def test_each_flip_is_repaired(tmp_path: Path) -> None:
    client = replica("sealed")
    for place in sampled(range(len(MIDDLE.data)), 12, "flips in a log that is repaired"):
        write(tmp_path, {**whole(), MIDDLE.name: flipped(MIDDLE.data, place)})
        result = run(tmp_path, client)
        assert (held(tmp_path), result.left) == (whole(), 0), place


def test_a_plan_changes_nothing_and_says_what_it_would_do(tmp_path: Path) -> None:
    damage = {MIDDLE.name: flipped(MIDDLE.data, MIDDLE.ends[0] + 20)}
    write(tmp_path, {**whole(), **damage})
    result = run(tmp_path, replica(), confirm=False)
    assert done(result) == [("replace", MIDDLE.name, MIDDLE.ends[0], MIDDLE.ends[1])]
    assert (result.carried_out, result.backup, result.after, result.left) == (False, None, None, 0)
    assert sorted(os.listdir(tmp_path)) == sorted(whole())
    assert held(tmp_path) == {**whole(), **damage}


def test_without_a_replica_only_a_torn_tail_is_cut_off(tmp_path: Path) -> None:
    torn, bad = LAST.data[:-5], flipped(MIDDLE.data, MIDDLE.ends[0] + 20)
    write(tmp_path, {**whole(), MIDDLE.name: bad, LAST.name: torn})
    result = run(tmp_path)
    assert [method for method, *_ in done(result)] == ["leave", "cut"]
    assert held(tmp_path) == {FIRST.name: FIRST.data, MIDDLE.name: bad, LAST.name: LAST.data[: LAST.ends[1]]}
    assert (result.left, backups(tmp_path)) == (1, {LAST.name: torn})


def test_what_the_replica_does_not_hold_yet_stays(tmp_path: Path) -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    for segment in (FIRST, MIDDLE):
        built.ship_segment(segment)
    built.ship_segment(LAST, final=None, upto=1)
    longer = make_log([[2, 1, 3], [1, 1, 2, 1], [2, 2, 1, 1]])[-1]
    bad = flipped(longer.data, 70, longer.ends[1] + 20)
    write(tmp_path, {**whole(), LAST.name: bad})
    result = run(tmp_path, client_of(builder.objects()))
    assert done(result) == [
        ("replace", LAST.name, 64, LAST.ends[0]),
        ("leave", LAST.name, LAST.ends[1], LAST.ends[2]),
    ]
    assert held(tmp_path)[LAST.name] == flipped(longer.data, longer.ends[1] + 20)
    assert result.left == 1


def test_a_replica_with_other_bytes_supplies_nothing(tmp_path: Path) -> None:
    other = make_segment(6, [1, 1, 2, 1], tag=b"o")
    assert (other.name, len(other.data)) == (MIDDLE.name, len(MIDDLE.data))
    damage = {MIDDLE.name: flipped(MIDDLE.data, MIDDLE.ends[0] + 20)}
    for kind in ("wal", "sealed"):
        write(tmp_path, {**whole(), **damage})
        result = run(tmp_path, replica(kind, [FIRST, other, LAST]))
        (place,) = result.plan.places
        assert (str(place.method), result.left, held(tmp_path)[MIDDLE.name]) == ("leave", 1, damage[MIDDLE.name])
        assert "does not agree with what is left" in place.reason


def test_a_log_of_one_damaged_commit_is_known_by_its_id(tmp_path: Path) -> None:
    (only,) = make_log([[3]])
    write(tmp_path, {only.name: only.data[:-3]})
    builder = ReplicaBuilder()
    builder.add().ship_segment(only, final=None)
    result = run(tmp_path, client_of(builder.objects()))
    assert (held(tmp_path), result.left) == ({only.name: only.data}, 0)
    write(tmp_path, {only.name: flipped(only.data[:-3], 20)})  # in the header, which states the id
    result = run(tmp_path, client_of(builder.objects()))
    assert [method for method, *_ in done(result)] == ["leave"]


def test_a_torn_tail_stays_if_a_replica_has_another_history(tmp_path: Path) -> None:
    other = make_segment(11, [2, 2, 1], tag=b"o")
    write(tmp_path, {**whole(), LAST.name: LAST.data[:-5]})
    result = run(tmp_path, replica("wal", [FIRST, MIDDLE, other]))
    assert [method for method, *_ in done(result)] == ["leave"]
    assert held(tmp_path)[LAST.name] == LAST.data[:-5]
    assert run(tmp_path).left == 0


def test_an_earlier_generation_supplies_what_good_bytes_follow(tmp_path: Path) -> None:
    write(tmp_path, {**whole(), MIDDLE.name: flipped(MIDDLE.data, MIDDLE.ends[0] + 20)})
    result = run(tmp_path, diverged(LOG, [FIRST]))
    assert (held(tmp_path), result.left) == (whole(), 0)
    assert result.plan.places[0].generation == "00000001000000a1"


def test_an_earlier_generation_supplies_a_tail_only_to_a_person_who_names_it(tmp_path: Path) -> None:
    write(tmp_path, {**whole(), LAST.name: LAST.data[:-5]})
    client = diverged(LOG, [FIRST, MIDDLE])
    result = run(tmp_path, client)
    (place,) = result.plan.places
    assert (str(place.method), result.left) == ("leave", 1)
    assert "--generation 00000001000000a1 takes them" in place.reason
    with pytest.raises(NothingToRestoreError, match="no generation begins with 00000003"):
        run(tmp_path, client, generation="00000003")
    assert run(tmp_path, client, generation="00000001").left == 0
    assert held(tmp_path) == whole()


class _Down(MemoryStore):
    def list(self, prefix: str, start_after: str | None = None) -> Any:
        raise StoreError("list", prefix, "is down")


def test_a_torn_tail_stays_while_a_replica_cannot_be_read(tmp_path: Path) -> None:
    write(tmp_path, {**whole(), LAST.name: LAST.data[:-5]})
    result = run(tmp_path, ObjectReplicaClient(_Down("down")))
    (place,) = result.plan.places
    assert (str(place.method), result.left) == ("leave", 1)
    assert "is down" in place.reason
    assert result.plan.skipped[0][0] == "memory://down"
    assert run(tmp_path, ObjectReplicaClient(_Down("down")), replica()).left == 0
    assert held(tmp_path) == whole()


def test_an_empty_replica_is_named(tmp_path: Path) -> None:
    write(tmp_path, {**whole(), LAST.name: LAST.data[:-5]})
    result = run(tmp_path, client_of({}))
    assert (result.left, [reason for _, reason in result.plan.skipped]) == (1, ["memory://copy: no replica there"])


def test_a_second_replica_supplies_what_the_first_one_lost(tmp_path: Path) -> None:
    write(tmp_path, {**whole(), MIDDLE.name: flipped(MIDDLE.data, MIDDLE.ends[0] + 20)})
    builder = ReplicaBuilder()
    built = ship(builder.add())
    objects = builder.objects()
    for key in [key for key in objects if f"/{1:016x}/" in key]:
        del objects[key]
    assert len(objects) < len(builder.objects()), built.name
    assert run(tmp_path, client_of(objects)).left == 1
    result = run(tmp_path, client_of(objects), replica())
    assert (held(tmp_path), result.left) == (whole(), 0)


def test_a_log_of_another_id_gets_nothing(tmp_path: Path) -> None:
    with LogWriter(str(tmp_path)) as writer:
        writer.append([b"a", b"b"])
        writer.append([b"c"])
    (segment,) = tmp_path.glob("*.log")
    segment.write_bytes(segment.read_bytes()[:-3])
    result = run(tmp_path, replica())
    assert [method for method, *_ in done(result)] == ["leave"]
    assert "holds log" in result.plan.skipped[0][1]


def test_a_log_in_use_is_refused_and_unchanged(tmp_path: Path) -> None:
    with LogWriter(str(tmp_path)) as writer:
        writer.append([b"a"])
        with pytest.raises(LockedError, match="is in use by another process"):
            run(tmp_path)
    assert run(tmp_path).plan.places == ()


def test_a_log_that_a_program_has_open_for_writing_is_refused(tmp_path: Path) -> None:
    torn = {**whole(), LAST.name: LAST.data[:-5]}
    write(tmp_path, torn)
    with open(tmp_path / LAST.name, "ab"), pytest.raises(LockedError, match="has open for writing"):
        run(tmp_path)
    assert (held(tmp_path), list(tmp_path.glob(BACKUPS))) == (torn, [])
    with open(tmp_path / LAST.name, "rb"):
        assert run(tmp_path).left == 0


def test_a_writer_continues_after_a_repair(tmp_path: Path) -> None:
    write(tmp_path, {**whole(), MIDDLE.name: flipped(MIDDLE.data, MIDDLE.ends[0] + 20)})
    run(tmp_path, replica())
    with LogWriter(str(tmp_path)) as writer:
        assert writer.append([b"next"]).first == LAST.next


def test_modes_of_files_stay(tmp_path: Path) -> None:
    write(tmp_path, {**whole(), MIDDLE.name: flipped(MIDDLE.data, MIDDLE.ends[0] + 20)})
    (tmp_path / MIDDLE.name).chmod(0o640)
    run(tmp_path, replica())
    assert (tmp_path / MIDDLE.name).stat().st_mode & 0o777 == 0o640


def test_what_a_killed_repair_left_is_cleared(tmp_path: Path) -> None:
    write(tmp_path, {**whole(), LAST.name: LAST.data[:-5]})
    (tmp_path / BACKUPS / "new").mkdir(parents=True)
    (tmp_path / BACKUPS / "new" / LAST.name).write_bytes(b"half")
    result = run(tmp_path, replica())
    assert (held(tmp_path), result.left) == (whole(), 0)
    assert backups(tmp_path) == {LAST.name: LAST.data[:-5]}


def test_a_folder_without_a_log_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError, match="holds no log segment"):
        run(tmp_path)
    with pytest.raises(SourceError, match="no such folder"):
        run(tmp_path / "nothing")


def test_a_flipped_byte_in_the_second_of_three_messages_takes_no_message_away(tmp_path: Path) -> None:
    log_format, name = InfluxdbFormat(), "6"
    whole_file = dict(recorded_segments("influxdb", "table", ""))[name]
    ends = [commit.end for commit in log_format.commits(name, memoryview(whole_file), 0, Expectation())]
    assert len(ends) == 3
    (tmp_path / name).write_bytes(flipped(whole_file, ends[1] - 1))
    result = repair(str(tmp_path), log_format, confirm=True)
    assert [(str(each.method), each.offset, each.end) for each in result.plan.places] == [("leave", ends[0], ends[1])]
    assert (tmp_path / name).read_bytes() == flipped(whole_file, ends[1] - 1)
    (tmp_path / name).write_bytes(whole_file[:-5])
    result = repair(str(tmp_path), log_format, confirm=True)
    assert [(str(each.method), each.offset) for each in result.plan.places] == [("cut", ends[1])]
    assert (tmp_path / name).read_bytes() == whole_file[: ends[1]]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for another user")
def test_root_leaves_the_writers_lock_to_the_owner_of_the_folder(tmp_path: Path) -> None:
    write(tmp_path, {**whole(), LAST.name: LAST.data[:-5]})
    for path in (tmp_path, *tmp_path.iterdir()):
        os.chown(path, 65534, 65534)
    run(tmp_path, replica())
    owners = {path.name: path.stat().st_uid for path in tmp_path.iterdir() if path.is_file()}
    assert owners == dict.fromkeys([*whole(), ".lock"], 65534)


def test_a_log_is_cut_at_damage_only_if_a_person_asks_for_it(tmp_path: Path) -> None:
    damaged = {**whole(), MIDDLE.name: flipped(MIDDLE.data, MIDDLE.ends[1] + 20), LAST.name: LAST.data[:-5]}
    write(tmp_path, damaged)
    planned = run(tmp_path, cut=True, confirm=False)
    assert (planned.left, held(tmp_path)) == (0, damaged)
    result = run(tmp_path, cut=True)
    assert done(result) == [
        ("cut", MIDDLE.name, MIDDLE.ends[1], len(MIDDLE.data)),
        ("remove", LAST.name, 0, len(LAST.data) - 5),
    ]
    assert (held(tmp_path), result.left) == (
        {FIRST.name: FIRST.data, MIDDLE.name: MIDDLE.data[: MIDDLE.ends[1]]},
        0,
    )
    assert backups(tmp_path) == {name: damaged[name] for name in (MIDDLE.name, LAST.name)}
    with LogWriter(str(tmp_path)) as writer:
        assert writer.append([b"next"]).first == 8


def test_what_a_replica_holds_is_replaced_before_a_cut(tmp_path: Path) -> None:
    bad = flipped(FIRST.data, FIRST.ends[0] + 20)
    write(tmp_path, {**whole(), FIRST.name: bad, LAST.name: flipped(LAST.data, LAST.ends[0] + 20)})
    result = run(tmp_path, replica("wal", [FIRST, MIDDLE]), cut=True)
    assert (held(tmp_path), result.left) == ({**whole([FIRST, MIDDLE]), LAST.name: LAST.data[: LAST.ends[0]]}, 0)


def test_a_cut_before_a_missing_log_segment_removes_all_after_it(tmp_path: Path) -> None:
    write(tmp_path, {FIRST.name: FIRST.data, LAST.name: LAST.data})
    (tmp_path / LAST.name.replace(".log", ".index")).write_bytes(b"stale")
    result = run(tmp_path, cut=True)
    assert (held(tmp_path), result.left) == ({FIRST.name: FIRST.data}, 0)
    assert backups(tmp_path) == {LAST.name: LAST.data}


def test_a_cut_that_would_leave_nothing_and_one_of_another_format_are_refused(tmp_path: Path) -> None:
    write(tmp_path, {FIRST.name: flipped(FIRST.data, 20)})
    with pytest.raises(SourceError, match="no good commit comes before the damage"):
        run(tmp_path, cut=True)
    with pytest.raises(ConfigError, match="only the log's own program can continue"):
        repair(str(tmp_path), InfluxdbFormat(), cut=True)


def test_the_writer_completes_a_repair_that_was_killed_between_two_files(tmp_path: Path) -> None:
    """The whole log is then the new one, and what was replaced is kept."""
    log = make_log([[2, 1], [1, 2], [2]])
    folder = tmp_path / "log"
    new = folder / BACKUPS / NEW
    new.mkdir(parents=True)
    for segment in log[:2]:
        (folder / segment.name).write_bytes(b"damaged")
        (new / segment.name).write_bytes(segment.data)
    (folder / log[2].name).write_bytes(log[2].data)
    write_steps(str(folder), RepairSteps((), tuple(segment.name for segment in log[:2])))
    os.rename(new / log[0].name, folder / log[0].name)  # the kill came here
    with LogWriter(str(folder)) as writer:
        assert writer.next_sequence == 8
    assert [(folder / segment.name).read_bytes() for segment in log] == [segment.data for segment in log]
    assert not list((folder / BACKUPS).iterdir())
    assert not complete_repair(str(folder))


@pytest.mark.parametrize("kind", ["placed", "removed"])
def test_a_repair_that_was_killed_is_not_completed_once_the_log_has_changed(tmp_path: Path, kind: str) -> None:
    """Another program's log grew after the kill: what it wrote since would be lost."""
    new = tmp_path / BACKUPS / NEW
    new.mkdir(parents=True)
    (tmp_path / "a.log").write_bytes(b"damaged")
    steps = RepairSteps(("a.log",), ()) if kind == "removed" else RepairSteps((), ("a.log",))
    if kind == "placed":
        (new / "a.log").write_bytes(b"whole")
    write_steps(str(tmp_path), steps)
    with (tmp_path / "a.log").open("ab") as file:
        file.write(b" and new")
    with pytest.raises(SourceError, match=r"a\.log has changed since"):
        complete_repair(str(tmp_path))
    assert (tmp_path / "a.log").read_bytes() == b"damaged and new"


def test_a_repair_that_was_killed_is_not_completed_while_a_program_writes(tmp_path: Path) -> None:
    write(tmp_path, whole())
    new = tmp_path / BACKUPS / NEW
    new.mkdir(parents=True)
    (new / LAST.name).write_bytes(LAST.data)
    write_steps(str(tmp_path), RepairSteps((), (LAST.name,)))
    with (tmp_path / LAST.name).open("ab"), pytest.raises(LockedError, match="open for writing"):
        run(tmp_path)
    assert (new / LAST.name).exists()
    assert run(tmp_path).plan.places == ()
    assert not (new / LAST.name).exists()


def test_steps_that_are_removed_are_not_carried_out(tmp_path: Path) -> None:
    (tmp_path / FIRST.name).write_bytes(FIRST.data)
    (tmp_path / BACKUPS).mkdir()
    write_steps(str(tmp_path), RepairSteps((FIRST.name,), ()))
    remove_steps(str(tmp_path))
    remove_steps(str(tmp_path))
    assert not complete_repair(str(tmp_path))
    assert held(tmp_path) == {FIRST.name: FIRST.data}


@pytest.mark.parametrize("name", ["../other.log", ".lock", "a/b"])
def test_steps_that_leave_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / BACKUPS).mkdir()
    write_steps(str(tmp_path), RepairSteps((), (name,)))
    with pytest.raises(SourceError, match="a name in it is a path"):
        complete_repair(str(tmp_path))
