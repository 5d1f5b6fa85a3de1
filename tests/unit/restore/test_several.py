"""Many logs are restored at once, and none of them stops the others."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from litelog.errors import CorruptObjectError, NoReplicaError, OutputExistsError
from litelog.restore.plan import Target
from litelog.restore.several import LogRestore, RestoreRules, restore_each, restore_one
from litelog.stores.registry import register_object_store
from tests.builders.restoring import files_in, whole
from tests.builders.verify_helper import LOG, everything, store_of
from tests.sampling import times

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MANY = times(200, at_night=1000)


@pytest.fixture(autouse=True)
def _stores() -> None:
    """Replicas of one log: sound ones, and others whose names say what is wrong with them."""
    objects = everything().objects()
    damaged = {key: b"x" if key.endswith(".lz4") else body for key, body in objects.items()}

    def open_store(url: str, _options: Mapping[str, object]) -> object:
        return store_of({} if "empty" in url else damaged if "damaged" in url else objects)

    register_object_store("many", open_store)  # type: ignore[arg-type]


def restores(folder: Path, *names: str) -> list[LogRestore]:
    return [LogRestore(name, ((f"many://{name}", {}),), str(folder / "above" / name)) for name in names]


@pytest.mark.slow
def test_many_logs_are_restored_and_failures_are_reported_in_their_place(tmp_path: Path) -> None:
    names = [f"{number}{'empty' if number == 7 else 'damaged' if number == 50 else ''}" for number in range(MANY)]
    before = set(threading.enumerate())
    outcomes = list(restore_each(restores(tmp_path, *names), RestoreRules(Target())))
    assert [outcome.restore.log for outcome in outcomes] == names
    failed = {number: type(outcome.error) for number, outcome in enumerate(outcomes) if outcome.error is not None}
    assert failed == {7: NoReplicaError, 50: CorruptObjectError}
    done = [outcome.restore.output for outcome in outcomes if outcome.result is not None]
    assert len(done) == MANY - 2
    assert all(files_in(output) == whole(LOG) for output in done)
    assert len(set(threading.enumerate()) - before) < 10, "no threads are left for each log"


@pytest.mark.parametrize("leaves", [False, True])
def test_a_log_that_exists_is_an_error_unless_it_may_be_left(tmp_path: Path, leaves: bool) -> None:
    (one,) = restores(tmp_path, "one")
    list(restore_each([one], RestoreRules(Target())))
    (again,) = restore_each([one], RestoreRules(Target(), if_not_exists=leaves))
    assert isinstance(again.error, OutputExistsError) is not leaves
    assert ("exists already" in again.left) is leaves


@pytest.mark.parametrize("leaves", [False, True])
def test_a_log_without_a_replica_is_an_error_unless_it_may_be_left(tmp_path: Path, leaves: bool) -> None:
    (outcome,) = restore_each(restores(tmp_path, "empty"), RestoreRules(Target(), if_replica_exists=leaves))
    assert isinstance(outcome.error, NoReplicaError) is not leaves
    assert ("no replica" in outcome.left) is leaves


def test_a_caller_that_stops_leaves_no_folder_behind_that_is_not_whole(tmp_path: Path) -> None:
    outcomes = restore_each(restores(tmp_path, *map(str, range(50))), RestoreRules(Target()), at_once=2)
    next(outcomes)
    outcomes.close()
    made = sorted((tmp_path / "above").iterdir())
    assert 1 <= len(made) < 50
    assert all(files_in(output) == whole(LOG) for output in made)


def test_one_log_is_restored_or_the_error_is_raised(tmp_path: Path) -> None:
    one, empty = restores(tmp_path, "one", "empty")
    assert restore_one(one, Target(), delta=False).output == one.output
    assert files_in(one.output) == whole(LOG)
    with pytest.raises(OutputExistsError):
        restore_one(one, Target(), delta=False)
    assert restore_one(one, Target(), delta=True).files == len(whole(LOG))
    with pytest.raises(NoReplicaError):
        restore_one(empty, Target(), delta=False)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "above").write_text("a file")
    (outcome,) = restore_each(restores(tmp_path, "one"), RestoreRules(Target()))
    assert "above: cannot be created" in str(outcome.error)
