"""Kills real processes with kill -9 at random moments under load, then restores and compares byte by byte."""

from __future__ import annotations

import random
import shutil
import threading
from typing import TYPE_CHECKING

import pytest

from tests.faults.figures import report
from tests.faults.processes import (
    COMMAND,
    FOREIGN,
    Spoken,
    anything,
    append_to,
    assert_prefix,
    count_records,
    litelog,
    replicate_words,
    segments,
    shipped,
)
from tests.sampling import SEED, sampled_cases, times

if TYPE_CHECKING:
    from pathlib import Path

    from tests.warm import Warm

CYCLES, LOSE_EVERY = times((3, 2), at_night=(25, 5))
"""The cycles of each of the two tests, at night 50 for both together; and the kills after which the log itself is lost,
and the restored one replaces it."""

MAX_RUN_SECONDS = 0.25
"""The longest time under load before writer and daemon are killed."""


def is_shipping(daemon: Spoken) -> bool:
    """Whether it has reported a durable WAL segment. Log segments finished before are then in a snapshot."""
    return shipped(daemon) > 0


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("log_format", "number"),
    [("litelog", 1), ("litelog", 2), *sampled_cases([(name, 1) for name in FOREIGN], len(FOREIGN), "kill cycles")],
)
def test_nothing_acknowledged_is_lost_by_kill_9(warm: Warm, tmp_path: Path, log_format: str, number: int) -> None:
    choose = random.Random(f"{SEED} {log_format} {number}")
    log, replica, state = tmp_path / "log", tmp_path / "replica", tmp_path / "state"
    records = losses = generations = 0
    for cycle in range(CYCLES):
        seed, segment_bytes = choose.getrandbits(32), choose.choice([20_000, 200_000])
        writer = append_to(warm, log_format, log, str(seed), str(segment_bytes))
        writer.wait_for(anything)
        words = (
            *replicate_words(log_format),
            "--json",
            "--state-dir",
            str(state),
            "--sync-interval",
            "5ms",
            str(log),
            str(replica),
        )
        daemon = Spoken(warm, COMMAND, *words)
        daemon.wait_for(is_shipping)
        daemon_first = choose.random() < 0.5
        threading.Event().wait(choose.uniform(0, MAX_RUN_SECONDS))
        for process in (daemon, writer) if daemon_first else (writer, daemon):
            process.kill()

        written = int(writer.lines[-1])
        acknowledged = shipped(daemon)
        restored = tmp_path / "restored"
        done = litelog(warm, "restore", str(replica), "-o", str(restored))
        assert done.returncode == 0, done.stderr
        assert_prefix(segments(restored, log_format), segments(log, log_format))
        count = count_records(restored, log_format)
        assert count >= acknowledged, f"cycle {cycle}: {acknowledged} acknowledged, {count} restored"
        assert count_records(log, log_format) >= written, f"cycle {cycle}: the log itself lost durable records"
        records = max(records, count)
        generations = len(list((replica / "generations").iterdir()))
        if cycle % LOSE_EVERY == LOSE_EVERY - 1:
            shutil.rmtree(log)
            restored.rename(log)
            losses += 1
        else:
            shutil.rmtree(restored)
    report(
        f"kill_cycles_{log_format}_{number}",
        cycles=CYCLES,
        logs_lost=losses,
        records=records,
        generations=generations,
        acknowledged_records_lost=0,
    )
    assert generations == 1 + (CYCLES - 1) // LOSE_EVERY
