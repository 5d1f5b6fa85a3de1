"""``litelog verify`` of a log's own files: what it prints, its exit codes, and what it takes for a replica."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ExitCode
from tests.builders.recorded_logs import unpack

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Command


@pytest.fixture
def log(litelog: Command) -> Path:
    for _ in range(3):
        litelog.lines(100)
    (segment,) = (litelog.folder / "log").glob("*.log")
    return segment


def damage(segment: Path, place: int) -> None:
    data = bytearray(segment.read_bytes())
    data[place] ^= 1
    segment.write_bytes(data)


def test_an_intact_log_is_well(litelog: Command, log: Path) -> None:
    before = log.read_bytes()
    done = litelog("verify", "log")
    assert (done.code, done.out.splitlines()[-1]) == (ExitCode.DONE, "all is well"), done.err
    assert "read 1 log segment" in done.out
    (report,) = litelog("verify", "log", "--json").lines
    assert (report["format"], report["first"], report["next"], report["records"]) == ("litelog", 0, 300, 300)
    assert (report["log_bytes"], report["anomalies"], log.read_bytes()) == (len(before), [], before)


def test_each_anomaly_has_its_place_and_ends_with_6(litelog: Command, log: Path) -> None:
    damage(log, 200)
    done = litelog("verify", "log")
    assert (done.code, done.out.splitlines()[-1]) == (ExitCode.CORRUPTION, "1 anomaly")
    (row,) = (line for line in done.out.splitlines() if line.startswith("checksum"))
    assert log.name in row
    failed = litelog("verify", "log", "--json")
    (anomaly,) = failed.lines[0]["anomalies"]
    assert failed.code == ExitCode.CORRUPTION
    assert (anomaly["kind"], anomaly["file"], anomaly["offset"], anomaly["sequence"]) == ("checksum", log.name, 64, 0)
    assert anomaly["offset"] < 200 < anomaly["end"] < log.stat().st_size
    assert anomaly["expected"] != anomaly["actual"]


def test_a_foreign_file_counts_only_if_asked(litelog: Command, log: Path) -> None:
    (log.parent / "notes.txt").write_text("mine")
    done = litelog("verify", "log")
    assert (done.code, done.out.splitlines()[-1]) == (ExitCode.DONE, "all is well (harmless anomalies: 1)")
    assert litelog("verify", "log", "--strict").code == ExitCode.CORRUPTION


def test_a_log_of_another_program_is_recognised(litelog: Command) -> None:
    partition = unpack("kafka", "plain_none", litelog.folder)
    (report,) = litelog("verify", str(partition), "--json").lines
    assert (report["format"], report["harmful_count"]) == ("kafka", 0)
    assert report["commits"] > 1


@pytest.fixture
def configured(litelog: Command, log: Path) -> Command:
    """The command, and a configuration that names the log and its replica."""
    assert litelog("replicate", "--once", "log", "backup").code == 0
    (litelog.folder / "litelog.yml").write_text("logs:\n  - path: log\n    replicas:\n      - url: backup\n")
    litelog.environment["LITELOG_CONFIG"] = str(litelog.folder / "litelog.yml")
    assert log.is_file()
    return litelog


def test_a_configured_log_is_checked_with_its_replica(configured: Command, log: Path) -> None:
    done = configured("verify", "log")
    assert (done.code, done.out.splitlines()[-1], done.out.count("all is well")) == (ExitCode.DONE, "all is well", 2)
    damage(log, 200)
    for options in ([], ["--config", "litelog.yml"]):
        (report,) = configured("verify", "log", *options, "--json").lines
        assert (report["harmful_count"], report["generations"][0]["next"]) == (0, 300)
        assert [each["kind"] for each in report["local"]["anomalies"]] == ["checksum"]
    done = configured("verify", "log")
    assert (done.code, done.out.splitlines()[-1]) == (ExitCode.CORRUPTION, "the log's own files: 1 anomaly")


def test_a_url_leaves_the_log_out_and_local_the_replica(configured: Command, log: Path) -> None:
    damage(log, 200)
    for arguments in (["backup"], ["log", "--sample", "50%"], ["log", "--restore-drill"]):
        (report,) = configured("verify", *arguments, "--json").lines
        assert (report["harmful_count"], report["local"]) == (0, None), arguments
    for option in (["--local"], ["--format", "litelog"]):
        done = configured("verify", "log", *option, "--json")
        assert (done.code, done.lines[0]["harmful_count"]) == (ExitCode.CORRUPTION, 1), option
        assert "generations" not in done.lines[0]


def test_a_damaged_log_is_named_even_if_its_replica_is_gone(configured: Command, log: Path) -> None:
    shutil.rmtree(configured.folder / "backup")
    assert configured("verify", "log").code == ExitCode.NOTHING_TO_RESTORE
    damage(log, 200)
    done = configured("verify", "log", "--json")
    (report,) = done.lines
    assert (done.code, report["local"]["harmful_count"]) == (ExitCode.CORRUPTION, 1)
    assert (report["error"]["kind"], "no such folder" in done.err) == ("no-replica", True)


def test_the_pattern_is_not_ignored(litelog: Command, log: Path) -> None:
    done = litelog("verify", "log", "--pattern", "*.log")
    assert done.code == ExitCode.USAGE
    assert "format litelog knows its file names and takes no pattern" in done.err
    (litelog.folder / "app").mkdir()
    (litelog.folder / "app" / "app.log").write_text("one\n")
    done = litelog("verify", "app", "--pattern", "*.log")
    assert (done.code, "--pattern needs --format" in done.err) == (ExitCode.USAGE, True)
    assert litelog("verify", "app", "--pattern", "*.log", "--format", "lines").code == ExitCode.DONE
    assert log.is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("log", "--against", "log"), "--against is not for a log's own files"),
        (("log", "--restore-drill"), "--restore-drill is not for a log's own files"),
        (("backup", "--format", "litelog"), "backup is a replica, which knows its format"),
        (("nothing", "--format", "litelog"), "nothing is not a folder"),
        (("backup", "--local"), "--local is for the files of a log: backup is a replica"),
        (("log", "--format", "nonsense"), "no log format 'nonsense'"),
    ],
)
def test_usage_ends_with_2(litelog: Command, log: Path, arguments: tuple[str, ...], words: str) -> None:
    assert litelog("replicate", "--once", str(log.parent), "backup").code == 0
    done = litelog("verify", *arguments)
    assert done.code == ExitCode.USAGE
    assert words in done.err
