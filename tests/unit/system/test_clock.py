"""Code gets its clock as an argument. Only one module asks the machine for the time."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import litelog
from litelog.system import clock

ROOT = Path(litelog.__file__).parent
WITH_A_MACHINE_OF_THEIR_OWN = ("server", "spark")
"""Packages that no simulation runs: a service over HTTP, and Spark's processes."""


def _asks_for_the_time(module: Path) -> bool:
    source = module.read_text()
    if not re.search(r"^\s*import .*\btime\b", source, re.MULTILINE):  # parsing all of them takes a second
        return False
    imports = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import))
    return any(alias.name == "time" for node in imports for alias in node.names)


@pytest.mark.slow
def test_only_the_clock_asks_the_machine_for_the_time() -> None:
    modules = [
        path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] not in WITH_A_MACHINE_OF_THEIR_OWN
    ]
    assert [path for path in modules if _asks_for_the_time(path)] == [Path(clock.__file__)]
