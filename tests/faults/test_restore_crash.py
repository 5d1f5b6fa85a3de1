"""Kills a restore at every system call that changes the disk, and makes each call fail.

The output is whole or not there (P9).
"""

from __future__ import annotations

import os
import signal
from itertools import product
from typing import TYPE_CHECKING

import pytest

from litelog.restore.execution import restore
from litelog.restore.history_plan import Target, find_plan
from litelog.restore.journal import JOURNAL_NAME
from litelog.stores.object_store import ObjectReplicaClient
from replica_clients.file import FileStore
from tests.builders.replica_builder import FORMAT, ReplicaBuilder, make_log
from tests.faults.figures import report
from tests.faults.restore_walk import TEMPORARY, Walk
from tests.faults.tracing import run_traced, why_not_traced
from tests.sampling import NIGHTLY, sampled_cases

if TYPE_CHECKING:
    from pathlib import Path

    from tests.warm import Warm

CALLS = (
    "mkdir", "openat", "flock", "fallocate", "pwrite64", "write", "mkdirat", "fchmod", "fsync", "rename", "close",
    "unlinkat",
)  # fmt: skip
SCRIPT = """
import sys
from litelog.stores.object_store import ObjectReplicaClient
from litelog.restore.execution import restore
from litelog.restore.history_plan import Target, find_plan
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
"""The least numbers of crash points: each file, the folder and its parent are synced, and four pieces are written."""

ONE_IN = 8
"""The share of the faults of a walk that a run by day takes."""

pytestmark = pytest.mark.skipif(why_not_traced() is not None, reason=why_not_traced() or "")


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A replica in a folder: a sealed log segment, and two log segments in three WAL segments."""
    builder = ReplicaBuilder()
    built = builder.add(builder.claim(first=1), start=False)
    sealed, first, second = LOG
    built.start([built.seal_unshipped(0, sealed)])
    built.ship_segment(first, cuts=[0])
    built.ship_segment(second, final=None)
    folder = tmp_path_factory.mktemp("replica")
    store = FileStore(str(folder))
    builder.put_into(store)
    return folder


LOG = make_log([[1, 2], [2, 1], [3]])
EXPECTED = {segment.name: segment.data for segment in LOG}


def held(output: Path) -> dict[str, bytes] | None:
    return {path.name: path.read_bytes() for path in output.iterdir()} if output.is_dir() else None


TOUCHED = (".", "out", TEMPORARY, *(f"{TEMPORARY}/{name}" for name in (*EXPECTED, JOURNAL_NAME)))
"""The paths that a restore touches, relative to the folder of its output. strace counts calls by thread, so each path
is walked by itself: always the same thread changes it."""


def walk_over(warm: Warm, folder: Path, replica: Path) -> Walk:
    """A walk of restores into an empty folder."""
    template = folder / "template"
    template.mkdir()
    return Walk(warm, SCRIPT, (str(replica),), template, folder, TOUCHED)


def restore_again(place: Path, replica: Path) -> None:
    client = ObjectReplicaClient(FileStore(str(replica)))
    restore(client, find_plan(client, Target(), FORMAT), str(place / "out"), log_format=FORMAT)


@pytest.mark.parametrize("call", sampled_cases(CALLS, 2, "calls of a restore"))
def test_a_restore_killed_at_any_call_leaves_all_or_nothing_and_can_be_run_again(
    tmp_path: Path, replica: Path, warm: Warm, call: str
) -> None:
    killed = 0
    for place, done in walk_over(warm, tmp_path, replica).faults(call, "signal=KILL", one_in=ONE_IN):
        if done.returncode == 0:
            assert held(place / "out") == EXPECTED
            continue
        killed += 1
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert held(place / "out") in (None, EXPECTED), place
        if held(place / "out") is None:
            restore_again(place, replica)
        assert held(place / "out") == EXPECTED
        assert os.listdir(place) == ["out"]
    report(f"restore_crash_{call}", crash_points=killed, failures=0)
    assert killed >= (AT_LEAST.get(call, 1) if NIGHTLY else 1)


@pytest.mark.parametrize(
    ("error", "call"),
    sampled_cases(
        product(["EIO", "ENOSPC"], [call for call in CALLS if call not in ("close", "unlinkat")]),
        2,
        "calls of a restore that fail",
    ),
)
def test_a_restore_that_fails_at_any_call_says_so_and_leaves_nothing(
    tmp_path: Path, replica: Path, warm: Warm, call: str, error: str
) -> None:
    failed = 0
    for place, done in walk_over(warm, tmp_path, replica).faults(call, f"error={error}", one_in=ONE_IN):
        if done.returncode == 0:
            assert held(place / "out") == EXPECTED
            continue
        failed += 1
        assert done.stderr.splitlines()[-1].startswith("refused: "), done.stderr
        assert held(place / "out") in (None, EXPECTED), place
        if held(place / "out") is None:
            assert os.listdir(place) == [], place
            restore_again(place, replica)
        assert held(place / "out") == EXPECTED
    report(f"restore_{error}_{call}", faults=failed, failures=0)
    assert failed >= (AT_LEAST.get(call, 1) if NIGHTLY else 1)


def test_a_leftover_is_removed_though_removing_was_killed_too(tmp_path: Path, replica: Path, warm: Warm) -> None:
    left = tmp_path / TEMPORARY
    left.mkdir()
    for name in ("a", "b", "c"):
        (left / name).write_text("half")
    for step in (1, 2):
        tracing = ("-P", str(left), "-e", f"inject=unlinkat:signal=KILL:when={step}")
        done = run_traced(warm, tracing, SCRIPT, str(replica), str(tmp_path / "out"))
        assert done.returncode == -signal.SIGKILL
        assert held(tmp_path / "out") is None
    restore_again(tmp_path, replica)
    assert held(tmp_path / "out") == EXPECTED
    assert os.listdir(tmp_path) == ["out"]
