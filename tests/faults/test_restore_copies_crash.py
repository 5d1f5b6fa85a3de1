"""Kills a restore over an older copy, and a follower, at every system call that changes the disk.

The copy is then the older one or the newer one, and a second run finishes the work (P9).
"""

from __future__ import annotations

import os
import shutil
import signal
from itertools import product
from typing import TYPE_CHECKING

import pytest

from litelog.errors import OutputExistsError
from litelog.restore.execution import restore
from litelog.restore.follow import CopyFollower
from litelog.restore.history_plan import Target, find_plan
from litelog.stores.object_store import ObjectReplicaClient
from replica_clients.file import FileStore
from tests.builders.replica_builder import FORMAT
from tests.faults.figures import report
from tests.faults.restore_copies import AFTER, DURING, OLDER, OTHER, SCRIPT, Replicas, held, place_with
from tests.faults.restore_walk import TEMPORARY, Walk, touched_by_copies
from tests.faults.tracing import run_traced, why_not_traced
from tests.sampling import NIGHTLY, sampled_cases

if TYPE_CHECKING:
    from pathlib import Path

    from tests.warm import Warm

pytestmark = pytest.mark.skipif(why_not_traced() is not None, reason=why_not_traced() or "")

DELTA_CALLS = (
    "mkdir", "openat", "flock", "fallocate", "pwrite64", "write", "fsync", "linkat", "renameat2", "rename", "mkdirat",
    "fchmod", "unlinkat", "rmdir", "close",
)  # fmt: skip
FAILING_CALLS = ("mkdir", "openat", "flock", "fallocate", "pwrite64", "write", "fsync", "linkat", "renameat2")
FOLLOW_CALLS = ("openat", "flock", "pwrite64", "fsync", "close")
ONE_IN = 8
"""The share of the faults of a walk that a run by day takes."""


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Replicas:
    return Replicas(tmp_path_factory.mktemp("replicas"))


def bring_up_to_date(place: Path, replica: Path, *, follow_to: tuple[Path, str] | None = None) -> None:
    """Run the same restore or follower again, as a person does after a kill."""
    client = ObjectReplicaClient(FileStore(str(replica)))
    plan = find_plan(client, Target(), FORMAT)
    restore(client, plan, str(place / "out"), log_format=FORMAT, delta=True)
    if follow_to is not None:
        later, end = follow_to
        with CopyFollower(ObjectReplicaClient(FileStore(str(later))), str(place / "out"), plan, FORMAT) as follower:
            follower.catch_up()
            assert str(follower.position) == end


def require_refused_without_delta(place: Path, replica: Path) -> None:
    """Assert that a restore without ``--delta`` refuses an existing folder and does not change it."""
    client = ObjectReplicaClient(FileStore(str(replica)))
    before = held(place / "out")
    with pytest.raises(OutputExistsError):
        restore(client, find_plan(client, Target(), FORMAT), str(place / "out"), log_format=FORMAT)
    assert held(place / "out") == before


def is_prefix(files: dict[str, bytes], *, of: dict[str, bytes], at_least: dict[str, bytes]) -> bool:
    """Whether ``files`` are a growing copy between ``at_least`` and ``of``. It grows file by file, in order."""
    segments = sorted(name for name in of if name not in OTHER)
    grown = b"".join(files.get(name, b"") for name in segments)
    return (
        files.keys() <= of.keys()
        and all(of[name].startswith(data) for name, data in files.items())
        and b"".join(of[name] for name in segments).startswith(grown)
        and all(files.get(name, b"").startswith(data) for name, data in at_least.items())
    )


@pytest.mark.parametrize("call", sampled_cases(DELTA_CALLS, 2, "calls of a delta"))
def test_a_delta_killed_at_any_call_leaves_the_older_copy_or_the_newer_one(
    tmp_path: Path, replicas: Replicas, warm: Warm, call: str
) -> None:
    template = place_with(tmp_path / "template", OLDER)
    touched = touched_by_copies({**OLDER, **DURING})
    killed = 0
    walk = Walk(warm, SCRIPT, replicas.arguments("delta"), template, tmp_path, touched)
    for place, done in walk.faults(call, "signal=KILL", one_in=ONE_IN):
        if done.returncode == 0:
            assert held(place / "out") == DURING
            assert os.listdir(place) == ["out"]
        else:
            killed += 1
            assert done.returncode == -signal.SIGKILL, done.stderr
            assert held(place / "out") in (OLDER, DURING), place
            assert "restored" not in done.stdout or held(place / "out") == DURING
            require_refused_without_delta(place, replicas.first)
            bring_up_to_date(place, replicas.first)
            assert held(place / "out") == DURING
            assert os.listdir(place) == ["out"]
        shutil.rmtree(place)
    report(f"restore_delta_crash_{call}", crash_points=killed, failures=0)
    assert killed > 0 or call == "rename"


@pytest.mark.parametrize(
    ("mode", "call"), sampled_cases(product(["follow", "delta, then follow"], FOLLOW_CALLS), 2, "calls of a follower")
)
def test_a_follower_killed_at_any_call_leaves_a_prefix_that_is_brought_up_to_date(
    tmp_path: Path, replicas: Replicas, warm: Warm, call: str, mode: str
) -> None:
    template = place_with(tmp_path / "template", DURING if mode == "follow" else OLDER)
    touched = touched_by_copies({**OLDER, **AFTER})
    killed = while_following = 0
    walk = Walk(warm, SCRIPT, replicas.arguments(mode), template, tmp_path, touched)
    for place, done in walk.faults(call, "signal=KILL", one_in=ONE_IN):
        copy = held(place / "out")
        if done.returncode == 0:
            assert copy == AFTER
        else:
            killed += 1
            assert done.returncode == -signal.SIGKILL, done.stderr
            is_restored = mode == "follow" or "restored" in done.stdout
            while_following += is_restored
            assert is_prefix(copy, of=AFTER, at_least=DURING) or (copy == OLDER and not is_restored), place
            require_refused_without_delta(place, replicas.then)
            bring_up_to_date(place, replicas.first, follow_to=(replicas.then, replicas.end))
            assert held(place / "out") == AFTER
            assert os.listdir(place) == ["out"]
        shutil.rmtree(place)
    report(f"restore_{mode.replace(', ', '_').replace(' ', '_')}_crash_{call}", crash_points=killed, failures=0)
    assert killed > 0
    assert while_following > 0 or not NIGHTLY


@pytest.mark.parametrize(
    ("error", "call"), sampled_cases(product(["EIO", "ENOSPC"], FAILING_CALLS), 2, "calls of a delta that fail")
)
def test_a_delta_that_fails_at_any_call_says_so_and_leaves_one_of_both(
    tmp_path: Path, replicas: Replicas, warm: Warm, call: str, error: str
) -> None:
    template = place_with(tmp_path / "template", OLDER)
    touched = touched_by_copies({**OLDER, **DURING})
    failed = 0
    walk = Walk(warm, SCRIPT, replicas.arguments("delta"), template, tmp_path, touched)
    for place, done in walk.faults(call, f"error={error}", one_in=ONE_IN):
        copy = held(place / "out")
        if done.returncode == 0:
            assert copy == DURING
            assert set(os.listdir(place)) <= {"out", TEMPORARY}, "only the temporary folder may be left"
        else:
            failed += 1
            assert done.stderr.splitlines()[-1].startswith("refused: "), done.stderr
            assert copy in (OLDER, DURING), place
            bring_up_to_date(place, replicas.first)
            assert held(place / "out") == DURING
            assert os.listdir(place) == ["out"]
        shutil.rmtree(place)
    report(f"restore_delta_{error}_{call}", faults=failed, failures=0)
    assert failed > 0


@pytest.mark.parametrize("error", ["EINVAL", "ENOSYS", "EOPNOTSUPP"])
def test_a_file_system_that_cannot_exchange_is_named_before_anything_is_read(
    tmp_path: Path, replicas: Replicas, warm: Warm, error: str
) -> None:
    place = place_with(tmp_path / "place", OLDER)
    tracing = ("-o", str(tmp_path / "trace"), "-e", "trace=renameat2,pwrite64", "-e", f"inject=renameat2:error={error}")
    done = run_traced(warm, tracing, SCRIPT, *replicas.arguments("delta"), str(place / "out"))
    assert done.stderr.startswith(f"refused: {place / 'out'}: its file system cannot exchange two folders"), done.stderr
    assert "pwrite64" not in (tmp_path / "trace").read_text()
    assert held(place / "out") == OLDER
    assert os.listdir(place) == ["out"]
