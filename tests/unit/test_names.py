"""Names in the code: a public class name stands for one thing, and words that readers do not know are not used."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from litelog.events import EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
FOLDERS = ("litelog", "cmd", "replica_clients")

RETIRED = {
    "absence": "backlog",
    "clearing": "cleanup",
    "course": "run state",
    "donor": "fallback replica",
    "finders": "log discovery",
    "hasten": "schedule now",
    "let go": "pruned, removed or closed",
    "mend": "repair",
    "mended": "repaired",
    "mender": "repairer",
    "mending": "repair",
    "pen": "write lock",
    "poke": "wake",
    "passed over": "skipped",
    "pass over": "skip",
    "refute": "mark contradicted",
    "roster": "members",
    "scrubbed": "scrub finished",
    "snapped": "snapshot written",
    "stand in": "reconstruct",
    "substitute": "fallback",
    "under way": "in progress",
    "workshop": "context",
}
"""The words that names may not hold, and what is used instead. The glossary of ``litelog/README.md`` has the others."""

LONGEST_PROMISE = 75
"""How many characters the name of a test may have after ``test_``."""


@cache
def sources() -> tuple[tuple[Path, ast.Module], ...]:
    """Each module of the library and of the command, parsed."""
    paths = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")))
    return tuple((path.relative_to(ROOT), ast.parse(path.read_text())) for path in paths)


@pytest.fixture(scope="module", autouse=True)
def forget_sources() -> Iterator[None]:
    """Give back what is parsed, 80 MiB, at the end of the module."""
    yield
    sources.cache_clear()


def names() -> Iterator[tuple[str, str]]:
    """Each name of a module, a class, a function or a log event, and where it stands."""
    for path, tree in sources():
        yield path.stem, str(path)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name, f"{path}:{node.lineno}"
    for event in EVENTS:
        yield event, "litelog/events.py"


@cache
def words(name: str) -> str:
    """``KeptSegments``, ``kept_segments`` and ``kept-segments`` are `` kept segments ``."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return " " + re.sub(r"[\s_-]+", " ", apart).strip().lower() + " "


def holds(name: str, word: str) -> bool:
    """Whether ``name`` has that word in it, in the singular or the plural."""
    return f" {word} " in words(name) or f" {word}s " in words(name)


def test_no_two_public_classes_have_the_same_name() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{path}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_names_do_not_use_retired_words() -> None:
    found = [
        f"{place}: {name}: say {use}" for name, place in names() for word, use in RETIRED.items() if holds(name, word)
    ]
    assert found == []


def test_names_of_tests_are_short_enough_to_read() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for name in re.findall(r"^\s*(?:async )?def (\w+)", path.read_text(), re.MULTILINE)
        if len(name.removeprefix("test_")) > LONGEST_PROMISE
    ]
    assert found == []


@pytest.mark.parametrize(
    "name", ["Roster", "_see_roster", "file-passed-over", "StandInLookup", "find_donors", "LetGoError"]
)
def test_a_retired_word_is_found_in_any_spelling(name: str) -> None:
    assert any(holds(name, word) for word in RETIRED)
