"""``litelog spark maintain`` on replicas that Spark wrote two days ago: the plan, what ``--confirm`` does, refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow")

from litelog.errors import ExitCode
from replica_clients.file import FileStore
from tests.builders.batch_replicas import die_in_write, records_of, small_appends

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

    from tests.builders.many_generations import CountedReplica

APPENDS = 6

KILLED_AFTER_PUT = """
import os
from replica_clients.file import FileStore
put = FileStore.put
def put_and_die(store, key, *rest, **named):
    put(store, key, *rest, **named)
    if {part!r} in key:
        os._exit(9)
FileStore.put = put_and_die
"""
"""The command ends at once after it has put an object with such a key."""

A_DAY_LATER = """
from litelog.system.clock import SystemClock
now = SystemClock.now
SystemClock.now = lambda clock: now(clock) + 25 * 3600 * 1_000_000
"""
"""The command's clock is 25 hours fast."""


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def sealed(folder: Path) -> list[str]:
    return [name for name in files(folder) if "/segments/" in name]


def make(litelog: Command, name: str = "events", *, died: bool = False) -> CountedReplica:
    """A replica of small appends, and of a write that died after them."""
    replica = small_appends(APPENDS, inner=FileStore(str(litelog.folder / name)), hours_ago=48)
    if died:
        die_in_write(replica)
    return replica


def test_without_confirm_the_plan_is_printed_and_nothing_is_changed(litelog: Command) -> None:
    make(litelog, died=True)
    before = files(litelog.folder)
    for extra in ((), ("--dry-run",)):
        done = litelog("spark", "maintain", "events", *extra)
        assert (done.code, done.err) == (ExitCode.DONE, "")
        assert "log segments to merge" in done.out
        assert "orphans to delete" in done.out
        assert done.out.endswith("nothing was changed: add --confirm to do this\n")
    assert litelog("spark", "maintain", "events", "--json", "--max-age", "1h").code == ExitCode.DONE
    assert files(litelog.folder) == before


def test_confirm_merges_and_deletes_and_no_record_changes(litelog: Command) -> None:
    replica = make(litelog, died=True)
    records, cat = records_of(replica), litelog("cat", "events").out
    done = litelog("spark", "maintain", "events", "--confirm")
    assert (done.code, done.err) == (ExitCode.DONE, "")
    assert "the log is in generation" in done.out
    assert "deleted 2 objects" in done.out
    assert records_of(replica) == records
    assert litelog("cat", "events").out == cat != ""
    assert litelog("verify", "events").code == ExitCode.DONE
    assert len(litelog("segments", "events", "--json").lines) == 2
    again = litelog("spark", "maintain", "events", "--confirm")
    assert again.code == ExitCode.DONE
    assert again.out.endswith("events: nothing to do\n")


def test_limits_prune_older_snapshots(litelog: Command) -> None:
    make(litelog)
    (plan,) = litelog("spark", "maintain", "events", "--max-snapshots", "1", "--json").lines
    assert {one["kind"] for one in plan["removals"]} == {"snapshot"}
    (done,) = litelog("spark", "maintain", "events", "--max-snapshots", "1", "--confirm", "--json").lines
    assert done["deleted_objects"] > 0
    assert done["removed_bytes"] > 0


def test_the_plan_for_programs_names_merges_and_orphans(litelog: Command) -> None:
    make(litelog, died=True)
    stored = files(litelog.folder / "events")
    (plan,) = litelog("spark", "maintain", "events", "--json").lines
    (merge,) = plan["merges"]
    assert (merge["first"], merge["next"], merge["log_segments"]) == (0, 2 * (APPENDS - 1), APPENDS - 1)
    assert len(plan["orphans"]) == 2
    assert all(len(stored[one["object"]]) == one["stored_bytes"] for one in plan["orphans"])
    assert plan["removed_bytes"] == sum(one["stored_bytes"] for one in plan["orphans"])
    assert (plan["running"], plan["deleted_objects"], plan["generation"]) == (False, None, None)
    (done,) = litelog("spark", "maintain", "events", "--json", "--confirm").lines
    assert (done["merges"], done["orphans"]) == (plan["merges"], plan["orphans"])
    assert (done["deleted_objects"], done["removed_bytes"]) == (2, plan["removed_bytes"])
    assert done["generation"] in litelog("generations", "events", "--json").lines[-1]["generation"]


def test_zero_as_the_size_merges_nothing(litelog: Command) -> None:
    make(litelog)
    (plan,) = litelog("spark", "maintain", "events", "--segment-bytes", "0", "--json").lines
    assert plan["merges"] == []


def test_of_several_replicas_one_fails_and_the_others_are_maintained(litelog: Command) -> None:
    make(litelog, "orders")
    make(litelog, "users")
    (litelog.folder / "empty").mkdir()
    done = litelog("spark", "maintain", "orders", "empty", "users", "--confirm")
    assert done.code == ExitCode.NOTHING_TO_RESTORE
    assert done.err.count("\n") == 1
    assert "empty" in done.err
    for name in ("orders", "users"):
        assert len(litelog("segments", name, "--json").lines) == 2


def test_if_several_replicas_fail_each_is_named_and_the_highest_code_counts(litelog: Command) -> None:
    make(litelog, "orders")
    litelog.lines(3)
    assert litelog("replicate", "--once", "log", "daemons").code == ExitCode.DONE
    (litelog.folder / "empty").mkdir()
    done = litelog("spark", "maintain", "daemons", "empty", "orders", "--json")
    assert done.code == ExitCode.FENCED
    first, *more = done.err.splitlines()
    assert first == "litelog: 2 of 3 replicas failed"
    assert [one for one in more if "daemons: generation" in one]
    assert [one for one in more if "empty" in one]
    plan, error = done.lines
    assert plan["replica"].endswith("orders")
    assert (error["error"]["kind"], error["error"]["exit_code"]) == ("several-failed", ExitCode.FENCED)


def test_a_daemons_replica_is_refused_and_stays(litelog: Command) -> None:
    litelog.lines(3)
    assert litelog("replicate", "--once", "log", "backup").code == ExitCode.DONE
    before = files(litelog.folder / "backup")
    for extra in ((), ("--confirm",)):
        done = litelog("spark", "maintain", "backup", *extra)
        assert (done.code, done.out) == (ExitCode.FENCED, "")
        assert "belongs to a daemon" in done.err
    assert files(litelog.folder / "backup") == before


def test_while_a_write_may_run_nothing_is_changed(litelog: Command) -> None:
    replica = make(litelog)
    replica.hours_ago = 2
    die_in_write(replica)
    before = files(litelog.folder)
    plan = litelog("spark", "maintain", "events")
    assert plan.code == ExitCode.DONE
    assert "until then nothing is changed" in plan.out
    assert "add --confirm" not in plan.out
    assert litelog("spark", "maintain", "events", "--json").lines[0]["running"] is True
    done = litelog("spark", "maintain", "events", "--confirm")
    assert done.code == ExitCode.FENCED
    assert "run this again after it" in done.err
    assert files(litelog.folder) == before
    assert litelog("spark", "maintain", "events", "--confirm", "--grace", "1h").code == ExitCode.DONE


def test_a_damaged_log_segment_is_named_and_nothing_is_published(litelog: Command) -> None:
    replica = make(litelog)
    name = sealed(litelog.folder / "events")[2]
    path = litelog.folder / "events" / name
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 4
    path.write_bytes(bytes(body))
    done = litelog("spark", "maintain", "events", "--confirm")
    assert done.code == ExitCode.CORRUPTION
    assert name in done.err
    body[len(body) // 2] ^= 4
    path.write_bytes(bytes(body))
    assert len(litelog("segments", "events", "--json").lines) == APPENDS
    assert len(records_of(replica)) == 2 * APPENDS


@pytest.mark.parametrize("name", ["empty", "nowhere"])
def test_a_place_without_a_replica_has_nothing_to_maintain(litelog: Command, name: str) -> None:
    (litelog.folder / "empty").mkdir()
    done = litelog("spark", "maintain", name, "--confirm")
    assert (done.code, done.out) == (ExitCode.NOTHING_TO_RESTORE, "")
    assert name in done.err
    assert list((litelog.folder / "empty").iterdir()) == []
    assert not (litelog.folder / "nowhere").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Missing argument 'REPLICA_URL...'"),
        (("events", "--dry-run", "--confirm"), "exclude each other"),
        (("events", "--segment-bytes", "many"), "'many' must be a size such as 16MiB"),
        (("events", "--segment-bytes", "2GiB"), "--segment-bytes must be at most 1GiB"),
        (("events", "--grace", "soon"), "'soon' must be a duration"),
        (("events", "--grace", "5m"), "--grace must be at least 1h"),
        (("events", "--max-age", "30"), "--max-age: has no unit: write 30d or 30h"),
        (("events", "--max-snapshots", "2", "--min-snapshots", "3"), "max-snapshots must be at least min-snapshots"),
        (("events", "--min-snapshots", "3"), "--min-snapshots limits nothing"),
        (("events", "--config", "nowhere.yml"), "nowhere.yml"),
        (("s3//bucket/events",), "s3//bucket/events"),
    ],
)
def test_bad_input_is_a_usage_error(litelog: Command, arguments: tuple[str, ...], said: str) -> None:
    make(litelog)
    before = files(litelog.folder)
    done = litelog("spark", "maintain", *arguments)
    assert (done.code, done.out) == (ExitCode.USAGE, "")
    assert said in done.err
    assert "Traceback" not in done.err
    assert files(litelog.folder) == before


@pytest.mark.parametrize("part", ["/segments/", "epochs/", "/snapshots/"])
def test_a_run_that_was_killed_is_repeated_safely(litelog: Command, part: str) -> None:
    """It dies after a put. If that was its claim, the next run waits until it counts as dead."""
    replica = make(litelog)
    records = records_of(replica)
    litelog.before = KILLED_AFTER_PUT.format(part=part)
    assert litelog("spark", "maintain", "events", "--confirm").code == 9
    litelog.before = ""
    assert records_of(replica) == records
    done = litelog("spark", "maintain", "events", "--confirm")
    assert done.code == (ExitCode.FENCED if part == "epochs/" else ExitCode.DONE)
    assert ("run this again after it" in done.err) == (part == "epochs/")
    litelog.before = A_DAY_LATER
    assert litelog("spark", "maintain", "events", "--confirm").code == ExitCode.DONE
    assert records_of(replica) == records
    assert len(litelog("segments", "events", "--json").lines) == 2
    assert litelog("spark", "maintain", "events").out.endswith("events: nothing to do\n")


def test_the_help_has_examples_and_exit_codes(litelog: Command) -> None:
    done = litelog("spark", "maintain", "--help")
    assert done.code == ExitCode.DONE
    assert "Usage: litelog spark maintain [OPTIONS] REPLICA_URL..." in done.out
    assert "litelog spark maintain s3://bucket/events --max-age 30d --confirm" in done.out
    assert "Exit codes: 0" in done.out
    assert "maintain" in litelog("spark", "--help").out
