"""Power cuts: the replica is never ahead of the log, and a cut of the replica's disk loses no acknowledged record."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.figures import report
from tests.faults.processes import FOREIGN
from tests.sampling import SEED, sampled_cases, times

CYCLES = times(2, at_night=10)
SIDES = ("source", "replica")
TOOLS = ("unshare", "mkfs.ext4", "mount", "umount", "losetup")


def reason_to_skip() -> str | None:
    if os.geteuid() != 0:
        return "power cuts need root: a file system is mounted"
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"power cuts need {', '.join(missing)}"
    if subprocess.run(["losetup", "--find"], capture_output=True, check=False).returncode:
        return "power cuts need a loop device"
    return None


@pytest.mark.parametrize(
    ("log_format", "side"),
    [
        *(("litelog", side) for side in SIDES),
        *sampled_cases([(name, side) for name in FOREIGN for side in SIDES], 6, "power cuts"),
    ],
)
@pytest.mark.timeout(1800)
def test_a_power_cut_leaves_the_log_ahead_of_its_replica(tmp_path: Path, log_format: str, side: str) -> None:
    if reason := reason_to_skip():
        pytest.skip(reason)
    script = str(Path(__file__).with_name("power_cycle.py"))
    command = ["unshare", "--mount", sys.executable, script, str(tmp_path), side, str(CYCLES), SEED, log_format]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    report(f"power_loss_{log_format}_{side}", **found)
    assert found["cycles"] == CYCLES
    assert found["records"] > 0
    assert found["leads"] == 0
    assert found["acknowledged_records_lost"] == 0
