"""Mistakes on the command line are caught before they do harm."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ExitCode
from tests.builders.recorded_logs import unpack

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.litelog_cli.conftest import InProcess


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_nothing_is_appended_to_a_replica(command: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    before = files(command.folder / command.replica())
    lines = command.folder / "lines"
    lines.write_text("hi\n")
    with lines.open() as opened:
        monkeypatch.setattr(sys, "stdin", opened)
        done = command("append", "replica")
    assert (done.code, done.out) == (ExitCode.USAGE, "")
    assert "replica: is a litelog replica, not a log: append to the log that it replicates" in done.err
    assert files(command.folder / "replica") == before


@pytest.mark.parametrize("place", ["log", "log/below", "log/below/deep"])
def test_a_check_is_not_made_in_the_folder_of_a_log(command: InProcess, place: str) -> None:
    command.append(1)
    before = files(command.folder)
    done = command("check", place)
    assert done.code == ExitCode.USAGE
    assert f"{command.folder}/log is the folder of a log: give the replica its own folder" in done.err
    assert files(command.folder) == before


def test_a_check_is_not_made_among_other_files(command: InProcess) -> None:
    (command.folder / "docs").mkdir()
    (command.folder / "docs" / "notes.txt").write_text("mine")
    done = command("check", "docs")
    assert done.code == ExitCode.USAGE
    assert "docs holds other files, such as notes.txt" in done.err


@pytest.mark.slow
def test_a_check_leaves_no_folder_that_a_typo_made(command: InProcess) -> None:
    done = command("check", "foo/deep")
    assert done.code == ExitCode.DONE
    assert f"{command.folder}/foo/deep does not exist: it was made for the check, and removed again" in done.out
    assert files(command.folder) == []
    (command.folder / "there").mkdir()
    done = command("check", "there")
    assert (done.code, "removed again" in done.out) == (ExitCode.DONE, False)
    assert files(command.folder) == ["there"]


@pytest.mark.parametrize("verb", [["check"], ["generations"], ["restore", "-o", "out"], ["replicate", "--once", "log"]])
def test_a_url_without_its_colon_is_not_a_folder(command: InProcess, verb: list[str]) -> None:
    command.append(1)
    done = command(*verb, "s3//bucket/x")
    assert done.code == ExitCode.USAGE
    assert "s3//bucket/x: did you mean s3://bucket/x? (./s3//bucket/x for a folder of that name)" in done.err
    assert not (command.folder / "s3").exists()


def test_a_binary_log_is_not_taken_for_lines(command: InProcess) -> None:
    command.append(1)
    for verb in (
        ["replicate", "--once", "--format", "lines", "log", "replica"],
        ["cat", "--format", "lines", "log"],
    ):
        done = command(*verb)
        assert (done.code, done.out) == (ExitCode.FAILURE, "")
        assert "not a log segment of format lines: it is a log segment of litelog; use --format litelog" in done.err
    assert not (command.folder / "replica").exists()


def test_a_folder_of_another_format_is_recognised_and_named(command: InProcess) -> None:
    unpack("netlog", "plain", command.folder)
    done = command("cat", "plain")
    assert (done.code, done.out) == (ExitCode.FAILURE, "")
    name = "00000000000000000000.data"
    message = f"holds no log segment of format litelog; {name} is a log segment of NetLog: use --format netlog\n"
    assert done.err.endswith(message)
    assert command("cat", "--json", "--format", "netlog", "plain").code == ExitCode.DONE


@pytest.mark.parametrize("other", ["litelog", "kafka", "spacetimedb", "influxdb", "redis-aof"])
def test_a_wrong_format_ships_nothing_and_names_the_right_one(command: InProcess, other: str) -> None:
    unpack("netlog", "plain", command.folder)
    done = command("replicate", "--once", "--format", other, "plain", "replica")
    assert done.code == ExitCode.FAILURE
    assert "is a log segment of NetLog: use --format netlog" in done.err
    assert not (command.folder / "replica").exists()


def test_a_folder_that_is_not_a_log_is_not_read_as_an_empty_one(command: InProcess) -> None:
    (command.folder / "empty").mkdir()
    (command.folder / "lines").mkdir()
    (command.folder / "lines" / "app-1.log").write_text("a line\n")
    for verb in ("cat", "segments"):
        done = command(verb, "empty")
        assert (done.code, done.out) == (ExitCode.FAILURE, "")
        assert "empty: holds no log segment of format litelog\n" in done.err
        done = command(verb, "lines")
        assert done.code == ExitCode.FAILURE
        assert "(but app-1.log; are they of another --format?)" in done.err
    assert command("cat", "--format", "lines", "lines").code == ExitCode.DONE


def test_bounds_without_records_are_reported(command: InProcess) -> None:
    command.replica(1)
    for place in ("log", "replica"):
        done = command("cat", "--from", "200000", place)
        assert (done.code, done.out) == (ExitCode.DONE, "")
        assert f"{place}: no such record: the last one has the sequence 99" in done.err
        done = command("cat", "--from", "10", "--to", "5", place)
        assert (done.code, "--from 10 is not before --to 5" in done.err) == (ExitCode.USAGE, True)


@pytest.mark.slow
def test_append_to_a_full_disk_reports_the_acknowledged_records(
    command: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    from litelog.errors import PoisonedError
    from litelog.log.writer import LogWriter

    def fail(*_: object, **__: object) -> None:
        raise PoisonedError("a write or sync failed")

    command.append(2)
    monkeypatch.setattr(LogWriter, "append", fail)
    read, write = os.pipe()
    os.write(write, b"a line\n")
    os.close(write)
    with io.open(read) as opened:  # noqa: UP020
        monkeypatch.setattr(sys, "stdin", opened)
        done = command("append", "log")
    assert done.code == ExitCode.FAILURE
    assert "a write or sync failed; records below sequence 200 were acknowledged" in done.err
