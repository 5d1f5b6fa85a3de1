"""Kills a restore at every system call that changes the disk, and fails it at each: whole, or not there (P9)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from litelog.object_store import ObjectReplicaClient
from litelog.restore.execution import restore
from litelog.restore.journal import JOURNAL_NAME
from litelog.restore.plan import Target, find_plan
from replica_clients.file import FileStore
from tests.faults.figures import report
from tests.faults.tracing import why_not_traced
from tests.unit.replica_builder import FORMAT, ReplicaBuilder, make_log

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
CALLS = ("mkdir", "openat", "flock", "fallocate", "pwrite64", "write", "fsync", "rename", "close", "unlinkat")
SCRIPT = """
import sys
from litelog.object_store import ObjectReplicaClient
from litelog.restore.execution import restore
from litelog.restore.plan import Target, find_plan
from replica_clients.file import FileStore
from litelog.formats.litelog import LitelogFormat
from litelog.errors import LitelogError

client = ObjectReplicaClient(FileStore(sys.argv[1]))
format = LitelogFormat()
plan = find_plan(client, Target(), format)
try:
    restore(client, plan, sys.argv[2], log_format=format, parallelism=1)
except LitelogError as error:
    sys.exit(f"refused: {error}")
"""
AT_LEAST = {"fsync": 6, "pwrite64": 4}
"""Each file, the folder and the one that it lies in are synced; four pieces are written; nothing was left behind."""

MOST_STEPS = 200
"""More than a restore of so small a log takes."""


pytestmark = pytest.mark.skipif(why_not_traced() is not None, reason=why_not_traced() or "")


@pytest.fixture(scope="module")
def replica(tmp_path_factory) -> Path:
    """A sealed log segment, and two in three WAL segments, as files."""
    builder = ReplicaBuilder()
    built = builder.add(builder.claim(first=1), start=False)
    sealed, first, second = LOG
    built.start([built.seal_unshipped(0, sealed)])
    built.ship_segment(first, cuts=[0])
    built.ship_segment(second, final=None)
    folder = tmp_path_factory.mktemp("replica")
    store = FileStore(str(folder))
    for key, body in builder.objects().items():
        store.put(key, [body])
    return folder


LOG = make_log([[1, 2], [2, 1], [3]])
EXPECTED = {segment.name: segment.data for segment in LOG}


def held(output: Path) -> dict[str, bytes] | None:
    return {path.name: path.read_bytes() for path in output.iterdir()} if output.is_dir() else None


TEMPORARY = ".out.litelog-restoring"
TOUCHED = (".", "out", TEMPORARY, *(f"{TEMPORARY}/{name}" for name in (*EXPECTED, JOURNAL_NAME)))
"""What a restore touches, below the place it writes to. strace counts calls for each thread on its own, so each path is
walked by itself: one is always the same thread's."""


def run_with(inject: str, place: Path, touched: str, replica: Path) -> subprocess.CompletedProcess[str]:
    """Restore in a process of its own, with a fault in the calls that name ``touched``, or a descriptor of it."""
    command = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", str(place / touched), "-e", f"inject={inject}"]
    return subprocess.run(
        [*command, sys.executable, "-c", SCRIPT, str(replica), str(place / "out")],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=60,
    )


def walk(call: str, fault: str, folder: Path, replica: Path) -> Iterator[tuple[Path, subprocess.CompletedProcess[str]]]:
    """A restore for each of its calls, which meets the fault there; not the ones that meet none."""
    for touched in TOUCHED:
        for step in range(1, MOST_STEPS):
            place = folder / f"{TOUCHED.index(touched)}-{step}"
            place.mkdir()
            done = run_with(f"{call}:{fault}:when={step}", place, touched, replica)
            if done.returncode == 0:
                assert held(place / "out") == EXPECTED
                break
            yield place, done
        else:
            pytest.fail(f"a fault in call {MOST_STEPS} of {touched} still shows")


def restore_again(place: Path, replica: Path) -> None:
    client = ObjectReplicaClient(FileStore(str(replica)))
    restore(client, find_plan(client, Target(), FORMAT), str(place / "out"), log_format=FORMAT)


@pytest.mark.parametrize("call", CALLS)
def test_a_restore_killed_at_any_call_leaves_all_or_nothing_and_can_be_run_again(tmp_path, replica, call):
    killed = 0
    for place, done in walk(call, "signal=KILL", tmp_path, replica):
        killed += 1
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert held(place / "out") in (None, EXPECTED), place
        if held(place / "out") is None:
            restore_again(place, replica)
        assert held(place / "out") == EXPECTED
        assert os.listdir(place) == ["out"]
    report(f"restore_crash_{call}", crash_points=killed, failures=0)
    assert killed >= AT_LEAST.get(call, 1)


@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("call", [call for call in CALLS if call not in ("close", "unlinkat")])
def test_a_restore_that_fails_at_any_call_says_so_and_leaves_nothing(tmp_path, replica, call, error):
    failed = 0
    for place, done in walk(call, f"error={error}", tmp_path, replica):
        failed += 1
        assert done.stderr.startswith("refused: "), done.stderr
        assert held(place / "out") in (None, EXPECTED), place
        if held(place / "out") is None:
            assert os.listdir(place) == [], place
            restore_again(place, replica)
        assert held(place / "out") == EXPECTED
    report(f"restore_{error}_{call}", faults=failed, failures=0)
    assert failed >= AT_LEAST.get(call, 1)


def test_a_leftover_is_removed_though_removing_was_killed_too(tmp_path, replica):
    left = tmp_path / ".out.litelog-restoring"
    left.mkdir()
    for name in ("a", "b", "c"):
        (left / name).write_text("half")
    for step in (1, 2):
        done = run_with(f"unlinkat:signal=KILL:when={step}", tmp_path, TEMPORARY, replica)
        assert done.returncode == -signal.SIGKILL
        assert held(tmp_path / "out") is None
    restore_again(tmp_path, replica)
    assert held(tmp_path / "out") == EXPECTED
    assert os.listdir(tmp_path) == ["out"]
