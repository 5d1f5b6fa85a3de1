"""Kills the daemon at every system call that changes the disk, then starts it again: no acknowledged record is lost.

It also kills the daemon while it seals log segments that were finished before it started, or while it was away, and
while it signs checkpoints: these stay one chain.
"""

from __future__ import annotations

import shutil
import signal
from itertools import product
from typing import TYPE_CHECKING

import pytest

from litelog.checkpoints.replica_checkpoints import compare_with_own, find_trusted, read_checkpoints
from litelog.encryption.identities import new_identity
from litelog.formats.registry import open_format
from litelog.log.writer import LogWriter
from litelog.restore.execution import restore
from litelog.restore.history_plan import Target, find_plan
from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.opening import decrypting
from replica_clients.file import FileStore
from tests.builders.checkpoints import KEY, PRIVATE
from tests.builders.independent_reader import read_replica
from tests.faults.figures import report
from tests.faults.processes import count_records, segments
from tests.faults.tracing import count_calls, run_traced, why_not_traced
from tests.sampling import NIGHTLY, sampled, sampled_cases

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable
    from pathlib import Path

    from litelog.stores.object_store import ObjectStore
    from tests.warm import Warm

pytestmark = pytest.mark.skipif(why_not_traced() is not None, reason=why_not_traced() or "")

CALLS = ("write,writev", "linkat,link", "rename", "fsync,fdatasync", "mkdir")
MOST_STEPS = 200
"""More calls than it takes to ship so small a log."""

ONE_IN = 12
"""The share of the calls of a walk that a run by day takes."""

SCRIPT = """
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from litelog.system.clock import SystemClock
from litelog.encryption.recipients import read_recipients
from litelog.shipping.backlog import BacklogSealer
from litelog.shipping.claim_encryption import EncryptedClaims, OwnerKeys
from litelog.shipping.ownership import Owner
from litelog.shipping.context import CheckpointPolicy, Executors, LogSource, ReplicaContext, Settings
from litelog.formats.registry import open_format
from litelog.stores.encrypted_store import EncryptedStore
from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.registry import open_store
from litelog.shipping.replica import Replica
from litelog.shipping.state import StateFolder

class Teller:
    def on_generation_started(self, log, replica, claim): pass
    def on_segment_sealed(self, event): pass
    def on_snapshot_written(self, event): pass
    def on_wal_segment_shipped(self, event): print(event.header.next, flush=True)

log, replica, state, seals, recipient, key = sys.argv[1:]
clock = SystemClock()
source, store, folder = LogSource(log, open_format("litelog")), open_store(replica), StateFolder(state, log)
claims = None
if recipient:
    keys = OwnerKeys(state)
    store = EncryptedStore(store, keys, refuses_downgrade=False)
    claims = EncryptedClaims(read_recipients([recipient]), keys)
client = ObjectReplicaClient(store)
workers = Executors(ThreadPoolExecutor(1), ThreadPoolExecutor(1))
checkpoints = CheckpointPolicy(key) if key else None
settings = Settings(max_segment_bytes=4096, snapshot_segments=1, checkpoints=checkpoints)
context = ReplicaContext(source, client, workers, clock, Teller(), settings)
sealer = BacklogSealer(context) if seals == "seals" else None
owner = Owner(
    context, folder, random=random.SystemRandom(), host="here", backlog_sealer=sealer, encryption=claims
)
replica = Replica(context, folder, owner)
while replica.sync():
    pass
assert replica.archive.status.error is None, replica.archive.status.error
if key:
    replica.archive.finish()
    assert replica.archive.checkpointer.status.error is None, replica.archive.checkpointer.status.error
replica.close()
"""
"""Syncs, seals and writes snapshots one after the other, in one thread. strace counts calls by thread, and no call may
be left out."""


def append(log: Path, first: int, stop: int) -> None:
    with LogWriter(str(log), segment_bytes=6000) as writer:
        for number in range(first, stop):
            writer.append(b"%d:" % number + bytes(500))


def make_fresh(place: Path, warm: Warm) -> None:
    """A log of three log segments, of which nothing was shipped."""
    append(place / "log", 0, 25)


def make_diverged(place: Path, warm: Warm) -> None:
    """A log that was shipped, then set back and rewritten: the next run ends a generation and begins another."""
    append(place / "log", 0, 5)
    shutil.copytree(place / "log", place / "earlier")
    append(place / "log", 5, 15)
    assert ship(place, warm).returncode == 0
    for path in (place / "log").iterdir():
        path.unlink()
    for path in (place / "earlier").iterdir():
        path.rename(place / "log" / path.name)
    append(place / "log", 5, 12)


def make_away(place: Path, warm: Warm) -> None:
    """A log that grew after a daemon had shipped a part of it: the log segment that was begun, and two more."""
    append(place / "log", 0, 15)
    assert ship(place, warm, seals=True).returncode == 0
    append(place / "log", 15, 45)


def make_rekeyed(place: Path, warm: Warm) -> None:
    """A log that was shipped encrypted, and grew: the next run begins a generation for another recipient."""
    secrets, public = zip(*(new_identity() for _ in range(2)), strict=True)
    (place / "identity").write_text("\n".join(secrets))
    append(place / "log", 0, 25)
    (place / "recipient").write_text(public[0])
    assert ship(place, warm, seals=True).returncode == 0
    append(place / "log", 25, 40)
    (place / "recipient").write_text(public[1])


def make_signed(place: Path, warm: Warm) -> None:
    """A log that was shipped with checkpoints, and grew by three log segments."""
    (place / "key").write_text(PRIVATE)
    append(place / "log", 0, 15)
    assert ship(place, warm).returncode == 0
    append(place / "log", 15, 45)


def ship(place: Path, warm: Warm, *tracing: str, seals: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a daemon until all is shipped. ``seals``: when it starts, it ships finished log segments sealed."""
    folders = [str(place / name) for name in ("log", "replica", "state")]
    recipient = (place / "recipient").read_text() if (place / "recipient").exists() else ""
    key = str(place / "key") if (place / "key").exists() else ""
    return run_traced(warm, tracing, SCRIPT, *folders, "seals" if seals else "", recipient, key)


def steps_of(place: Path, warm: Warm, calls: str, situation: str, *, seals: bool) -> Iterable[int]:
    """The numbers of the calls at which to kill the daemon.

    By day they are a sample of the calls that a whole run makes in one thread, and a number that no run reaches. At
    night they are all numbers: the walk ends when a run is not killed."""
    if NIGHTLY:
        return range(1, MOST_STEPS)
    trace = place.with_name("trace")
    done = ship(place, warm, "-o", str(trace), "-e", f"trace={calls}", seals=seals)
    assert done.returncode == 0, done.stderr
    count = max(count_calls(trace).values())
    return [*sampled(range(1, count + 1), ONE_IN, f"ship {situation} {calls}"), MOST_STEPS]


def set_back(place: Path, template: Path) -> None:
    """Set replica and state back. The log stays: no daemon writes there, and a copy would count as a restored log."""
    for name in ("replica", "state", "restored"):
        shutil.rmtree(place / name, ignore_errors=True)
        if (template / name).exists():
            shutil.copytree(template / name, place / name)


def open_store(place: Path) -> ObjectStore:
    """The store of the replica, for the holder of its identity."""
    identity = place / "identity"
    return decrypting(FileStore(str(place / "replica")), {"identity-file": str(identity)} if identity.exists() else {})


def restored(place: Path) -> Path:
    client = ObjectReplicaClient(open_store(place))
    log_format = open_format("litelog")
    restore(client, find_plan(client, Target(), log_format), str(place / "restored"), log_format=log_format)
    return place / "restored"


def require_chain(place: Path) -> None:
    """Assert that the checkpoints are one chain, which states all of the log."""
    client = ObjectReplicaClient(open_store(place))
    stored, damaged = read_checkpoints(client)
    chain = find_trusted(stored, [KEY]).chain
    assert (damaged, len(chain)) == ([], len(stored))
    compared = compare_with_own(client, open_format, [KEY])
    assert (compared.differences, compared.compared) == ((), len(segments(place / "log")))


def standing_for_sealed(place: Path) -> int:
    """The number of WAL segments in the replica that stand for a sealed segment."""
    generations = read_replica(open_store(place)).values()
    return sum("sealed" in header for generation in generations for header, _, _ in generation.segments)


def sealed_in(place: Path) -> dict[str, bytes]:
    """The sealed segments, by their paths in the replica. Several generations may seal the same index."""
    replica = place / "replica"
    found = replica.glob("generations/*/segments/*.segment.lz4")
    return {str(path.relative_to(replica)): path.read_bytes() for path in found}


SITUATIONS = {
    "fresh": (make_fresh, False),
    "diverged": (make_diverged, False),
    "fresh, sealed": (make_fresh, True),
    "diverged, sealed": (make_diverged, True),
    "away, sealed": (make_away, True),
    "rekeyed, sealed": (make_rekeyed, True),
    "signed": (make_signed, False),
}


@pytest.mark.parametrize(
    ("situation", "calls"), sampled_cases(product(SITUATIONS, CALLS), 2, "situations and calls of a daemon that ships")
)
def test_a_daemon_killed_at_any_call_continues_where_it_was(
    tmp_path: Path, warm: Warm, situation: str, calls: str
) -> None:
    make, seals = SITUATIONS[situation]
    place, template = tmp_path / "place", tmp_path / "template"
    place.mkdir()
    make(place, warm)
    shutil.copytree(place, template)
    killed = 0
    for step in steps_of(place, warm, calls, situation, seals=seals):
        set_back(place, template)
        died = ship(place, warm, "-e", f"trace={calls}", "-e", f"inject={calls}:signal=KILL:when={step}", seals=seals)
        acknowledged = max(map(int, died.stdout.split()), default=0)
        if died.returncode == 0:
            break
        assert died.returncode == -signal.SIGKILL, died.stderr
        killed += 1
        there = sealed_in(place)
        again = ship(place, warm, seals=seals)
        assert again.returncode == 0, again.stderr
        assert {name: sealed_in(place)[name] for name in there} == there
        assert segments(restored(place)) == segments(place / "log"), (calls, step)
        assert count_records(place / "restored") >= acknowledged
        if situation == "signed":
            require_chain(place)
        assert standing_for_sealed(place) == (2 if situation == "away, sealed" else 0), (calls, step)
    else:
        pytest.fail(f"still killed at call {MOST_STEPS}")
    name = situation.replace(", ", "_")
    report(f"ship_crash_{name}_{calls.replace(',', '_')}", crash_points=killed, failures=0)
    assert killed > 0
