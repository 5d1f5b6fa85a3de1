"""``litelog restore`` reports a point that does not exist, less data than requested, and places without a replica."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click
import pytest

from litelog.errors import ExitCode
from litelog_cli.arguments import parse_time

if TYPE_CHECKING:
    from tests.unit.litelog_cli.conftest import InProcess

NOW = datetime(2026, 11, 21, 10, tzinfo=UTC)
MICROSECONDS = 1_795_255_200_000_000


def test_a_sequence_in_the_first_commit_names_the_earliest_end(command: InProcess) -> None:
    done = command("restore", command.replica(), "-o", "out", "--sequence", "0")
    assert done.code == ExitCode.NOTHING_TO_RESTORE
    assert "sequence 0 is inside the first commit, which holds the sequences 0 to 99;" in done.err
    assert "the earliest possible end is 99" in done.err
    assert command("restore", "replica", "-o", "out", "--sequence", "99").code == ExitCode.DONE


def test_a_restore_that_ends_before_the_target_is_reported(command: InProcess) -> None:
    done = command("restore", command.replica(), "-o", "out", "--sequence", "298")
    assert done.code == ExitCode.DONE
    assert "(200 records, 1 file)" in done.out
    assert "it ends with sequence 199, 99 records before the one asked for" in done.out
    whole = command("restore", "replica", "-o", "whole", "--sequence", "299")
    assert "asked for" not in whole.out


def test_a_point_in_the_future_is_refused_as_sequence_and_as_time(command: InProcess) -> None:
    replica = command.replica()
    later = datetime.now(UTC) + timedelta(days=2)
    for bound in (["--sequence", "300"], ["--timestamp", later.isoformat()]):
        done = command("restore", replica, "-o", "out", *bound)
        assert done.code == ExitCode.NOTHING_TO_RESTORE
        assert not (command.folder / "out").exists()
    assert "is in the future; the last records were shipped at " in done.err
    assert command("restore", replica, "-o", "out", "--timestamp", "now").code == ExitCode.DONE


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("nowhere", "nowhere: no such folder"),
        ("empty", "empty: no replica there"),
        ("log", "log: a log of litelog, not a replica; give its replica, or its configuration (--config)"),
        ("files", "files: a folder of files, not a replica; if it is a log, name its configuration (--config)"),
        ("above", "above: no replica there, but below it: one"),
        ("memory://test", "memory://test: no replica there (nothing is stored below it)"),
    ],
)
def test_a_place_without_a_replica_is_described_alike_by_all_verbs(command: InProcess, place: str, said: str) -> None:
    command.append(1)
    (command.folder / "empty").mkdir()
    (command.folder / "files").mkdir()
    (command.folder / "files" / "app-1.log").write_text("a line\n")
    (command.folder / "above" / "one" / "epochs").mkdir(parents=True)
    for verb in (
        ["restore", "-o", "out"],
        ["verify"],
        ["generations"],
        ["snapshots"],
        ["wal"],
        ["prune", "--max-age", "1h"],
    ):
        if place == "log" and verb == ["verify"]:
            continue  # checks the log's own files
        done = command(*verb, place)
        assert done.code == ExitCode.NOTHING_TO_RESTORE, verb
        assert said in done.err, verb


@pytest.mark.parametrize(
    ("output", "said"), [("file:///x", "not a URL: write /x"), ("s3://x/y", "a folder of this machine, not a URL")]
)
def test_an_output_is_a_folder(command: InProcess, output: str, said: str) -> None:
    done = command("restore", "replica", "-o", output)
    assert (done.code, said in done.err) == (ExitCode.USAGE, True)


@pytest.mark.parametrize("text", ["abc", "1.5", "-3", "1,2,", "٣"])
def test_a_sequence_is_a_whole_number(command: InProcess, text: str) -> None:
    done = command("restore", "replica", "-o", "out", f"--sequence={text}")
    assert done.code == ExitCode.USAGE
    assert f"{text!r} is not a whole number" in done.err


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("now", MICROSECONDS),
        ("1795255200", MICROSECONDS),
        ("1795255200000", MICROSECONDS),
        ("1795255200000000", MICROSECONDS),
        ("1 hour ago", MICROSECONDS - 3_600_000_000),
        ("1h", MICROSECONDS - 3_600_000_000),
        ("2026-11-21T11:00+01:00", MICROSECONDS),
    ],
)
def test_a_time_is_read_as_people_write_it(text: str, microseconds: int) -> None:
    assert parse_time(text, NOW) == microseconds


@pytest.mark.parametrize("text", ["yesterday", "12345678901", "5", "ago"])
def test_an_invalid_time_is_answered_with_valid_examples(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a time: write 2026-11-21T10:00:00Z, 1h"):
        parse_time(text, NOW)


@pytest.mark.slow
def test_a_configured_log_is_restored_to_its_own_folder(command: InProcess) -> None:
    command.replica()
    (command.folder / "c.yml").write_text(f"logs: [{{path: {command.folder}/log, replicas: [{{url: replica}}]}}]")
    taken = command("restore", "--config", "c.yml", "log")
    assert (taken.code, "log: exists already" in taken.err) == (ExitCode.FAILURE, True)
    (command.folder / "log").rename(command.folder / "gone")
    assert command("restore", "--config", "c.yml", "log").code == ExitCode.DONE
    name = "00000000000000000000.log"
    assert (command.folder / "log" / name).read_bytes() == (command.folder / "gone" / name).read_bytes()
    missing = command("restore", "replica")
    assert (missing.code, "-o FOLDER is missing" in missing.err) == (ExitCode.USAGE, True)


@pytest.mark.slow
def test_a_poll_interval_is_a_duration(command: InProcess) -> None:
    done = command("restore", "replica", "-o", "out", "--poll-interval", "soon")
    assert (done.code, "must be a duration such as 10s" in done.err) == (ExitCode.USAGE, True)
    done = command("restore", "replica", "-o", "out", "--poll-interval", "1ms")
    assert (done.code, "must be at least 0.01s" in done.err) == (ExitCode.USAGE, True)
    assert command("restore", command.replica(), "-o", "out", "--poll-interval", "1s").code == ExitCode.DONE
