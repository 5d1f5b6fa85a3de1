"""Kills a prune and a truncation at every system call that changes the disk.

The kept objects and log segments are whole, and the next run finishes the work.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from typing import TYPE_CHECKING

import pytest

from litelog.log.reader import LogReader
from litelog.log.recovery import list_segments
from litelog.log.replica_registry import ReplicaSet, log_state_folder
from litelog.log.sequence_base import read_tombstone
from litelog.log.writer import LogWriter
from litelog.objects.position import generation
from litelog.reading.contents import list_pieces
from litelog.reading.latest import find_latest
from litelog.replicator.wiring import state_folder_of
from litelog.shipping.context import Settings, SnapshotPolicy
from litelog.stores.object_store import ObjectReplicaClient
from replica_clients.file import FileStore
from tests.builders.daemon_builder import Daemon
from tests.builders.independent_reader import read_replica
from tests.builders.log_builder import make_log
from tests.builders.manual_clock import ManualClock
from tests.builders.truncated_logs import fill_log, note_replica
from tests.faults.figures import report
from tests.faults.tracing import count_calls, run_traced, why_not_traced
from tests.sampling import NIGHTLY, sampled

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.warm import Warm

pytestmark = pytest.mark.skipif(why_not_traced() is not None, reason=why_not_traced() or "")

CALLS = ("unlink,unlinkat", "fsync,fdatasync", "rename,renameat", "rmdir", "write,pwrite64,pwritev,pwritev2")
MOST_STEPS = 200
ONE_IN = 3
"""The share of the calls of a walk that a run by day takes."""

SEGMENTS = 6

PRUNE = """
import sys
from litelog.system.clock import SystemClock
from litelog.stores.object_store import ObjectReplicaClient
from litelog.retention.policy import RetentionPolicy
from litelog.shipping.pruner import PruningSession
from replica_clients.file import FileStore

replica, state = sys.argv[1:]
client = ObjectReplicaClient(FileStore(replica))
PruningSession(client, RetentionPolicy(max_snapshots=2), SystemClock(), state).prune()
"""

TRUNCATE = """
import sys
from litelog.log.writer import LogWriter

log, state = sys.argv[1:]
with LogWriter(log) as writer:
    writer.truncate(1 << 40, state_dir=state)
"""


def killed_at(calls: str, step: int) -> tuple[str, ...]:
    return ("-e", f"trace={calls}", "-e", f"inject={calls}:signal=KILL:when={step}")


def steps_of(warm: Warm, calls: str, trace: Path, script: str, *arguments: str) -> Iterable[int]:
    """The numbers of the calls at which to kill the script.

    By day they are a sample of a whole run's calls, and a number that no run reaches. At night they are all numbers:
    the walk ends when a run is not killed."""
    if NIGHTLY:
        return range(1, MOST_STEPS)
    done = run_traced(warm, ("-o", str(trace), "-e", f"trace={calls}"), script, *arguments)
    assert done.returncode == 0, done.stderr
    count = max(count_calls(trace).values(), default=0)
    return [*(sampled(range(1, count + 1), ONE_IN, f"{script} {calls}") if count else ()), MOST_STEPS]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of which three of six log segments were deleted, its replica and the owner's state, made ten days ago."""
    place = tmp_path_factory.mktemp("place")
    log = make_log(place / "log")
    store = FileStore(str(place / "replica"))
    folder = state_folder_of(str(place / "state"), log.folder, str(place / "replica"), store.url)
    ReplicaSet(os.path.dirname(folder)).add(os.path.basename(folder), store.url)
    clock = ManualClock(int((time.time() - 10 * 86400) * 1_000_000))
    settings = Settings(snapshot_policy=SnapshotPolicy.MIRROR, snapshot_segments=1)
    daemon = Daemon(log, store, folder, clock=clock, settings=settings)
    for _ in range(SEGMENTS):
        log.roll(2)
        daemon.sync()
        clock.advance(600)
        for name in sorted(log.files())[:-3]:
            log.delete(name)
    daemon.close()
    texts = place / "texts"
    texts.mkdir()
    for name, data in log.texts.items():
        (texts / name).write_bytes(data)
    return place


def held(replica: Path) -> dict[str, bytes]:
    """The files that the replica's latest generation holds, as the independent reader reads them."""
    store = FileStore(str(replica))
    claim = find_latest(ObjectReplicaClient(store))
    assert list_pieces(ObjectReplicaClient(store), claim).gap is None
    return read_replica(store)[claim.generation].files()


def objects(replica: Path) -> set[str]:
    return {str(path.relative_to(replica)) for path in replica.rglob("*") if path.is_file()}


@pytest.mark.parametrize("calls", CALLS)
def test_after_a_prune_is_killed_at_any_call_the_next_prune_finishes_it(
    tmp_path: Path, template: Path, warm: Warm, calls: str
) -> None:
    texts = {path.name: path.read_bytes() for path in sorted((template / "texts").iterdir())}
    whole = tmp_path / "whole"
    shutil.copytree(template, whole)
    state = next((template / "state").glob("*/*/state.json")).parent.relative_to(template)
    done = run_traced(warm, (), PRUNE, str(whole / "replica"), str(whole / state))
    assert done.returncode == 0, done.stderr
    left = objects(whole / "replica")
    assert left < objects(template / "replica")
    kept = held(whole / "replica")
    assert kept == {name: texts[name] for name in list(texts)[-len(kept) :]}
    snapshots = sorted(name for name in left if "/snapshots/" in name)
    killed = 0
    place, counted = tmp_path / "place", tmp_path / "counted"
    shutil.copytree(template, counted)
    folders = str(counted / "replica"), str(counted / state)
    for step in steps_of(warm, calls, tmp_path / "trace", PRUNE, *folders):
        shutil.copytree(template, place)
        died = run_traced(warm, killed_at(calls, step), PRUNE, str(place / "replica"), str(place / state))
        if died.returncode == 0:
            break
        assert died.returncode == -signal.SIGKILL, died.stderr
        killed += 1
        there = objects(place / "replica")
        assert left <= there
        assert held(place / "replica") == kept
        for name in snapshots:  # each of them is whole: a reader may still use it
            client = ObjectReplicaClient(FileStore(str(place / "replica")))
            owner = generation(name.split("/")[1])
            assert client.read_snapshot(owner, int(name.rsplit("/", 1)[1].split(".")[0], 16))
        again = run_traced(warm, (), PRUNE, str(place / "replica"), str(place / state))
        assert again.returncode == 0, again.stderr
        assert objects(place / "replica") == left
        shutil.rmtree(place)
    else:
        pytest.fail(f"still killed at call {MOST_STEPS}")
    report(f"prune_crash_{calls.split(',', maxsplit=1)[0]}", crash_points=killed, failures=0)
    assert killed > 0 or calls in ("rename,renameat", "rmdir", "write,pwrite64,pwritev,pwritev2")


@pytest.fixture(scope="module")
def log_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of five log segments, and a note that a replica holds all of it."""
    place = tmp_path_factory.mktemp("truncated") / "place"
    log, state = str(place / "log"), str(place / "state")
    fill_log(log)
    note_replica(log, state)
    kept = place.with_name("kept")
    place.rename(kept)
    return kept


@pytest.mark.parametrize("calls", CALLS)
def test_a_truncation_killed_at_any_call_leaves_a_log_that_continues(
    log_template: Path, warm: Warm, calls: str
) -> None:
    place = log_template.with_name("place")  # the state depends on the log's path
    log, state = str(place / "log"), str(place / "state")
    killed = 0
    shutil.copytree(log_template, place)
    steps = steps_of(warm, calls, place.with_name("trace"), TRUNCATE, log, state)
    shutil.rmtree(place)
    for step in steps:
        shutil.copytree(log_template, place)
        died = run_traced(warm, killed_at(calls, step), TRUNCATE, log, state)
        if died.returncode == 0:
            shutil.rmtree(place)
            break
        assert died.returncode == -signal.SIGKILL, died.stderr
        killed += 1
        firsts = [int(name[:20]) for name in list_segments(log)]
        assert firsts == [0, 10, 20, 30, 40][-len(firsts) :]
        tombstone = read_tombstone(log)
        assert len(firsts) == 5 or (tombstone is not None and tombstone.first == 30)
        with LogReader(log) as reader:
            assert [record.sequence for record in reader] == list(range(firsts[0], 50))
        assert run_traced(warm, (), TRUNCATE, log, state).returncode == 0
        assert [int(name[:20]) for name in list_segments(log)] == [30, 40]
        assert len(ReplicaSet(log_state_folder(state, log)).held()) == 1
        with LogWriter(log) as writer:
            assert writer.append(b"on").first == 50
        shutil.rmtree(place)
    else:
        pytest.fail(f"still killed at call {MOST_STEPS}")
    report(f"truncate_crash_{calls.split(',', maxsplit=1)[0]}", crash_points=killed, failures=0)
    assert killed > 0 or calls == "rmdir"
