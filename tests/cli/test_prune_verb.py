"""``litelog prune`` and ``litelog forget`` on real replicas. Their owner's clock was ten days late."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ExitCode
from litelog.log.replica_registry import ReplicaSet, log_state_folder
from litelog.replicator.wiring import state_folder_of
from litelog.shipping.context import Settings, SnapshotPolicy
from litelog.shipping.state import StateFolder
from replica_clients.file import FileStore
from tests.builders.daemon_builder import Daemon
from tests.builders.log_builder import make_log
from tests.builders.manual_clock import ManualClock

if TYPE_CHECKING:
    from conftest import Command

DAYS_BEHIND = 10


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def replica(litelog: Command) -> str:
    """A mirror of a log that kept two of six log segments. Each is an hour long and has a snapshot."""
    log = make_log(litelog.folder / "log")
    store = FileStore(str(litelog.folder / "replica"))
    url = str(litelog.folder / "replica")
    state_dir = str(litelog.folder / "state" / "litelog")
    folder = state_folder_of(state_dir, log.folder, url, store.url)
    ReplicaSet(os.path.dirname(folder)).add(os.path.basename(folder), store.url)
    clock = ManualClock(int((time.time() - DAYS_BEHIND * 86400) * 1_000_000))
    settings = Settings(snapshot_policy=SnapshotPolicy.MIRROR, snapshot_segments=1)
    daemon = Daemon(log, store, folder, clock=clock, settings=settings)
    for _ in range(6):
        log.roll(2)
        daemon.sync()
        clock.advance(3600)
        for name in sorted(log.files())[:-2]:
            log.delete(name)
    daemon.close()
    return url


def test_a_plan_is_printed_and_nothing_is_changed(litelog: Command, replica: str) -> None:
    before = files(litelog.folder / "replica")
    state = files(litelog.folder / "state")
    for extra in ((), ("--dry-run",)):
        done = litelog("prune", replica, "--max-snapshots", "1", *extra)
        assert (done.code, done.err) == (ExitCode.DONE, "")
        assert "snapshots to delete" in done.out
        assert "sealed segments to delete" in done.out
        assert "nothing was deleted" in done.out
    assert files(litelog.folder / "replica") == before
    assert files(litelog.folder / "state") == state


def test_the_plan_for_programs_names_every_object(litelog: Command, replica: str) -> None:
    (plan,) = litelog("prune", replica, "--max-age", "1d", "--json").lines
    kinds = [one["kind"] for one in plan["removals"]]
    assert {"snapshot", "sealed segment"} <= set(kinds)
    stored = files(litelog.folder / "replica")
    assert all(len(stored[one["object"]]) == one["stored_bytes"] for one in plan["removals"])
    assert plan["removed_bytes"] == sum(one["stored_bytes"] for one in plan["removals"])
    objects = sum(len(body) for name, body in stored.items() if name.startswith("generations"))
    assert plan["removed_bytes"] + plan["stored_bytes"] == objects
    assert (plan["deleted_objects"], plan["cause"]) == (None, "older than max-age")


def test_confirmed_deletions_are_done_and_the_rest_is_restored(litelog: Command, replica: str) -> None:
    (plan,) = litelog("prune", replica, "--max-snapshots", "1", "--json").lines
    before = files(litelog.folder / "replica")
    (done,) = litelog("prune", replica, "--max-snapshots", "1", "--confirm", "--json").lines
    assert done["deleted_objects"] == len(plan["removals"]) > 0
    after = files(litelog.folder / "replica")
    assert set(before) - set(after) == {one["object"] for one in plan["removals"]}
    again = litelog("prune", replica, "--max-snapshots", "1", "--confirm")
    assert again.out.endswith("deleted 0 objects\n")
    shipped = litelog("replicate", "--once", "log", replica)
    assert shipped.code == ExitCode.DONE, shipped.err


def test_the_configuration_has_the_limits(litelog: Command, replica: str) -> None:
    config = litelog.folder / "litelog.yml"
    text = f"logs: [{{path: {litelog.folder}/log, replicas: [{{url: {replica}, retention: {{max-snapshots: 1}}}}]}}]"
    config.write_text(text)
    for place in (str(litelog.folder / "log"), replica):
        (plan,) = litelog("prune", place, "--config", str(config), "--json").lines
        assert plan["removals"]
    (wider,) = litelog("prune", replica, "--config", str(config), "--max-age", "300d", "--json").lines
    assert wider["removals"] == []
    assert litelog("prune", "elsewhere", "--config", str(config)).code == ExitCode.USAGE
    assert litelog("prune", str(litelog.folder / "log"), "--config", str(config), "--confirm").code == ExitCode.DONE


def test_without_limits_there_is_nothing_to_plan(litelog: Command, replica: str) -> None:
    done = litelog("prune", replica)
    assert done.code == ExitCode.USAGE
    assert "--max-age" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--max-age", "30"), "--max-age: has no unit: write 30d or 30h"),
        (("--max-age", "1x"), "--max-age: must be a duration"),
        (("--max-age", "5m"), "max-age must be at least 1h"),
        (("--max-bytes", "many"), "--max-bytes: must be a size"),
        (("--max-snapshots", "0"), "--max-snapshots: "),
        (("--max-snapshots", "2", "--min-snapshots", "3"), "max-snapshots must be at least min-snapshots"),
        (("--max-snapshots", "2", "--dry-run", "--confirm"), "exclude each other"),
        (("--max-age", "1d", "--config", "nowhere.yml"), "nowhere.yml"),
    ],
)
def test_bad_input_is_a_usage_error(litelog: Command, replica: str, arguments: tuple[str, ...], said: str) -> None:
    done = litelog("prune", replica, *arguments)
    assert (done.code, done.out) == (ExitCode.USAGE, "")
    assert said in done.err
    assert "Traceback" not in done.err


def test_an_empty_replica_has_nothing_to_prune(litelog: Command) -> None:
    (litelog.folder / "empty").mkdir()
    assert litelog("prune", "empty", "--max-age", "1d").code == ExitCode.NOTHING_TO_RESTORE


def test_while_a_daemon_runs_nothing_is_deleted(litelog: Command, replica: str) -> None:
    before = files(litelog.folder / "replica")
    state_dir = str(litelog.folder / "state" / "litelog")
    folder = state_folder_of(state_dir, str(litelog.folder / "log"), replica, FileStore(replica).url)
    with StateFolder(folder, "a daemon"):
        done = litelog("prune", replica, "--max-snapshots", "1", "--confirm")
        assert (done.code, done.out) == (ExitCode.FENCED, "")
        assert "in use by another process" in done.err
        assert litelog("prune", replica, "--max-snapshots", "1").code == ExitCode.DONE  # a plan is always printed
        forget = litelog("forget", "log", replica)
        assert (forget.code, forget.out) == (ExitCode.FENCED, "")
        assert "the daemon of log runs; stop it first" in forget.err
    assert files(litelog.folder / "replica") == before


def test_a_daemon_that_is_not_the_owner_deletes_nothing(litelog: Command, replica: str) -> None:
    before = files(litelog.folder / "replica")
    done = litelog("prune", replica, "--max-snapshots", "1", "--confirm", "--state-dir", "elsewhere")
    assert (done.code, done.out) == (ExitCode.FENCED, "")
    assert "only its owner deletes" in done.err
    assert not (litelog.folder / "elsewhere").exists()
    assert files(litelog.folder / "replica") == before


def test_a_succeeded_owner_deletes_nothing(litelog: Command, replica: str) -> None:
    taken = litelog("replicate", "--once", "--takeover", "--state-dir", "other", "log", replica)
    assert taken.code == ExitCode.DONE, taken.err
    before = files(litelog.folder / "replica")
    done = litelog("prune", replica, "--max-snapshots", "1", "--confirm")
    assert done.code == ExitCode.FENCED
    assert "was succeeded by" in done.err
    assert files(litelog.folder / "replica") == before


def test_a_replica_that_is_forgotten_is_waited_for_no_more(litelog: Command, replica: str) -> None:
    state_dir = str(litelog.folder / "state" / "litelog")
    replicas = ReplicaSet(log_state_folder(state_dir, str(litelog.folder / "log")))
    before = files(litelog.folder / "replica")
    (done,) = litelog("forget", "log", replica, "--json").lines
    assert (done["forgotten"], done["remaining"]) == (FileStore(replica).url, [])
    assert replicas.names() == {}
    assert files(litelog.folder / "replica") == before
    again = litelog("forget", "log", replica)
    assert (again.code, again.out) == (ExitCode.USAGE, "")
    assert "known: none" in again.err
    assert litelog("replicate", "--once", "log", replica).code == ExitCode.DONE  # which puts it back
    assert list((replicas.names() or {}).values()) == [FileStore(replica).url]
    assert "waits for no replica" in litelog("forget", "log", replica).out


def test_forget_finds_the_state_folder_of_a_configuration(litelog: Command) -> None:
    litelog.lines(1)
    config = "state-dir: own\nlogs: [{path: log, replicas: [replica]}]"
    (litelog.folder / "c.yml").write_text(config)
    assert litelog("replicate", "--once", "--config", "c.yml").code == ExitCode.DONE
    assert litelog("forget", "log", "replica").code == ExitCode.USAGE
    done = litelog("forget", "log", "replica", "--config", "c.yml")
    assert (done.code, "waits for no replica" in done.out) == (ExitCode.DONE, True)


def test_an_emptied_replica_is_unavailable_until_it_is_forgotten(litelog: Command, replica: str) -> None:
    place = litelog.folder / "replica"
    place.rename(litelog.folder / "away")
    place.mkdir()
    done = litelog("replicate", "--once", "log", replica)
    assert done.code == ExitCode.FAILURE
    assert "epochs/00000001.json: is not there" in done.err
    assert "litelog forget" in done.err
    assert list(place.iterdir()) == []
    assert litelog("forget", "log", replica).code == ExitCode.DONE
    assert litelog("replicate", "--once", "log", replica).code == ExitCode.DONE
    assert litelog("verify", replica).code == ExitCode.DONE


def test_a_replica_whose_daemon_is_running_is_not_forgotten(litelog: Command, replica: str) -> None:
    state_dir = str(litelog.folder / "state" / "litelog")
    log = str(litelog.folder / "log")
    with StateFolder(state_folder_of(state_dir, log, replica, FileStore(replica).url), "a daemon"):
        done = litelog("forget", "log", replica)
    assert (done.code, done.out) == (ExitCode.FENCED, "")
    assert ReplicaSet(log_state_folder(state_dir, log)).names()


def test_a_damaged_replicas_json_is_reported_and_the_named_remedy_works(litelog: Command, replica: str) -> None:
    folder = Path(log_state_folder(str(litelog.folder / "state" / "litelog"), str(litelog.folder / "log")))
    (folder / "replicas.json").write_text("{")
    before = files(folder)
    done = litelog("forget", "log", replica)
    assert (done.code, done.out) == (ExitCode.FAILURE, "")
    assert f"{folder}/replicas.json: cannot be read" in done.err
    assert "when litelog replicate starts" in done.err
    assert files(folder) == before
    assert litelog("replicate", "--once", "log", replica).code == ExitCode.DONE
    assert "waits for no replica" in litelog("forget", "log", replica).out


@pytest.mark.parametrize("arguments", [("nowhere", "file:///nothing"), ("log", "unheard://of"), ("log", "")])
def test_a_place_that_is_not_a_replica_of_the_log_is_a_usage_error(
    litelog: Command, replica: str, arguments: tuple[str, ...]
) -> None:
    before = files(litelog.folder / "state")
    done = litelog("forget", *arguments)
    assert (done.code, done.out) == (ExitCode.USAGE, "")
    assert "Traceback" not in done.err
    assert files(litelog.folder / "state") == before
