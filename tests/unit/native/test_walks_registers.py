"""The compiled functions leave the upper parts of the vector registers empty.

While these hold something, instructions for 16 bytes wait for each other: SHA-256 takes 2.5 times as long, and LZ4 is
slower, in the whole process.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from litelog.native.library import SOURCE

DRIVER = Path(__file__).parents[2] / "builders" / "registers_driver.c"


@pytest.mark.process
def test_a_checksum_leaves_the_upper_parts_of_registers_empty(tmp_path: Path) -> None:
    compiler, program = shlex.split(os.environ.get("CC", "cc")), tmp_path / "driver"
    command = [*compiler, "-O2", f"-I{os.path.dirname(SOURCE)}", "-o", str(program), str(DRIVER)]
    try:
        subprocess.run(command, check=True)
    except OSError:
        pytest.skip("there is no C compiler")
    counts = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.split()
    if not counts:
        pytest.skip("the processor has no registers of 32 bytes")
    assert set(counts) == {"0"}
