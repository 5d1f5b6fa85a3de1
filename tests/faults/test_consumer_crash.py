"""Kills a consumer at every system call of its commits: no record is left out, and at most one batch comes again."""

from __future__ import annotations

import shutil
import signal
from typing import TYPE_CHECKING

import pytest

from litelog.consumers.consumer import Consumer
from litelog.consumers.position_file import PositionFile
from litelog.log.replica_registry import log_state_folder
from litelog.log.writer import LogWriter
from tests.faults.figures import report
from tests.faults.tracing import count_calls, run_traced, why_not_traced
from tests.sampling import NIGHTLY, sampled

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.warm import Warm

pytestmark = pytest.mark.skipif(why_not_traced() is not None, reason=why_not_traced() or "")

CALLS = (
    "fsync,fdatasync",
    "link,linkat,unlink,unlinkat",
    "mkdir,mkdirat",
    "openat,flock",
    "rename,renameat,renameat2",
    "write,pwrite64",
)
MOST_STEPS = 400
ONE_IN = 4
RECORDS, BATCH = 10, 4

CONSUME = """
import sys
from litelog.consumers.consumer import Consumer

log, state = sys.argv[1:]
consumer = Consumer(log, "billing", follow=False, state_dir=state)
taken = []
for record in consumer:
    taken.append(record.sequence)
    if len(taken) % 4 == 0:
        print(*taken, flush=True)
        consumer.commit()
        taken = []
print(*taken, flush=True)
consumer.commit()
"""


def consume(log: str, state: str) -> list[int]:
    """What a consumer after the killed one gets."""
    with Consumer(log, "billing", follow=False, state_dir=state) as consumer:
        sequences = [record.sequence for record in consumer]
        consumer.commit()
    return sequences


def steps_of(warm: Warm, calls: str, trace: Path, log: str, state: str) -> Iterable[int]:
    """The numbers of the calls at which to kill: by day a sample of a whole run's calls, and a number that no run
    reaches."""
    if NIGHTLY:
        return range(1, MOST_STEPS)
    done = run_traced(warm, ("-o", str(trace), "-e", f"trace={calls}"), CONSUME, log, state)
    assert done.returncode == 0, done.stderr
    count = max(count_calls(trace).values(), default=0)
    return [*(sampled(range(1, count + 1), ONE_IN, calls) if count else ()), MOST_STEPS]


@pytest.mark.parametrize("calls", CALLS)
def test_a_consumer_killed_at_any_call_leaves_nothing_out(tmp_path: Path, warm: Warm, calls: str) -> None:
    log, state = str(tmp_path / "log"), str(tmp_path / "state")
    with LogWriter(log) as writer:
        for number in range(RECORDS):
            writer.append(b"%d" % number)
    file = PositionFile(log_state_folder(state, log), "billing")
    killed = 0
    steps = steps_of(warm, calls, tmp_path / "trace", log, state)
    for step in steps:
        shutil.rmtree(state, ignore_errors=True)
        inject = ("-e", f"trace={calls}", "-e", f"inject={calls}:signal=KILL:when={step}")
        died = run_traced(warm, inject, CONSUME, log, state)
        if died.returncode == 0:
            break
        assert died.returncode == -signal.SIGKILL, died.stderr
        killed += 1
        processed = [int(each) for each in died.stdout.split()]
        held = file.read()
        position = 0 if held is None else held.next or 0
        assert processed == list(range(len(processed)))
        assert position <= len(processed) <= position + BATCH
        assert consume(log, state) == list(range(position, RECORDS))
        assert consume(log, state) == []
    else:
        pytest.fail(f"still killed at call {MOST_STEPS}")
    report(f"consumer_crash_{calls.split(',', maxsplit=1)[0]}", crash_points=killed, failures=0)
    assert killed > 0
