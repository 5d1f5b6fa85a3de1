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


@pytest.fixture(params=["this processor", "any processor"])
def driver(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The driver, compiled with the source and with sanitizers; for any processor without the parts for x86."""
    compiler, program = shlex.split(os.environ.get("CC", "cc")), tmp_path / "driver"
    empty = tmp_path / "empty.c"
    empty.write_text("int main(void) { return 0; }\n")
    try:
        subprocess.run([*compiler, *OPTIONS, "-o", str(program), str(empty)], check=True, capture_output=True)
        subprocess.run([str(program)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("there is no C compiler with sanitizers")
    for path in (*Path(SOURCE).parent.glob("*.[ch]"), DRIVER):
        text = path.read_text()
        portable = text.replace("defined(__x86_64__)", "0")
        assert "__x86" not in portable
        (tmp_path / path.name).write_text(text if request.param == "this processor" else portable)
    subprocess.run([*compiler, *OPTIONS, "-o", str(program), str(tmp_path / DRIVER.name)], check=True)
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
