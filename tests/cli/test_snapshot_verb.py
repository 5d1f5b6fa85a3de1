"""``litelog snapshot`` asks a running daemon for a snapshot. Without a daemon it writes the snapshot itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ExitCode
from litelog.log.writer import LogWriter
from litelog.reading.contents import find_snapshot
from litelog.reading.latest import find_latest
from litelog.stores.object_store import ObjectReplicaClient
from replica_clients.file import FileStore

if TYPE_CHECKING:
    from conftest import Command, Outcome

    from tests.warm import Running

LITELOG = str(Path(sys.executable).parent / "litelog")
"""The script that the installation makes."""

PLACES = ("log", "replica", "--state-dir", "state")


def append(litelog: Command, first: int, stop: int) -> None:
    with LogWriter(str(litelog.folder / "log"), segment_bytes=4000) as writer:
        for number in range(first, stop):
            writer.append(b"%d:" % number + bytes(300))


def snapshot(litelog: Command, *arguments: str) -> Outcome:
    return litelog("snapshot", *PLACES, *arguments)


def start(litelog: Command, *arguments: str) -> Running:
    return litelog.start("replicate", *PLACES, "--json", *arguments)


def newest_key(place: Path) -> str:
    client = ObjectReplicaClient(FileStore(str(place / "replica")))
    found = find_snapshot(client, find_latest(client))
    assert found is not None
    return found.key


def finished(place: Path) -> int:
    return len(list((place / "log").glob("*.log"))) - 1


def test_without_a_daemon_it_ships_and_writes_the_snapshot_itself(litelog: Command) -> None:
    append(litelog, 0, 60)
    for _ in range(2):  # the second one finds nothing new
        done = snapshot(litelog, "--json")
        assert done.code == ExitCode.DONE, done.err
        (told,) = done.lines
        assert told["snapshot"] == newest_key(litelog.folder)
        assert int(told["snapshot"].split("/")[-1][:16], 16) == finished(litelog.folder)


def test_a_daemon_is_asked_and_answers(litelog: Command) -> None:
    append(litelog, 0, 30)
    daemon = start(litelog, "--sync-interval", "10ms")
    assert daemon.stdout is not None
    for wanted in (30, 90):
        if wanted > 30:
            append(litelog, 30, wanted)
        for line in daemon.stdout:
            if json.loads(line).get("next") == wanted:
                break
    done = snapshot(litelog, "--json")
    assert done.code == ExitCode.DONE, done.err
    (told,) = done.lines
    assert told["snapshot"] == newest_key(litelog.folder)
    assert int(told["snapshot"].split("/")[-1][:16], 16) == finished(litelog.folder)
    assert os.listdir(litelog.folder / "state" / "requests") == []
    daemon.send_signal(signal.SIGTERM)
    rest = [json.loads(line) for line in daemon.stdout]
    assert daemon.wait() == ExitCode.DONE
    assert {event["event"] for event in rest} >= {"snapshot", "status"}
    assert rest[-1]["snapshot"] == told["snapshot"]
    assert rest[-1]["unsealed_segments"] == 0


def test_a_daemon_that_does_not_answer_is_reported_and_the_request_withdrawn(litelog: Command) -> None:
    append(litelog, 0, 30)
    daemon = start(litelog)
    assert daemon.stdout is not None
    for line in daemon.stdout:
        if json.loads(line)["event"] == "shipped":
            break
    daemon.send_signal(signal.SIGSTOP)
    done = snapshot(litelog, "--timeout", "300ms")
    assert done.code == ExitCode.FAILURE
    assert "did not answer within 0.3 s" in done.err
    assert os.listdir(litelog.folder / "state" / "requests") == []
    daemon.send_signal(signal.SIGCONT)
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait() == ExitCode.DONE


@pytest.mark.parametrize("arguments", [["/nowhere"], ["--timeout", "soon", "/log", "/replica"]])
def test_usage(litelog: Command, arguments: list[str]) -> None:
    assert litelog("snapshot", *arguments).code == ExitCode.USAGE


def test_the_installed_script_runs_the_command(tmp_path: Path) -> None:
    done = subprocess.run([LITELOG, "snapshot", "--help"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "snapshot" in done.stdout) == (ExitCode.DONE, True)
