"""The demo runs with real processes, and loses nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "litelog_cli", *arguments], capture_output=True, text=True, check=False
    )


def test_the_demo_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    result = run("demo", "--seconds", "1.5", "--folder", str(tmp_path / "demo"))
    assert result.returncode == 0, result.stderr
    numbers = {what: int(number) for number, what in re.findall(r"^ +(\d+) records (\w+)", result.stdout, re.M)}
    assert 0 < numbers["acknowledged"] <= numbers["restored"] <= numbers["durable"] < numbers["after"]
    (lag,) = re.findall(r"^ +(\d+) records not shipped when it was killed: the lag$", result.stdout, re.M)
    assert int(lag) == numbers["durable"] - numbers["restored"]
    assert "2 generations" in result.stdout
    for folder in ("lost", "log", "backup"):
        assert (tmp_path / "demo" / folder).is_dir()


def test_the_demo_refuses_an_existing_folder(tmp_path: Path) -> None:
    result = run("demo", "--folder", str(tmp_path))
    assert result.returncode == 2
    assert "exists already" in result.stderr
    assert list(tmp_path.iterdir()) == []
