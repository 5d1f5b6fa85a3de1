"""The layout of the tree: no module is too long, each unit test names its module, test modules import no others."""

from __future__ import annotations

import ast
import re
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"

ELSEWHERE = {
    "builders": "tests/builders",
    "faults": "tests/faults",
    "litelog_cli": "cmd/litelog_cli",
    "replica_clients": "replica_clients",
    "simulation": "tests/simulation",
}
"""The folders in ``tests/unit`` that are not named after a package of ``litelog``, and whose modules they test."""

WITHOUT_A_MODULE = {"etc/*", "test_layout.py", "test_names.py", "test_public_names.py", "test_specification.py"}
"""Tests of files other than modules, and tests of the whole tree."""

SOURCES = ("litelog", "cmd", "replica_clients")
MOST_LINES = 600
"""The most lines of a module. About 400 are usual."""

SECTION = re.compile(r"^ *# ?[-=]{2}", re.MULTILINE)
"""Matches a comment that only marks a section. The reason against these is in CONTRIBUTING.md."""


def module_folder(place: Path) -> Path:
    """The folder whose modules the tests at ``place`` in ``tests/unit`` test."""
    first, *more = place.parts[:-1] or ("",)
    return ROOT.joinpath(ELSEWHERE.get(first, f"litelog/{first}"), *more)


def names_a_module(place: Path) -> bool:
    """Whether ``test_<module>.py`` or ``test_<module>_<theme>.py`` names a module or a package that exists."""
    folder = module_folder(place)
    words = place.stem.removeprefix("test_").split("_")
    names = accumulate(words, lambda name, word: f"{name}_{word}")
    return any((folder / f"{name}.py").is_file() or (folder / name / "__init__.py").is_file() for name in names)


def imported_modules(source: str) -> Iterator[str]:
    """The modules that a source imports, and the names that it imports from them, with dots."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module or ''}.{alias.name}" for alias in node.names)


_MAY_IMPORT_TESTS = re.compile(r"^\s*(?:import|from)\b.*\btest_|\bimport \(", re.MULTILINE)
"""Matches a line that may import a test module. Only a tenth of the sources have such a line and must be parsed."""


def imported_tests(source: str) -> list[str]:
    """The test modules that a source imports: ``from a.test_b import c`` names ``test_b``, like ``import a.test_b``."""
    if not _MAY_IMPORT_TESTS.search(source):
        return []
    return [name for name in imported_modules(source) if any(part.startswith("test_") for part in name.split("."))]


def test_each_unit_test_names_the_module_that_it_tests() -> None:
    places = [path.relative_to(TESTS / "unit") for path in sorted((TESTS / "unit").rglob("test_*.py"))]
    named = [place for place in places if not any(place.match(each) for each in WITHOUT_A_MODULE)]
    assert [str(place) for place in named if not names_a_module(place)] == []


@pytest.mark.slow
def test_no_module_is_too_long_to_read() -> None:
    lengths = {path: path.read_bytes().count(b"\n") for folder in SOURCES for path in (ROOT / folder).rglob("*.py")}
    assert [str(path.relative_to(ROOT)) for path, length in sorted(lengths.items()) if length > MOST_LINES] == []


@pytest.mark.slow
def test_no_comment_marks_a_section() -> None:
    paths = [path for folder in (*SOURCES, "tests") for path in (ROOT / folder).rglob("*.py")]
    assert [str(path.relative_to(ROOT)) for path in sorted(paths) if SECTION.search(path.read_text())] == []


@pytest.mark.slow
def test_test_modules_do_not_import_each_other() -> None:
    found = {
        str(path.relative_to(ROOT)): tests
        for path in sorted(TESTS.rglob("*.py"))
        if (tests := imported_tests(path.read_text()))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("place", "named"),
    [
        ("log/test_writer.py", True),
        ("log/test_truncation_unnumbered.py", True),
        ("server/test_page.py", True),  # a package
        ("formats/litelog/test_format.py", True),
        ("litelog_cli/test_output.py", True),
        ("test_units.py", True),
        ("log/test_writ.py", False),
        ("log/test_unnumbered_truncation.py", False),
        ("server/test_writer.py", False),
        ("none/test_writer.py", False),
        ("test_none.py", False),
    ],
)
def test_a_test_of_no_module_is_found(place: str, named: bool) -> None:
    assert names_a_module(Path(place)) == named


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from tests.unit.log.test_writer import fill", True),
        ("from tests.unit.log import test_writer", True),
        ("from test_writer import fill", True),
        ("import tests.unit.log.test_writer", True),
        ("def f():\n    from tests.spark.test_batch import read", True),
        ("from tests.builders.log_builder import make_log", False),
        ("import latest_record", False),
    ],
)
def test_an_import_of_a_test_module_is_found(source: str, found: bool) -> None:
    assert bool(imported_tests(source)) == found
