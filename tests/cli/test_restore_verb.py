"""``litelog restore``, ``generations`` and ``wal`` on real replicas."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ExitCode

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command


@pytest.fixture
def replica(litelog: Command) -> str:
    """A replica of a log of 3 commits with 1000, 1000 and 500 records, shipped as two WAL segments."""
    litelog.lines(2000)
    assert litelog("replicate", "--once", "log", "replica").code == 0
    litelog.lines(500)
    assert litelog("replicate", "--once", "log", "replica").code == 0
    return "replica"


def segments(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.log")}


def test_a_restored_log_equals_the_source_byte_for_byte(litelog: Command, replica: str) -> None:
    done = litelog("restore", replica, "-o", "out")
    assert (done.code, done.out.startswith("restored ")) == (ExitCode.DONE, True)
    assert segments(litelog.folder / "out") == segments(litelog.folder / "log")


def test_the_result_is_an_object_for_programs(litelog: Command, replica: str) -> None:
    done = litelog("restore", replica, "-o", "out", "--json")
    (result,) = done.lines
    assert (result["records"], result["next"], done.err) == (2500, 2500, "")


def test_a_restored_log_is_appended_to_where_it_ended(litelog: Command, replica: str) -> None:
    litelog("restore", replica, "-o", "out")
    assert litelog("append", "out", text="more\n").out == "2501\n"


@pytest.mark.parametrize(("sequence", "records"), [("2499", 2500), ("2498", 2000), ("1999", 2000), ("1000", 1000)])
def test_a_restore_up_to_a_sequence_ends_at_a_commit(
    litelog: Command, replica: str, sequence: str, records: int
) -> None:
    done = litelog("restore", replica, "-o", "out", "--sequence", sequence, "--json")
    assert done.lines[0]["next"] == records


def test_a_restore_up_to_a_time_before_everything_has_nothing_to_restore(litelog: Command, replica: str) -> None:
    done = litelog("restore", replica, "-o", "out", "--timestamp", "2001-01-01")
    assert done.code == ExitCode.NOTHING_TO_RESTORE
    assert litelog("restore", replica, "-o", "out", "--timestamp", "0s", "--json").lines[0]["records"] == 2500


@pytest.mark.parametrize("text", ["soon", "latest", "5", "2026-13-01", "9999999y"])
def test_the_error_for_a_malformed_time_shows_a_valid_one(litelog: Command, replica: str, text: str) -> None:
    done = litelog("restore", replica, "-o", "out", "--timestamp", text)
    assert done.code == ExitCode.USAGE
    assert f"--timestamp: '{text}' is not a time: write 2026-11-21T10:00:00Z, 1h (before now)" in done.err


def test_two_bounds_at_once_are_a_usage_error(litelog: Command, replica: str) -> None:
    done = litelog("restore", replica, "-o", "out", "--sequence", "1", "--index", "0")
    assert done.code == ExitCode.USAGE


def test_a_dry_run_prints_the_plan_and_writes_nothing(litelog: Command, replica: str) -> None:
    done = litelog("restore", replica, "-o", "out", "--dry-run", "--json")
    (plan,) = done.lines
    assert len(plan["wal_pieces"]) == 2
    said = litelog("restore", replica, "-o", "out", "--dry-run").out
    size, stored = f"{plan['log_bytes']:,}", f"{plan['stored_bytes']:,}"
    assert f"\n{size} bytes in 1 file\nfrom {stored} bytes in 2 objects\n  00000000000000000000.log  {size}\n" in said
    assert not (litelog.folder / "out").exists()


def test_an_output_that_exists_is_left_alone(litelog: Command, replica: str) -> None:
    (litelog.folder / "out").mkdir()
    (litelog.folder / "out" / "mine").write_text("precious")
    assert litelog("restore", replica, "-o", "out").code == ExitCode.FAILURE
    assert litelog("restore", replica, "-o", "out", "--if-not-exists").code == ExitCode.DONE
    assert [path.name for path in (litelog.folder / "out").iterdir()] == ["mine"]


def test_a_restore_that_restores_nothing_reports_it_in_json_too(litelog: Command, replica: str) -> None:
    (litelog.folder / "out").mkdir()
    (litelog.folder / "out" / "mine").write_text("precious")
    (told,) = litelog("restore", replica, "-o", "out", "--if-not-exists", "--json").lines
    assert told == {
        "version": 1,
        "output": str(litelog.folder / "out"),
        "nothing_to_do": "out: exists already, nothing to do",
    }
    (told,) = litelog("restore", "nowhere", "-o", "new", "--if-replica-exists", "--json").lines
    assert "no such folder; nothing to do" in told["nothing_to_do"]


def test_nothing_to_restore_is_reported_by_the_exit_code(litelog: Command) -> None:
    assert litelog("restore", "nowhere", "-o", "out").code == ExitCode.NOTHING_TO_RESTORE
    assert litelog("restore", "nowhere", "-o", "out", "--if-replica-exists").code == ExitCode.DONE
    assert litelog("generations", "nowhere").code == ExitCode.NOTHING_TO_RESTORE
    assert litelog("wal", "nowhere").code == ExitCode.NOTHING_TO_RESTORE


def test_corruption_is_reported_by_the_exit_code_and_the_objects_name(litelog: Command, replica: str) -> None:
    first, _ = sorted((litelog.folder / replica).glob("generations/*/wal/*/*"))
    body = bytearray(first.read_bytes())
    body[-20] ^= 1
    first.chmod(0o600)
    first.write_bytes(body)
    done = litelog("restore", replica, "-o", "out")
    assert done.code == ExitCode.CORRUPTION
    assert f"{(litelog.folder / replica).as_uri()}: generations/" in done.err
    assert first.name in done.err
    assert f"litelog verify {(litelog.folder / replica).as_uri()} lists what is damaged there" in done.err
    assert not (litelog.folder / "out").exists()


def test_generations_lists_the_content_of_the_replica(litelog: Command, replica: str) -> None:
    (facts,) = litelog("generations", "--json", replica).lines
    name = facts["generation"]
    assert (facts["relation"], facts["ended"], facts["wal_segments"], facts["next"]) == (
        "first",
        False,
        2,
        2500,
    )
    assert facts["first_shipped"] < facts["last_shipped"]
    title, row = litelog("generations", replica).out.splitlines()
    assert title.split()[:3] == ["generation", "state", "sequences"]
    assert row.split()[:3] == [name, "open", "0-2,499"]
    title, row = litelog("generations", "--wide", replica).out.splitlines()
    assert title.split()[:3] == ["generation", "state", "relation"]
    assert row.split()[:3] == [name, "open", "first"]


def test_a_generation_that_was_succeeded_has_ended(litelog: Command, replica: str) -> None:
    litelog.lines(1)
    assert litelog("replicate", "--once", "--takeover", "--state-dir", "other", "log", replica).code == 0
    old, new = litelog("generations", "--json", replica).lines
    assert (old["ended"], old["next"], new["ended"]) == (True, 2500, False)
    assert new["predecessor"] == old["generation"]
    chosen = litelog("wal", "--json", "--generation", old["generation"], replica).lines
    assert {line["generation"] for line in chosen} == {old["generation"]}
    assert "ended by" in litelog("wal", "--headers", "--generation", old["generation"], replica).out


def test_wal_lists_the_segments_in_order(litelog: Command, replica: str) -> None:
    first, second = litelog("wal", "--json", replica).lines
    assert (first["offset"], second["offset"] > 0) == (0, True)
    with_headers = litelog("wal", "--json", "--headers", replica).lines
    assert [(line["first"], line["next"]) for line in with_headers] == [(0, 2000), (2000, 2500)]
    table = litelog("wal", "--headers", replica).out.splitlines()
    assert table[0] == f"generation {first['generation']}:"
    places = [f"0/{line['offset']:x}" for line in (first, second)]
    assert [line.split()[0] for line in table[1:]] == ["position", *places]


def test_a_table_that_is_not_for_a_terminal_is_neither_wrapped_nor_padded(litelog: Command, replica: str) -> None:
    out = litelog("generations", replica, COLUMNS="40").out
    assert len(out.splitlines()) == 2
    assert all(line == line.rstrip() for line in out.splitlines())


def test_an_unknown_generation_lists_those_that_are_there(litelog: Command, replica: str) -> None:
    (facts,) = litelog("generations", "--json", replica).lines
    done = litelog("wal", "--generation", "0" * 16, replica)
    assert done.code == ExitCode.NOTHING_TO_RESTORE
    assert facts["generation"] in done.err


def test_version_for_programs(litelog: Command) -> None:
    assert set(json.loads(litelog("version", "--json").out)) == {"version", "litelog", "python", "platform", "compiled"}
