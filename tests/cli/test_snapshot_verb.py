"""``litelog snapshot`` asks a running daemon for a snapshot. Without a daemon it writes the snapshot itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from litelog.log.writer import LogWriter
from litelog.reading.contents import find_snapshot
from litelog.reading.latest import find_latest
from litelog.stores.object_store import ObjectReplicaClient
from replica_clients.file import FileStore
from tests.waiting import WAIT_SECONDS

LITELOG = str(Path(sys.executable).parent / "litelog")


def append(log: Path, first: int, stop: int) -> None:
    with LogWriter(str(log), segment_bytes=4000) as writer:
        for number in range(first, stop):
            writer.append(b"%d:" % number + bytes(300))


def run(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [LITELOG, "snapshot", str(place / "log"), str(place / "replica"), "--state-dir", str(place / "state")]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, timeout=WAIT_SECONDS)


def newest_key(place: Path) -> str:
    client = ObjectReplicaClient(FileStore(str(place / "replica")))
    found = find_snapshot(client, find_latest(client))
    assert found is not None
    return found.key


def finished(place: Path) -> int:
    return len(list((place / "log").glob("*.log"))) - 1


def test_without_a_daemon_it_ships_and_writes_the_snapshot_itself(tmp_path: Path) -> None:
    append(tmp_path / "log", 0, 60)
    for _ in range(2):  # the second one finds nothing new
        done = run(tmp_path, "--json")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert told["snapshot"] == newest_key(tmp_path)
        assert int(told["snapshot"].split("/")[-1][:16], 16) == finished(tmp_path)


def test_a_daemon_is_asked_and_answers(tmp_path: Path) -> None:
    append(tmp_path / "log", 0, 30)
    command = [LITELOG, "replicate", str(tmp_path / "log"), str(tmp_path / "replica"), "--json"]
    command += ["--state-dir", str(tmp_path / "state"), "--sync-interval", "10ms"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as daemon:
        assert daemon.stdout is not None
        try:
            for wanted in (30, 90):
                if wanted > 30:
                    append(tmp_path / "log", 30, wanted)
                for line in daemon.stdout:
                    if json.loads(line).get("next") == wanted:
                        break
            done = run(tmp_path, "--json")
            assert done.returncode == 0, done.stderr
            told = json.loads(done.stdout)
            assert told["snapshot"] == newest_key(tmp_path)
            assert int(told["snapshot"].split("/")[-1][:16], 16) == finished(tmp_path)
            assert os.listdir(tmp_path / "state" / "requests") == []
        finally:
            daemon.send_signal(signal.SIGTERM)
            rest = [json.loads(line) for line in daemon.stdout]
    assert daemon.returncode == 0
    assert {event["event"] for event in rest} >= {"snapshot", "status"}
    assert rest[-1]["snapshot"] == told["snapshot"]
    assert rest[-1]["unsealed_segments"] == 0


def test_a_daemon_that_does_not_answer_is_reported_and_the_request_withdrawn(tmp_path: Path) -> None:
    append(tmp_path / "log", 0, 30)
    command = [LITELOG, "replicate", str(tmp_path / "log"), str(tmp_path / "replica"), "--json"]
    command += ["--state-dir", str(tmp_path / "state")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as daemon:
        assert daemon.stdout is not None
        try:
            for line in daemon.stdout:
                if json.loads(line)["event"] == "shipped":
                    break
            daemon.send_signal(signal.SIGSTOP)
            done = run(tmp_path, "--timeout", "300ms")
            assert done.returncode == 1
            assert "did not answer within 0.3 s" in done.stderr
            assert os.listdir(tmp_path / "state" / "requests") == []
        finally:
            daemon.send_signal(signal.SIGCONT)
            daemon.send_signal(signal.SIGTERM)
            daemon.stdout.read()
    assert daemon.returncode == 0


@pytest.mark.parametrize("arguments", [["/nowhere"], ["--timeout", "soon", "/log", "/replica"]])
def test_usage(arguments: list[str]) -> None:
    done = subprocess.run([LITELOG, "snapshot", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
