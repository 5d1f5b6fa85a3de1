"""The output and the exit codes of ``litelog verify``."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ExitCode
from litelog.objects.layout import parse_snapshot, parse_wal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Command


@pytest.fixture
def replica(litelog: Command) -> Path:
    """A replica of two runs, with its log and its owner's state."""
    for _ in range(2):
        litelog.lines(300)
        assert litelog("replicate", "--once", "log", "backup").code == 0
    return litelog.folder / "backup"


def objects(replica: Path) -> list[str]:
    return sorted(str(path.relative_to(replica)) for path in replica.rglob("*") if path.is_file())


def wal_of(replica: Path) -> list[Path]:
    return [replica / key for key in objects(replica) if parse_wal(key) is not None]


def test_a_good_replica(litelog: Command, replica: Path) -> None:
    before = {key: (replica / key).read_bytes() for key in objects(replica)}
    done = litelog("verify", "backup")
    assert done.code == ExitCode.DONE, done.err
    assert done.out.splitlines()[-1] == "all is well"
    assert {key: (replica / key).read_bytes() for key in objects(replica)} == before
    (report,) = litelog("verify", "backup", "--json").lines
    assert (report["harmful_count"], report["anomalies"], report["unreadable_count"], report["drill"]) == (
        0,
        [],
        0,
        None,
    )
    assert report["claims"] + report["snapshots"] + report["sealed_segments"] + report["wal_segments"] == len(before)
    assert report["generations"][0]["next"] == 600


def test_anomalies_are_named_and_end_with_6(litelog: Command, replica: Path) -> None:
    wal = wal_of(replica)
    (damaged,), key = wal[:1], str(wal[0].relative_to(replica))
    body = bytearray(damaged.read_bytes())
    body[-5] ^= 1
    os.chmod(damaged, 0o644)
    damaged.write_bytes(body)
    done = litelog("verify", "backup")
    assert done.code == ExitCode.CORRUPTION
    assert f"checksum  {key}" in " ".join(done.out.split("\n"))
    assert done.out.splitlines()[-1] == "1 anomaly"
    done = litelog("verify", "backup", "--json")
    assert done.code == ExitCode.CORRUPTION
    assert [(it["kind"], it["object"]) for it in done.lines[0]["anomalies"]] == [("checksum", key)]


def test_the_newest_object_is_missed_by_its_owners_state(litelog: Command, replica: Path) -> None:
    newest = wal_of(replica)[-1]
    newest.unlink()
    assert litelog("verify", "backup").code == ExitCode.DONE
    done = litelog("verify", "backup", "--against", "log", "--json")
    assert done.code == ExitCode.CORRUPTION
    assert [(it["kind"], it["object"]) for it in done.lines[0]["anomalies"]] == [
        ("missing", str(newest.relative_to(replica)))
    ]
    assert litelog("verify", "backup", "--against", "log", "--state-dir", "elsewhere").code == ExitCode.DONE


def test_nothing_there_ends_with_3(litelog: Command) -> None:
    (litelog.folder / "empty").mkdir()
    for place in ("nothing", "empty"):
        done = litelog("verify", place)
        assert (done.code, done.out) == (ExitCode.NOTHING_TO_RESTORE, "")


def test_a_store_that_fails_ends_with_1(litelog: Command) -> None:
    done = litelog("verify", "s3://bucket/prefix?endpoint=http://127.0.0.1:9&region=us-east-1&attempts=1")
    assert done.code in (ExitCode.FAILURE, ExitCode.USAGE)
    assert done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--sample", "101%"),
        ("--sample", "many"),
        ("--state-dir", "x"),
        ("--temp-dir", "x"),
        ("--against", "nothing"),
        ("--restore-drill", "--temp-dir", "nothing"),
        ("--parallelism", "0"),
    ],
)
def test_usage_ends_with_2(litelog: Command, replica: Path, arguments: tuple[str, ...]) -> None:
    assert litelog("verify", "backup", *arguments).code == ExitCode.USAGE


def test_the_local_log_is_compared(litelog: Command, replica: Path) -> None:
    segment = next((litelog.folder / "log").glob("*.log"))
    original = segment.read_bytes()
    done = litelog("verify", "backup", "--against", "log")
    assert done.code == ExitCode.DONE
    assert "0 B there are not in the replica yet" in done.out
    litelog.lines(10)
    (report,) = litelog("verify", "backup", "--against", "log", "--json").lines
    assert report["against"]["lag_bytes"] == len(segment.read_bytes()) - len(original) > 0
    segment.write_bytes(original[:1000] + bytes([original[1000] ^ 1]) + original[1001:])
    done = litelog("verify", "backup", "--against", "log", "--json")
    assert done.code == ExitCode.CORRUPTION
    assert [it["kind"] for it in done.lines[0]["anomalies"]] == ["differs"]


def test_a_sample_says_its_seed(litelog: Command, replica: Path) -> None:
    done = litelog("verify", "backup", "--sample", "50%")
    assert done.code == ExitCode.DONE
    (line,) = [line for line in done.out.splitlines() if "--seed" in line]
    seed = line.rpartition("--seed ")[2]
    one, two = (litelog("verify", "backup", "--sample", "50", "--seed", seed, "--json").lines[0] for _ in range(2))
    assert one["log_bytes"] == two["log_bytes"]
    assert (one["share"], one["seed"]) == (0.5, int(seed))


def test_a_restore_drill_restores_compares_and_leaves_nothing(litelog: Command, replica: Path) -> None:
    scratch = litelog.folder / "scratch"
    scratch.mkdir()
    for extra in ((), ("--against", "log")):
        (report,) = litelog("verify", "backup", "--restore-drill", "--temp-dir", str(scratch), "--json", *extra).lines
        drill = report["drill"]
        assert (drill["records"], drill["failure"], drill["corrupt"]) == (600, None, False)
        assert drill["compared_bytes"] == (drill["log_bytes"] if extra else None)
        assert drill["log_bytes"] > 0 < drill["seconds"]
        assert list(scratch.iterdir()) == []
    assert "600 records" in litelog("verify", "backup", "--restore-drill").out


def test_a_restore_drill_reports_the_bytes_that_are_restored(litelog: Command, replica: Path) -> None:
    from litelog.formats.registry import open_stored_format
    from litelog.stores.object_store import ObjectReplicaClient
    from litelog_cli.drill import run_drill
    from replica_clients.file import FileStore

    told: list[tuple[int, int | None]] = []
    client = ObjectReplicaClient(FileStore(str(replica)))
    done = run_drill(client, None, None, open_stored_format, 2, lambda *said: told.append(said))
    assert told[-1] == (done.bytes, done.bytes)
    assert told == sorted(told)


def test_a_restore_drill_that_fails_ends_with_6(litelog: Command, replica: Path) -> None:
    wal_of(replica)[0].unlink()
    done = litelog("verify", "backup", "--restore-drill", "--json")
    assert done.code == ExitCode.CORRUPTION
    assert done.lines[0]["drill"]["corrupt"]
    assert done.lines[0]["drill"]["failure"]


def test_foreign_names_are_reported_and_count_only_if_asked(litelog: Command, replica: Path) -> None:
    (replica / "README").write_text("hello")
    done = litelog("verify", "backup")
    assert done.code == ExitCode.DONE
    assert "README" in done.out
    assert litelog("verify", "backup", "--strict").code == ExitCode.CORRUPTION


def test_a_newer_snapshot_is_not_judged_and_ends_with_1(litelog: Command, replica: Path) -> None:
    from litelog.codec.lz4_frames import compress_frames

    (key,) = [key for key in objects(replica) if parse_snapshot(key) is not None][-1:]
    os.chmod(replica / key, 0o644)
    newer = json.dumps({"version": 99}).encode()
    (replica / key).with_name(f"{7:016x}.snapshot.lz4").write_bytes(b"".join(compress_frames(newer)))
    done = litelog("verify", "backup", "--json")
    assert done.code == ExitCode.FAILURE, done.out
    assert [it["kind"] for it in done.lines[0]["anomalies"]] == ["version"]
