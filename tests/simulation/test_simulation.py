"""Simulated hours of daemons, writers, readers and stores; see ``python -m tests.simulation --help``.

The nightly run has a thousand hours (``.ci/nightly``), and tests/simulation/removed_rules.py shows what they find.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

HOURS = 10
"""Simulated hours of each of the two shares that a test run has; a seed has one or two."""

FIRST_SEEDS = (0, 20)
"""The same seeds in each run, so that a failure comes from the change. Nightly runs take others."""


def _simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run in a separate process, since threads, clocks and the calls of ``os`` are replaced in all of it."""
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.process
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", FIRST_SEEDS)
def test_no_promise_is_broken_in_simulated_hours(first: int) -> None:
    figures = f".figures/simulation-{first}.json"
    run = _simulate("--seeds", f"{first}-", "--hours", str(HOURS), "--seconds", "inf", "--shrink", "--json", figures)
    print(run.stdout)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.process
@pytest.mark.timeout(600)
def test_each_plan_that_guards_a_rule_breaks_no_promise() -> None:
    run = _simulate("--guards", "--go-on", "--one-in", "6")
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.process
def test_a_seed_is_replayed_to_the_last_turn() -> None:
    runs = [_simulate("--seed", "0", "--keep", "0,1", "--table") for _ in range(2)]
    tables = [[line for line in run.stdout.splitlines() if "simulated hours" not in line] for run in runs]
    assert tables[0] == tables[1]
    assert any("turns of tasks" in line for line in tables[0])
