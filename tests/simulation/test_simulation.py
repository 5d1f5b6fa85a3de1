"""Simulated hours of daemons, writers, readers and stores; see ``python -m tests.simulation --help``.

The nightly run has a thousand hours (``.ci/nightly``), and tests/simulation/removed_rules.py shows what they find.
"""

from __future__ import annotations

import subprocess
import sys
from random import Random

import pytest

from tests import sampling

HOURS = 10
"""Simulated hours of each of the two shares that a test run has; a seed has one or two."""

SECONDS = 110
"""After which a share begins no further seed: on a machine that has other things to do it has fewer hours."""


def _simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: threads, clocks and the calls of ``os`` are exchanged in all of it."""
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.process
@pytest.mark.timeout(900)
@pytest.mark.parametrize("share", [0, 1])
def test_no_promise_is_broken_in_simulated_hours(share: int) -> None:
    first = Random(f"simulation {sampling.SEED} {share}").randrange(1_000_000)
    figures = f".figures/simulation-{share}.json"
    bounds = ("--hours", str(HOURS), "--seconds", str(SECONDS))
    run = _simulate("--seeds", f"{first}-", *bounds, "--shrink", "--json", figures)
    print(run.stdout)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.process
@pytest.mark.timeout(600)
def test_each_plan_that_guards_a_rule_breaks_no_promise() -> None:
    run = _simulate("--guards", "--go-on")
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.process
def test_a_seed_is_replayed_to_the_last_turn() -> None:
    runs = [_simulate("--seed", "0", "--keep", "0,1", "--table") for _ in range(2)]
    tables = [[line for line in run.stdout.splitlines() if "simulated hours" not in line] for run in runs]
    assert tables[0] == tables[1]
    assert any("turns of tasks" in line for line in tables[0])
