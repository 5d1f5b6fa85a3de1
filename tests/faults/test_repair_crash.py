"""Kills a repair of a local log at every system call that changes the disk, and makes these calls fail.

The log is then the old one or the new one, once the next repair or the log's writer has completed the steps that were
written down. Before that, each log segment is.
"""

from __future__ import annotations

import shutil
import signal
from itertools import product
from typing import TYPE_CHECKING

import pytest

from litelog.formats.litelog import LitelogFormat
from litelog.log.unfinished_repair import BACKUPS, STEPS, complete_repair
from litelog.repair.execution import repair
from litelog.stores.object_store import ObjectReplicaClient
from replica_clients.file import FileStore
from tests.builders.replica_builder import ReplicaBuilder, make_log
from tests.faults.figures import report
from tests.faults.restore_copies import place_with, store_objects
from tests.faults.restore_walk import Walk
from tests.faults.tracing import run_traced, why_not_traced
from tests.sampling import sampled_cases

if TYPE_CHECKING:
    from pathlib import Path

    from tests.warm import Warm

pytestmark = pytest.mark.skipif(why_not_traced() is not None, reason=why_not_traced() or "")

SCRIPT = """
import sys
from litelog.errors import LitelogError
from litelog.formats.litelog import LitelogFormat
from litelog.repair.execution import repair
from litelog.stores.object_store import ObjectReplicaClient
from replica_clients.file import FileStore
from tests.builders.manual_clock import ManualClock

replica, which, folder = sys.argv[1:]
cut = which == "cut"
clients = [] if cut else [ObjectReplicaClient(FileStore(replica))]
try:
    result = repair(folder, LitelogFormat(), clients, cut=cut, confirm=True, clock=ManualClock(0))
except LitelogError as error:
    sys.exit(f"refused: {error}")
print(result.left, flush=True)
"""

LOG = make_log([[2, 1, 3], [1, 1, 2, 1], [2, 2, 1]])
WHOLE = {**{segment.name: segment.data for segment in LOG}, ".lock": b""}
FIRST, MIDDLE, LAST = LOG

DAMAGED = {
    "one": {MIDDLE.name: MIDDLE.data[: MIDDLE.ends[0]] + bytes(20) + MIDDLE.data[MIDDLE.ends[0] + 20 :]},
    "several": {FIRST.name: FIRST.data[:70] + b"x" + FIRST.data[71:], LAST.name: LAST.data[:-3]},
    "swapped": {FIRST.name: MIDDLE.data, MIDDLE.name: FIRST.data},
    "cut": {FIRST.name: FIRST.data[: FIRST.ends[0] + 20] + b"x" + FIRST.data[FIRST.ends[0] + 21 :]},
}
BACKED_UP = {**DAMAGED, "cut": {**DAMAGED["cut"], MIDDLE.name: MIDDLE.data, LAST.name: LAST.data}}
"""What the repair replaces or removes."""

REPAIRED = {
    "one": WHOLE,
    "several": WHOLE,
    "swapped": WHOLE,
    "cut": {FIRST.name: FIRST.data[: FIRST.ends[0]], ".lock": b""},
}
STAMP = "19700101T000000Z"
CALLS = ("mkdir", "openat", "flock", "pwrite64", "fchmod", "fsync", "linkat", "rename", "unlink", "rmdir", "close")
FAILING = ("mkdir", "openat", "flock", "pwrite64", "fsync", "linkat", "rename")
ONE_IN = 8
"""The share of the faults of a walk that a run by day takes."""


def touched(damaged: dict[str, bytes]) -> tuple[str, ...]:
    folders = ("out", f"out/{BACKUPS}", f"out/{BACKUPS}/new", f"out/{BACKUPS}/{STAMP}")
    files = (f"{folder}/{name}" for folder in folders if folder != f"out/{BACKUPS}" for name in damaged)
    return (*folders, *files, "out/.lock", f"out/{BACKUPS}/{STEPS}")


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Path:
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship_segment(FIRST)
    built.ship_segment(MIDDLE)
    built.ship_segment(LAST, final=None)
    return store_objects(builder, tmp_path_factory.mktemp("replicas") / "replica")


def held(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (place / "out").iterdir() if path.is_file()}


def require_old_or_new(place: Path, which: str, left: int = 0) -> None:
    """Assert that each log segment is the old one or the new one, and that those that go away go from the end.

    A repair that could not read ``left`` log segments, before or after it, has said so, and has repaired the others.
    """
    files, repaired = held(place), REPAIRED[which]
    old = {**WHOLE, **DAMAGED[which]}
    assert sorted(files) == sorted(old)[: len(files)], place
    assert len(files) >= len(repaired)
    for name, data in files.items():
        assert data in (old[name], repaired.get(name)), (place, name)
    was_begun = complete_repair(str(place / "out"))
    now = {**held(place), ".lock": b""}
    remaining = sum(now.get(name) != repaired.get(name) for name in old)
    whole = {0, sum(old[name] != repaired.get(name) for name in old)}
    assert remaining <= left if left else remaining in whole, place
    assert not was_begun or remaining == 0, place


def repair_again(place: Path, replica: Path, which: str) -> None:
    """Run the repair again, as a person does after a kill. All that was ever replaced is kept."""
    clients = [] if which == "cut" else [ObjectReplicaClient(FileStore(str(replica)))]
    assert repair(str(place / "out"), LitelogFormat(), clients, cut=which == "cut", confirm=True).left == 0
    assert held(place) == REPAIRED[which]
    kept = {path.read_bytes() for path in (place / "out" / BACKUPS).rglob("*") if path.is_file()}
    assert kept == set(BACKED_UP[which].values())


@pytest.mark.parametrize(
    ("which", "call"), sampled_cases(product(list(DAMAGED), CALLS), 2, "calls of a repair that is killed")
)
def test_a_repair_killed_at_any_call_leaves_the_old_file_or_the_new_one(
    tmp_path: Path, replica: Path, warm: Warm, call: str, which: str
) -> None:
    damaged = DAMAGED[which]
    template = place_with(tmp_path / "template", {**WHOLE, **damaged})
    killed = 0
    walk = Walk(warm, SCRIPT, (str(replica), which), template, tmp_path, touched(BACKED_UP[which]))
    for place, done in walk.faults(call, "signal=KILL", one_in=ONE_IN):
        if done.returncode == 0:
            assert (held(place), done.stdout) == (REPAIRED[which], "0\n")
        else:
            killed += 1
            assert done.returncode == -signal.SIGKILL, done.stderr
            require_old_or_new(place, which)
            repair_again(place, replica, which)
        shutil.rmtree(place)
    report(f"repair_{which}_crash_{call}", crash_points=killed, failures=0)
    assert killed > 0 or (call == "unlink" and which != "cut")


@pytest.mark.parametrize(
    ("error", "call"), sampled_cases(product(["EIO", "ENOSPC"], FAILING), 2, "calls of a repair that fail")
)
def test_a_repair_that_fails_at_any_call_says_so_and_can_be_run_again(
    tmp_path: Path, replica: Path, warm: Warm, call: str, error: str
) -> None:
    damaged = DAMAGED["several"]
    template = place_with(tmp_path / "template", {**WHOLE, **damaged})
    failed = 0
    walk = Walk(warm, SCRIPT, (str(replica), "several"), template, tmp_path, touched(damaged))
    for place, done in walk.faults(call, f"error={error}", one_in=ONE_IN):
        require_old_or_new(place, "several", left=int(done.stdout or 0))
        if done.returncode == 0 and done.stdout == "0\n":
            assert held(place) == WHOLE
        else:
            failed += 1
            assert done.stdout not in ("", "0\n") or done.stderr.splitlines()[-1].startswith("refused: "), done.stderr
            repair_again(place, replica, "several")
        shutil.rmtree(place)
    report(f"repair_{error}_{call}", faults=failed, failures=0)
    assert failed > 0


def test_a_file_system_without_second_names_gets_copies_as_backups(tmp_path: Path, replica: Path, warm: Warm) -> None:
    damaged = DAMAGED["several"]
    place = place_with(tmp_path / "place", {**WHOLE, **damaged})
    done = run_traced(warm, ("-e", "inject=linkat:error=EPERM"), SCRIPT, str(replica), "several", str(place / "out"))
    assert (done.returncode, done.stdout, held(place)) == (0, "0\n", WHOLE), done.stderr
    kept = {path.name: path.read_bytes() for path in (place / "out" / BACKUPS / STAMP).iterdir()}
    assert kept == damaged
