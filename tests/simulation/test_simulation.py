"""Simulated hours of daemons, writers and stores, each by a seed; see ``python -m tests.simulation --help``."""

from __future__ import annotations

import subprocess
import sys

import pytest


def _simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: threads, clocks and the calls of ``os`` are exchanged in all of it."""
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.process
def test_a_seed_is_replayed_to_the_last_turn() -> None:
    runs = [_simulate("--seed", "5", "--table", "--without", "root_away,lose_objects") for _ in range(2)]
    tables = [[line for line in run.stdout.splitlines() if "simulated hours" not in line] for run in runs]
    assert tables[0] == tables[1]
    assert any("turns of tasks" in line for line in tables[0])
