"""Several replicas are copied to the same names, a failure stays with its replica, and a stop ends all."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from litelog.copying.several import CopyStoppedError, ReplicaCopy, copy_each, find_copies
from litelog.errors import ConfigError, CorruptObjectError, NoReplicaError
from litelog.stores.registry import open_store
from tests.builders.verify_helper import everything

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ["a", "b/c", "d"]


@pytest.fixture
def below(tmp_path: Path) -> ReplicaCopy:
    """Three replicas below a folder, and a folder for their copies."""
    objects = everything().objects()
    for name in NAMES:
        store = open_store(str(tmp_path / "replicas" / name))
        for key, body in objects.items():
            store.put(key, [body])
    return ReplicaCopy(str(tmp_path / "replicas"), str(tmp_path / "copies"))


def test_replicas_are_copied_to_the_same_names(below: ReplicaCopy) -> None:
    copies = find_copies(below, threading.Event())
    assert [(each.replica, each.target) for each in copies] == [
        (f"{below.replica}/{name}", f"{below.target}/{name}") for name in NAMES
    ]
    first, again = ([outcome.result for outcome in copy_each(copies, threading.Event())] for _ in range(2))
    for done, unchanged, name in zip(first, again, NAMES, strict=True):
        assert done is not None
        assert unchanged is not None
        assert (done.target.endswith(f"/copies/{name}"), done.objects) == (True, done.total)
        assert (unchanged.objects, unchanged.total) == (0, done.total)


def test_a_place_that_is_a_replica_is_copied_to_the_target_itself(below: ReplicaCopy) -> None:
    one = ReplicaCopy(f"{below.replica}/a", below.target)
    assert find_copies(one, threading.Event()) == [one]


def test_damage_stays_with_its_replica(below: ReplicaCopy, tmp_path: Path) -> None:
    for path in (tmp_path / "replicas" / "b" / "c").rglob("*.segment.lz4"):
        path.write_bytes(b"damaged")
    outcomes = list(copy_each(find_copies(below, threading.Event()), threading.Event()))
    assert [type(outcome.error) for outcome in outcomes] == [type(None), CorruptObjectError, type(None)]


def test_once_stopped_no_replica_is_copied_and_a_later_run_continues(below: ReplicaCopy) -> None:
    stop, copies = threading.Event(), find_copies(below, threading.Event())
    stopped = list(copy_each(copies, stop, parallelism=1, progress=lambda _: stop.set(), at_once=1))
    assert [type(outcome.error) for outcome in stopped] == [CopyStoppedError] * 3
    continued = [outcome.result for outcome in copy_each(copies, threading.Event())]
    assert continued[0] is not None
    assert 0 < continued[0].objects < continued[0].total
    assert continued[2] is not None
    assert continued[2].objects == continued[2].total


def test_a_caller_that_ends_the_iteration_stops_the_copies(below: ReplicaCopy) -> None:
    stop = threading.Event()
    outcomes = copy_each(find_copies(below, stop), stop, at_once=1)
    next(outcomes)
    outcomes.close()  # type: ignore[attr-defined]
    assert stop.is_set()


@pytest.mark.parametrize(
    ("target", "error"), [("replicas/copies", ConfigError), ("replicas", ConfigError), ("copies", NoReplicaError)]
)
def test_copies_below_their_replicas_and_places_without_replicas_are_refused(
    below: ReplicaCopy, tmp_path: Path, target: str, error: type[Exception]
) -> None:
    place = below.replica if error is ConfigError else str(tmp_path / "empty")
    with pytest.raises(error):
        find_copies(ReplicaCopy(place, str(tmp_path / target)), threading.Event())
