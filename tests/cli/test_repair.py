"""``litelog repair``: plans, what it does to logs of each format, its exit codes, and a daemon that runs meanwhile."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

import litelog as library
from litelog.errors import ExitCode
from litelog.formats.registry import open_format
from tests.builders.recorded_logs import unpack
from tests.builders.redis_log import make_redis_log
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Command


@pytest.fixture
def log(litelog: Command) -> Path:
    """The log segment of a log with a replica."""
    for _ in range(3):
        litelog.lines(100)
    assert litelog("replicate", "--once", "log", "backup").code == 0
    (segment,) = (litelog.folder / "log").glob("*.log")
    return segment


def damage(segment: Path, place: int) -> bytes:
    """Flip a bit. Returns the bytes from before."""
    before = segment.read_bytes()
    changed = bytearray(before)
    changed[place] ^= 1
    segment.write_bytes(changed)
    return before


def test_a_plan_is_printed_and_confirm_carries_it_out(litelog: Command, log: Path) -> None:
    before = damage(log, 200)
    damaged = log.read_bytes()
    planned = litelog("repair", "log", "backup")
    assert planned.code == ExitCode.DONE, planned.err
    (row,) = (line for line in planned.out.splitlines() if line.startswith("checksum"))
    assert f"{log.name}" in row
    assert "replace" in row
    assert "from file:///" in row
    assert planned.out.splitlines()[-1].startswith("with --confirm, writes 1 log segment")
    assert log.read_bytes() == damaged
    done = litelog("repair", "log", "backup", "--confirm")
    assert (done.code, log.read_bytes()) == (ExitCode.DONE, before), done.out + done.err
    assert done.out.splitlines()[-1].endswith("no anomaly left")
    (backup,) = (log.parent / ".damaged").glob(f"*/{log.name}")
    assert backup.read_bytes() == damaged
    assert str(backup.parent) in done.out
    assert litelog("repair", "log", "backup", "--confirm").out.endswith("log: nothing to repair\n")


@pytest.mark.parametrize("start", [20, 200, -20])
@pytest.mark.parametrize("length", [-13, 13])
def test_a_log_segment_with_cut_or_inserted_bytes_is_what_it_was(
    litelog: Command, log: Path, start: int, length: int
) -> None:
    before = log.read_bytes()
    at = start % len(before)
    log.write_bytes(before[:at] + b"z" * max(length, 0) + before[at + max(-length, 0) :])
    planned = litelog("repair", "log", "backup")
    assert planned.code == ExitCode.DONE, planned.out
    assert ("at other places of the file, all of them in the replica" in planned.out) == (start > 0)
    assert litelog("repair", "log", "backup", "--confirm").code == ExitCode.DONE
    assert log.read_bytes() == before


def test_commits_that_no_replica_has_are_not_replaced(litelog: Command, log: Path) -> None:
    litelog.lines(7)
    whole = log.read_bytes()
    log.write_bytes(whole[:200] + whole[216:])
    damaged = log.read_bytes()
    done = litelog("repair", "log", "backup", "--confirm")
    assert (done.code, log.read_bytes()) == (ExitCode.CORRUPTION, damaged), done.out
    assert "the replica lacks 1 good commit of the 3 there" in done.out


def test_what_stays_ends_with_6(litelog: Command, log: Path) -> None:
    damage(log, 200)
    for confirm in ([], ["--confirm"]):
        done = litelog("repair", "log", *confirm)
        assert done.code == ExitCode.CORRUPTION
        assert "no replica was given that could hold it" in done.out
        assert done.out.splitlines()[-1] == "nothing can be repaired; 1 anomaly left"


def test_programs_get_an_object(litelog: Command, log: Path) -> None:
    before = damage(log, 200)
    (planned,) = litelog("repair", "log", "backup", "--json").lines
    (place,) = planned["places"]
    assert (place["kind"], place["file"], place["offset"], place["method"]) == ("checksum", log.name, 64, "replace")
    assert (planned["carried_out"], planned["harmful_count"], planned["left_count"]) == (False, 1, 0)
    assert planned["files"] == [{"file": log.name, "log_bytes": len(before)}]
    (done,) = litelog("repair", "log", "backup", "--json", "--confirm").lines
    assert (done["carried_out"], done["left_count"], log.read_bytes()) == (True, 0, before)
    assert done["backup"].startswith(str(log.parent / ".damaged"))


def test_the_configured_replicas_are_taken(litelog: Command, log: Path) -> None:
    before = damage(log, 200)
    (litelog.folder / "litelog.yml").write_text("logs:\n  - path: log\n    replicas:\n      - url: backup\n")
    assert litelog("repair", "log", "--config", "litelog.yml", "--no-replica").code == ExitCode.CORRUPTION
    assert litelog("repair", "log", "--config", "litelog.yml", "--confirm").code == ExitCode.DONE
    assert log.read_bytes() == before


def test_python_does_the_same(litelog: Command, log: Path) -> None:
    before = damage(log, 200)
    replica = str(litelog.folder / "backup")
    assert library.repair_log(log.parent, replica).left == 0
    assert library.repair_log(log.parent).left == 1
    result = library.repair_log(log.parent, [replica], confirm=True)
    assert (result.left, result.carried_out, log.read_bytes()) == (0, True, before)


FOREIGN = {
    "kafka": ("plain_none", "*.log", ["--watermark", "none"]),
    "netlog": ("sets", "*.data", []),
    "influxdb": ("table", "*", []),
    "spacetimedb": ("epochs", "*.stdb.log", []),
    "redis-aof": ("", "*.incr.aof", []),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_log_of_another_program_is_what_it_was(litelog: Command, name: str) -> None:
    scene, names, options = FOREIGN[name]
    if scene:
        folder = unpack(name, scene, litelog.folder)
    else:
        folder = litelog.folder / "aof"
        make_redis_log(folder).append(3)
    assert litelog("replicate", "--once", "--format", name, *options, str(folder), "backup").code == 0
    segment = max(
        (path for path in folder.glob(names) if open_format(name).segment_order(path.name) is not None),
        key=lambda path: path.stat().st_size,
    )
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    if name == "redis-aof":  # its commands have no checksums, and it may end in half of one
        segment.unlink()
    else:
        damage(segment, segment.stat().st_size // 2)
    assert litelog("verify", "--local", "--format", name, str(folder)).code == ExitCode.CORRUPTION
    done = litelog("repair", "--format", name, str(folder), "backup", "--confirm")
    assert done.code == ExitCode.DONE, done.out + done.err
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


@pytest.mark.parametrize("length", [-5, 5])
@pytest.mark.parametrize("name", ["kafka", "influxdb", "spacetimedb"])
def test_cut_and_inserted_bytes_of_another_program_are_put_right(litelog: Command, name: str, length: int) -> None:
    scene, names, options = FOREIGN[name]
    folder = unpack(name, scene, litelog.folder)
    assert litelog("replicate", "--once", "--format", name, *options, str(folder), "backup").code == 0
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    segment = max(
        (path for path in folder.glob(names) if open_format(name).segment_order(path.name) is not None),
        key=lambda path: path.stat().st_size,
    )
    data = before[segment]
    at = len(data) // 3
    segment.write_bytes(data[:at] + b"z" * max(length, 0) + data[at + max(-length, 0) :])
    done = litelog("repair", "--format", name, str(folder), "backup", "--confirm")
    assert done.code == ExitCode.DONE, done.out + done.err
    assert "at other places of the file, all of them in the replica" in done.out
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_swapped_log_segments_of_another_program_are_what_they_were(litelog: Command) -> None:
    scene, names, _ = FOREIGN["spacetimedb"]
    folder = unpack("spacetimedb", scene, litelog.folder)
    assert litelog("replicate", "--once", "--format", "spacetimedb", str(folder), "backup").code == 0
    one, *_, other = sorted(folder.glob(names))
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    one.write_bytes(before[other])
    other.write_bytes(before[one])
    done = litelog("repair", "--format", "spacetimedb", str(folder), "backup", "--confirm")
    assert done.code == ExitCode.DONE, done.out + done.err
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_a_daemon_beside_it_ships_nothing_again(litelog: Command, log: Path) -> None:
    daemon = litelog.start("replicate", "log", "backup", "--addr", "127.0.0.1:0")
    litelog.lines(10)
    wait_until(lambda: litelog("generations", "backup", "--json").lines[0]["next"] == 310)  # it has looked at all files
    before = damage(log, 200)
    assert litelog("repair", "log", "backup", "--confirm").code == ExitCode.DONE
    assert log.read_bytes() == before
    litelog.lines(10)
    os.kill(daemon.pid, signal.SIGTERM)
    assert daemon.wait() == 0
    (generation,) = litelog("generations", "backup", "--json").lines
    assert generation["next"] == 320
    assert litelog("verify", "backup", "--against", "log").code == ExitCode.DONE


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("backup",), "backup: a replica, and not the folder of a log"),
        (("nothing",), "nothing: no such folder"),
        (("log", "--confirm", "--dry-run"), "exclude each other"),
        (("log", "backup", "--no-replica"), "--no-replica takes no REPLICA_URL"),
        (("log", "--pattern", "*.log"), "takes no pattern"),
        (("log", "--format", "nonsense"), "no log format 'nonsense'"),
        (("state",), "its files show no known format: give --format"),
    ],
)
def test_usage_ends_with_2(litelog: Command, log: Path, arguments: tuple[str, ...], words: str) -> None:
    done = litelog("repair", *arguments)
    assert (done.code, log.is_file()) == (ExitCode.USAGE, True)
    assert words in done.err


def test_an_encrypted_replica_supplies_bytes_to_holders_of_its_key(litelog: Command) -> None:
    pytest.importorskip("pyrage")
    litelog.lines(100)
    public = litelog("key", "new", "-o", "identity.txt").out.strip()
    replica = f"      - url: backup\n        encryption:\n          recipients: [{public}]\n"
    (litelog.folder / "litelog.yml").write_text(f"logs:\n  - path: log\n    replicas:\n{replica}")
    assert litelog("replicate", "--once", "--config", "litelog.yml").code == 0
    (segment,) = (litelog.folder / "log").glob("*.log")
    before = damage(segment, 200)
    damaged = segment.read_bytes()
    refused = litelog("repair", "log", "backup", "--confirm")
    assert (refused.code, segment.read_bytes()) == (ExitCode.USAGE, damaged), refused.out + refused.err
    done = litelog("repair", "log", "backup", "--confirm", "--identity", "identity.txt")
    assert (done.code, segment.read_bytes()) == (ExitCode.DONE, before), done.out + done.err


@pytest.mark.parametrize("place", [6, 2000])
def test_a_compressed_log_segment_gets_the_bytes_that_it_holds(litelog: Command, place: int) -> None:
    folder = unpack("spacetimedb", "compressed", litelog.folder)
    assert litelog("replicate", "--once", "--format", "spacetimedb", str(folder), "backup").code == 0
    damage(min(folder.glob("*.stdb.log")), place)
    assert litelog("verify", "--local", "--format", "spacetimedb", str(folder)).code == ExitCode.CORRUPTION
    done = litelog("repair", "--format", "spacetimedb", str(folder), "backup", "--confirm")
    assert done.code == ExitCode.DONE, done.out + done.err
    assert litelog("verify", "backup", "--against", str(folder)).code == ExitCode.DONE


def test_a_log_is_cut_at_damage_if_asked(litelog: Command, log: Path) -> None:
    damage(log, log.stat().st_size // 2)
    (planned,) = litelog("repair", "log", "--cut-at-damage", "--json").lines
    assert ([each["method"] for each in planned["places"]], planned["left_count"]) == (["cut"], 0)
    done = litelog("repair", "log", "--cut-at-damage", "--confirm")
    assert done.code == ExitCode.DONE, done.out
    assert (
        litelog(
            "append",
            "log",
            text="next\n",
        ).code
        == 0
    )
    assert litelog("verify", "log", "--json").lines[0]["next"] == 101
