"""The compiled functions read and write nothing outside of their buffers: sanitizers see it."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from litelog.native.library import SOURCE
from tests.sampling import NIGHTLY, SEED

DRIVER = Path(__file__).parents[2] / "builders" / "walks_driver.c"
ROUNDS = 1_000_000 if NIGHTLY else 20_000
OPTIONS = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-Wall", "-Wextra", "-Werror"]


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    """The driver, compiled with the source and with sanitizers."""
    compiler, program = shlex.split(os.environ.get("CC", "cc")), tmp_path / "driver"
    empty = tmp_path / "empty.c"
    empty.write_text("int main(void) { return 0; }\n")
    try:
        subprocess.run([*compiler, *OPTIONS, "-o", str(program), str(empty)], check=True, capture_output=True)
        subprocess.run([str(program)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("there is no C compiler with sanitizers")
    folder = os.path.dirname(SOURCE)
    subprocess.run([*compiler, *OPTIONS, f"-I{folder}", "-o", str(program), str(DRIVER)], check=True)
    return program


@pytest.mark.process
def test_no_function_leaves_its_buffers(driver: Path) -> None:
    done = subprocess.run([str(driver), SEED, str(ROUNDS)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    counts = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    *walked, digests = counts
    frames, records, commands, *others = walked
    assert all(good > ROUNDS // 10 for good, _ in walked), counts  # most calls find something
    assert sum(digests) > ROUNDS // 2, counts
    assert commands[1] == 0
    assert all(refused > ROUNDS // 100 for _, refused in (frames, records, *others)), counts
