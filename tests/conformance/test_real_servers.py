"""Real servers: each store conforms, and a daemon loses nothing when a server is killed or paused."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("fsspec")
pytest.importorskip("boto3")

from litelog.errors import ExistsError, StoreError
from litelog.log.writer import LogWriter
from litelog.objects.layout import Fencing
from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.probe import FENCING_STEPS, StepOutcome, run_probe
from litelog.stores.registry import open_store
from litelog.system.clock import SystemClock
from replica_clients.conformance import ObjectStoreConformance, ReplicaClientConformance
from replica_clients.s3 import S3Store
from replica_clients.s3.settings import read_settings
from tests.builders.real_servers import KINDS, RealServer, find_lacking, started
from tests.faults.figures import report
from tests.faults.processes import COMMAND, Spoken, segments, shipped
from tests.waiting import WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from litelog.stores.object_store import ObjectStore
    from tests.warm import Warm

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning"),  # aiohttp's, of gcsfs's bodies
]

PAUSE_SECONDS = 3


LACKING = {kind.name: find_lacking(kind) for kind in KINDS}
HERE = [kind for kind in KINDS if LACKING[kind.name] is None]


@pytest.mark.parametrize("name", LACKING)
def test_the_server_and_its_client_are_installed(name: str) -> None:
    """This test is skipped instead of all tests of a missing server."""
    if reason := LACKING[name]:
        pytest.skip(reason)


@pytest.fixture(scope="module", params=HERE, ids=[kind.name for kind in HERE])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    running = started(request.param, tmp_path_factory.mktemp("server"))
    yield running
    running.end()


def expect_known_failures(request: pytest.FixtureRequest, server: RealServer) -> None:
    """Mark a test that the server is known to fail as an expected failure."""
    if reason := server.kind.known_failures.get(request.node.originalname):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=False))


class TestStore(ObjectStoreConformance):
    @pytest.fixture
    def store(self, server: RealServer, request: pytest.FixtureRequest) -> Iterator[ObjectStore]:
        expect_known_failures(request, server)
        store = open_store(*server.new_place())
        yield store
        store.close()


class TestS3StoreInParts(ObjectStoreConformance):
    @pytest.fixture
    def store(self, server: RealServer, request: pytest.FixtureRequest) -> Iterator[ObjectStore]:
        expect_known_failures(request, server)
        url, options = server.new_place()
        if not url.startswith("s3:"):
            pytest.skip("only S3 has uploads in parts here")
        store = S3Store(read_settings(url, options), single_bytes=100, part_bytes=5 << 20)
        yield store
        store.close()


class TestClient(ReplicaClientConformance):
    @pytest.fixture
    def client(self, server: RealServer, request: pytest.FixtureRequest) -> Iterator[ObjectReplicaClient]:
        expect_known_failures(request, server)
        client = ObjectReplicaClient(open_store(*server.new_place()))
        yield client
        client.close()


def test_the_probe_reports_which_fencing_the_store_supports(server: RealServer) -> None:
    store = open_store(*server.new_place())
    steps = list(run_probe(store, SystemClock(), Random(1)))
    store.close()
    failed = {step.name for step in steps if step.outcome in {StepOutcome.FAILED, StepOutcome.SKIPPED}}
    assert failed <= FENCING_STEPS, steps
    assert bool(failed) is (server.kind.fencing == Fencing.ISOLATED), steps


def test_a_large_object_is_copied_by_the_service_and_never_replaces(server: RealServer) -> None:
    if server.kind.needs != "boto3" or server.kind.fencing != "required":
        pytest.skip("not an S3 service with create-only puts")
    source, target = (open_store(*server.new_place()) for _ in range(2))
    assert isinstance(target, S3Store)
    body = Random(1).randbytes(7 << 20)
    source.put("a/b", [body])
    assert target.copy_from(source, "a/b", [body])
    with target.open("a/b") as stream:
        assert stream.read() == body
    with pytest.raises(ExistsError):
        target.copy_from(source, "a/b", [body])
    source.put("c", [body])
    with pytest.raises(StoreError, match="part 1 differs"):
        target.copy_from(source, "c", [body[:-1] + b"x"])
    assert [info.key for info in target.list("")] == ["a/b"]
    for store in (source, target):
        store.close()


class Daemon:
    """A daemon that ships a log to a server, and the writer of that log."""

    def __init__(self, server: RealServer, folder: Path, warm: Warm) -> None:
        url, options = server.new_place()
        self.folder = folder
        self.config = folder / "litelog.yml"
        replica = {"url": url, "options": options, "fencing": server.kind.fencing}
        self.url = url
        log = {"path": str(folder / "log"), "replicas": [replica]}
        self.config.write_text(json.dumps({"sync-interval": "100ms", "logs": [log]}))
        self.writer = LogWriter(str(folder / "log"), segment_bytes=200_000, fsync="never")
        self.append()
        words = ("replicate", "--json", "--state-dir", str(folder / "state"), "--config", str(self.config))
        self.process = Spoken(warm, COMMAND, *words)

    def append(self, records: int = 40) -> None:
        self.writer.append([Random(self.writer.next_sequence).randbytes(1000) for _ in range(records)])

    def wait_for_all(self) -> None:
        """Wait until every appended record is acknowledged."""
        deadline = time.monotonic() + WAIT_SECONDS
        while shipped(self.process) < self.writer.next_sequence:
            assert self.process.process.poll() is None
            assert time.monotonic() < deadline, self.process.lines[-3:]
            time.sleep(0.05)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the command with the daemon's configuration."""
        command = [sys.executable, "-m", "litelog_cli", *words, "--config", str(self.config)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_SECONDS)

    def require_restorable(self) -> None:
        """End the daemon, restore the log, and compare it with the source."""
        self.process.process.send_signal(signal.SIGTERM)
        self.process.process.wait(WAIT_SECONDS)
        self.process.kill()
        self.writer.close()
        done = self.run("restore", self.url, "-o", str(self.folder / "out"))
        assert done.returncode == 0, done.stderr
        assert segments(self.folder / "out") == segments(self.folder / "log")


@pytest.fixture
def daemon(server: RealServer, tmp_path: Path, warm: Warm) -> Iterator[Daemon]:
    running = Daemon(server, tmp_path, warm)
    yield running
    if running.process.process.poll() is None:
        running.process.kill()
    running.writer.close()


def test_a_server_that_is_killed_and_comes_back_costs_nothing(server: RealServer, daemon: Daemon) -> None:
    """Meanwhile the daemon logs its failures, and commands end with an error and without a traceback."""
    daemon.wait_for_all()
    server.end()
    ended = datetime.now(UTC)
    try:
        daemon.append()
        began = time.monotonic()
        restore = daemon.run("restore", daemon.url, "-o", str(daemon.folder / "none"))
        restored = time.monotonic() - began
        began = time.monotonic()
        check = daemon.run("check", daemon.url)
        checked = time.monotonic() - began
    finally:
        server.start()
    assert restore.returncode == check.returncode == 1, (restore.stderr, check.stderr)
    assert "Traceback" not in restore.stderr + check.stderr + check.stdout
    for _ in range(5):
        daemon.append()
    began = time.monotonic()
    daemon.wait_for_all()
    caught_up = time.monotonic() - began
    daemon.require_restorable()
    events = [json.loads(line) for line in daemon.process.errors.splitlines() if line.startswith("{")]
    failures = [event for event in events if event.get("event") == "sync-failed"]
    assert failures, "the daemon did not log the outage"
    assert "Traceback" not in daemon.process.errors
    report(
        f"kill of {server.kind.name}",
        restore_failed_seconds=round(restored, 1),
        check_failed_seconds=round(checked, 1),
        failures_logged=len(failures),
        seen_after_seconds=round((datetime.fromisoformat(failures[0]["time"]) - ended).total_seconds(), 1),
        caught_up_seconds=round(caught_up, 1),
    )


def test_a_server_that_is_paused_costs_nothing(server: RealServer, daemon: Daemon) -> None:
    daemon.wait_for_all()
    server.pause()
    try:
        for _ in range(5):
            daemon.append()
        threading.Event().wait(PAUSE_SECONDS)
    finally:
        server.go_on()
    began = time.monotonic()
    daemon.wait_for_all()
    report(f"pause of {server.kind.name}", caught_up_seconds=round(time.monotonic() - began, 1))
    daemon.require_restorable()
