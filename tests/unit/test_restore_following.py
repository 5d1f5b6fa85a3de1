"""A restored copy that follows its replica: what it appends, and what ends it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from litelog.claim import Relation
from litelog.errors import CorruptionError, DivergedError, LockedError, StoreError
from litelog.layout import wal_key
from litelog.restore.execution import restore
from litelog.restore.following import CopyFollower
from litelog.restore.output import OutputError
from litelog.restore.plan import Target, find_plan
from tests.unit.replica_builder import FORMAT, ReplicaBuilder, client_of, make_log, make_segment

if TYPE_CHECKING:
    from pathlib import Path

LOG = make_log([[2, 1, 3], [1, 2], [3, 1, 1], [2, 2]])


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def whole(log) -> dict[str, bytes]:
    return {segment.name: segment.data for segment in log}


@pytest.fixture
def grown(tmp_path):
    """A replica with two commits, and a follower of the copy of them."""
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship(LOG[0].data[: LOG[0].ends[1]], LOG[0].name)
    plan = find_plan(builder.client, Target(), FORMAT)
    restore(builder.client, plan, str(tmp_path / "out"), log_format=FORMAT)
    with CopyFollower(builder.client, str(tmp_path / "out"), plan, FORMAT) as follower:
        yield builder, built, follower, tmp_path / "out"


def drain(follower) -> None:
    while follower.step():
        pass


def finish_first(built) -> None:
    built.ship(LOG[0].data[LOG[0].ends[1] :], LOG[0].name, final=True)


def test_what_is_shipped_is_appended(grown):
    _, built, follower, out = grown
    drain(follower)
    assert follower.appended == 0
    finish_first(built)
    built.ship_segment(LOG[1], cuts=[0])
    drain(follower)
    assert files_in(out) == whole(LOG[:2])
    built.ship_segment(LOG[2], final="empty")
    built.ship_segment(LOG[3], final=None)
    drain(follower)
    assert files_in(out) == whole(LOG)
    assert follower.position == built.slot


def test_what_was_sealed_and_pruned_meanwhile_is_appended_from_there(grown):
    _, built, follower, out = grown
    drain(follower)
    finish_first(built)
    built.ship_segment(LOG[1], cuts=[0])
    built.stand_for_sealed(LOG[2])
    built.snapshot(3)
    built.ship_segment(LOG[3], final=None)
    built.prune(3)
    assert not follower.step()
    follower.catch_up()
    assert files_in(out) == whole(LOG)


def test_a_sealed_stand_in_is_appended(grown):
    _, built, follower, out = grown
    drain(follower)
    finish_first(built)
    built.stand_for_sealed(LOG[1])
    built.ship_segment(LOG[2], final=None)
    drain(follower)
    assert files_in(out) == whole(LOG[:3])


def test_a_generation_that_continues_is_followed(grown):
    builder, built, follower, out = grown
    drain(follower)
    finish_first(built)
    newer = builder.add(builder.claim(first=1), start=False)
    newer.start([newer.seal_unshipped(0, LOG[0])])
    newer.ship_segment(LOG[1], final=None)
    drain(follower)
    assert files_in(out) == whole(LOG[:2])


def test_a_generation_that_diverged_ends_it_by_name_and_leaves_the_copy(grown):
    builder, _, follower, out = grown
    drain(follower)
    before = files_in(out)
    builder.add(builder.claim(Relation.DIVERGED)).ship_segment(make_segment(0, [1, 1], tag=b"other"), final=None)
    with pytest.raises(DivergedError, match="rewound"):
        drain(follower)
    assert files_in(out) == before


def test_a_damaged_object_is_not_appended(grown):
    builder, built, _, out = grown
    before, copy = files_in(out), out.parent / "other"
    plan = find_plan(builder.client, Target(), FORMAT)
    restore(builder.client, plan, str(copy), log_format=FORMAT)
    finish_first(built)
    key, objects = wal_key(built.positions[-1]), builder.objects()
    body = objects[key]
    damaged = client_of({**objects, key: body[:-9] + bytes([body[-9] ^ 1]) + body[-8:]})
    with CopyFollower(damaged, str(copy), plan, FORMAT) as follower, pytest.raises(CorruptionError):
        drain(follower)
    assert files_in(copy) == before


def test_a_copy_that_somebody_changes_is_not_appended_to(grown):
    _, built, follower, out = grown
    drain(follower)
    with (out / LOG[0].name).open("ab") as file:
        file.write(b"x")
    finish_first(built)
    with pytest.raises(OutputError, match="changed"):
        drain(follower)


def test_a_copy_has_one_follower(grown):
    builder, _, _, out = grown
    with pytest.raises(LockedError):
        CopyFollower(builder.client, str(out), find_plan(builder.client, Target(), FORMAT), FORMAT)


def test_a_store_that_fails_for_a_while_is_waited_for(grown):
    builder, built, _, out = grown
    failing, waited, stop = [3], threading.Event(), threading.Event()

    class Failing:
        def __getattr__(self, name):
            return getattr(builder.client, name)

        def read_wal_segment(self, *place):
            if failing[0]:
                failing[0] -= 1
                raise StoreError("open", "x", "503", retryable=True)
            waited.set()
            return builder.client.read_wal_segment(*place)

    finish_first(built)
    copy = out.parent / "other"
    plan = find_plan(builder.client, Target(), FORMAT)
    restore(builder.client, plan, str(copy), log_format=FORMAT)
    built.ship_segment(LOG[1], final=None)
    with CopyFollower(Failing(), str(copy), plan, FORMAT) as follower:
        thread = threading.Thread(target=follower.run, args=(stop, 0.01))
        thread.start()
        try:
            assert waited.wait(20)
            for _ in range(2_000):
                if files_in(copy) == whole(LOG[:2]):
                    break
                stop.wait(0.01)
        finally:
            stop.set()
            thread.join(20)
    assert files_in(copy) == whole(LOG[:2])
