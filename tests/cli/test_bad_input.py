"""Bad input gets a clear message and its exit code. Nothing is lost or overwritten."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ExitCode

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def damage_second_commit(log: Path) -> int:
    """Flip a bit in the body of a log's second commit; return the offset of that commit."""
    (segment,) = log.glob("*.log")
    data = bytearray(segment.read_bytes())
    start = 64 + 26 + int.from_bytes(data[64 + 18 : 64 + 22], "little")
    data[start + 60] ^= 1
    segment.write_bytes(data)
    return start


def test_a_missing_log_folder_is_named(litelog: Command) -> None:
    done = litelog("replicate", "--once", "nowhere", "replica")
    assert done.code == ExitCode.FAILURE
    assert f"{litelog.folder}/nowhere: no such folder" in done.err
    assert not (litelog.folder / "replica").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("append", ""),
        ("replicate", "--once", "", "../other"),
        ("restore", "../replica", "-o", ""),
        ("restore", "../replica", "-o", "", "--delta"),
        ("cat", ""),
        ("segments", ""),
        ("generations", ""),
        ("status", ""),
        ("sync", ""),
        ("verify", "../replica", "--against", ""),
        ("forget", "../log", ""),
        ("prune", "", "--max-age", "1h", "--confirm"),
        ("copy", "replica", ""),
    ],
)
def test_an_empty_name_is_not_the_working_folder(litelog: Command, arguments: tuple[str, ...]) -> None:
    """A shell passes an empty name for a variable that is not set."""
    litelog.lines(3)
    assert litelog("replicate", "--once", "log", "replica").code == ExitCode.DONE
    litelog.folder = litelog.folder / "here"
    litelog.folder.mkdir()
    done = litelog(*arguments, text="a line\n")
    assert (done.code, done.out) == (ExitCode.USAGE, "")
    assert "may not be empty" in done.err
    assert not list(litelog.folder.iterdir())


@pytest.mark.parametrize("place", ["log", "log/replica", "link/replica"])
def test_a_replica_inside_its_own_log_is_refused(litelog: Command, place: str) -> None:
    litelog.lines(10)
    (litelog.folder / "link").symlink_to("log")
    before = files(litelog.folder / "log")
    done = litelog("replicate", "--once", "log", place)
    assert done.code == ExitCode.USAGE
    assert "is in the folder of its own log" in done.err
    assert files(litelog.folder / "log") == before


def test_a_folder_of_another_format_is_reported_with_a_file_it_holds(litelog: Command) -> None:
    (litelog.folder / "log").mkdir()
    (litelog.folder / "log" / "app.txt").write_text("a line\n")
    done = litelog("replicate", "--once", "log", "replica")
    assert done.code == ExitCode.FAILURE
    assert "holds no log segment of format litelog (but app.txt; are they of another --format?)" in done.err


def test_a_file_with_the_right_name_and_the_wrong_bytes_is_named(litelog: Command) -> None:
    (litelog.folder / "log").mkdir()
    (litelog.folder / "log" / f"{0:020}.log").write_bytes(b"not a log segment of ours" * 10)
    done = litelog("replicate", "--once", "log", "replica")
    assert done.code in (ExitCode.FAILURE, ExitCode.CORRUPTION)
    assert f"{0:020}.log: not a log segment of format litelog" in done.err


def test_foreign_files_are_skipped_and_reported_once(litelog: Command) -> None:
    litelog.lines(10)
    (litelog.folder / "log" / "notes.txt").write_text("mine")
    done = litelog("replicate", "--once", "log", "replica")
    assert done.code == ExitCode.DONE
    assert done.err.count("notes.txt") == 1
    assert litelog("restore", "replica", "-o", "again").code == ExitCode.DONE
    assert "notes.txt" not in files(litelog.folder / "again")


def test_a_corrupt_commit_freezes_its_log_by_name_and_others_continue(litelog: Command) -> None:
    for _ in range(3):
        litelog.lines(10, "bad")
    litelog.lines(10, "good")
    start = damage_second_commit(litelog.folder / "bad")
    (litelog.folder / "litelog.yml").write_text(
        "logs:\n  - {path: bad, replicas: [{url: bad-replica}]}\n  - {path: good, replicas: [{url: good-replica}]}\n"
    )
    before = files(litelog.folder / "bad")
    done = litelog("replicate", "--once", "--config", "litelog.yml")
    assert done.code == ExitCode.CORRUPTION
    assert f"bad/{0:020}.log: corrupt commit at offset {start}: " in done.err
    assert "expected" in done.err
    assert files(litelog.folder / "bad") == before
    assert litelog("cat", "good-replica").out.count("\n") == 10
    assert litelog("cat", "bad-replica").out.count("\n") == 10  # the records before the damage


def test_a_replica_of_another_log_is_refused_and_left_alone(litelog: Command) -> None:
    litelog.lines(10, "one")
    litelog.lines(10, "two")
    assert litelog("replicate", "--once", "one", "replica").code == ExitCode.DONE
    before = files(litelog.folder / "replica")
    for options in ([], ["--takeover"]):
        done = litelog("replicate", "--once", *options, "two", "replica")
        assert done.code == ExitCode.FAILURE
        assert "holds log" in done.err
        assert "its own replica URL" in done.err
    assert files(litelog.folder / "replica") == before


def test_rotation_by_renaming_is_refused_with_the_setting_to_change(litelog: Command) -> None:
    (litelog.folder / "log").mkdir()
    for name in ("app.log", "app.log.1"):
        (litelog.folder / "log" / name).write_text("a line\n")
    done = litelog("replicate", "--once", "--format", "lines", "log", "replica")
    assert done.code == ExitCode.USAGE
    assert "dateext" in done.err


def test_a_full_disk_is_reported_and_nothing_partial_is_left(litelog: Command) -> None:
    litelog.lines(50_000)

    def limit_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, 64 << 10))

    command = [sys.executable, "-m", "litelog_cli", "replicate", "--once", "log", "replica"]
    done = subprocess.run(
        command,
        cwd=litelog.folder,
        env=litelog.environment,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit_files,
    )
    assert done.returncode == ExitCode.FAILURE
    assert "put generations/" in done.stderr
    assert "File too large" in done.stderr
    assert [name for name in files(litelog.folder / "replica") if "/wal/" in name or ".tmp" in name] == []
    assert litelog("replicate", "--once", "log", "replica").code == ExitCode.DONE
    assert litelog("cat", "replica").out.count("\n") == 50_000


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_an_unreadable_folder_is_named(litelog: Command) -> None:
    litelog.lines(1)
    (litelog.folder / "log").chmod(0)
    done = litelog("replicate", "--once", "log", "replica")
    assert done.code == ExitCode.FAILURE
    assert "Permission denied" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("status",),
        ("status", "log"),
        ("forget", "log", "replica"),
        ("prune", "replica", "--max-age", "1h", "--confirm"),
        ("verify", "replica", "--against", "log"),
    ],
)
def test_state_that_cannot_be_looked_at_is_not_taken_for_none(litelog: Command, arguments: tuple[str, ...]) -> None:
    """For example, it belongs to another user's daemon. Root may read everything, so the test uses a file instead."""
    litelog.lines(1)
    assert litelog("replicate", "--once", "log", "replica").code == ExitCode.DONE
    (litelog.folder / "state-file").touch()
    done = litelog(*arguments, "--state-dir", "state-file")
    assert (done.code, "cannot be read (Not a directory)" in done.err) == (ExitCode.FAILURE, True)


def test_an_output_below_a_file_does_not_count_as_existing(litelog: Command) -> None:
    litelog.lines(10)
    assert litelog("replicate", "--once", "log", "replica").code == ExitCode.DONE
    (litelog.folder / "file").write_text("mine")
    for option in ([], ["--if-not-exists"]):
        done = litelog("restore", "replica", "-o", "file/log", *option)
        assert done.code == ExitCode.FAILURE
        assert "exists already" not in done.err


def test_a_replica_in_use_is_reported_once(litelog: Command) -> None:
    litelog.lines(10)
    inner = f"{sys.executable} -m litelog_cli replicate --once --state-dir state log replica"
    done = litelog("replicate", "--state-dir", "state", "--exec", f"sh -c 'sleep 1; {inner}'", "log", "replica")
    assert done.code == ExitCode.FENCED
    assert done.err.count("is in use by another process") == 1
