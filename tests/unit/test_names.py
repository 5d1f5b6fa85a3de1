"""Names in the code: each public class name means one thing, and no name has a word that readers do not know."""

from __future__ import annotations

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
"""The most characters that the name of a test may have after ``test_``."""


DEFINITION = re.compile(r"^ *(class|(?:async )?def) (\w+)(?=[(:\[])", re.MULTILINE)
"""Matches the first line of a class or a function. Parsing all modules would take seconds and 80 MiB."""


def definitions(*folders: str) -> Iterator[tuple[str, str, str]]:
    """For each class and function in the modules of ``folders``: which of the two it is, its name and its place."""
    for path in (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))):
        text, place = path.read_text(), path.relative_to(ROOT)
        for found in DEFINITION.finditer(text):
            yield found[1], found[2], f"{place}:{text.count(chr(10), 0, found.start()) + 1}"


def names() -> Iterator[tuple[str, str]]:
    """Each name of a module, a class, a function or a log event, and where it stands."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.stem, str(path.relative_to(ROOT))
    for _, name, place in definitions(*FOLDERS):
        yield name, place
    for event in EVENTS:
        yield event, "litelog/events.py"


@cache
def words(name: str) -> str:
    """Split a name: ``KeptSegments``, ``kept_segments`` and ``kept-segments`` become `` kept segments ``."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return " " + re.sub(r"[\s_-]+", " ", apart).strip().lower() + " "


def holds(name: str, word: str) -> bool:
    """Whether ``name`` contains the word, in the singular or the plural."""
    return f" {word} " in words(name) or f" {word}s " in words(name)


@pytest.mark.slow
def test_no_two_public_classes_have_the_same_name() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for kind, name, place in definitions(*FOLDERS):
        if kind == "class" and not name.startswith("_"):
            places[name].append(place)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


@pytest.mark.slow
def test_names_do_not_use_retired_words() -> None:
    found = [
        f"{place}: {name}: say {use}" for name, place in names() for word, use in RETIRED.items() if holds(name, word)
    ]
    assert found == []


@pytest.mark.slow
def test_names_of_tests_are_short_enough_to_read() -> None:
    found = [
        f"{place}: {name}"
        for kind, name, place in definitions("tests")
        if kind != "class" and len(name.removeprefix("test_")) > LONGEST_PROMISE
    ]
    assert found == []


@pytest.mark.parametrize(
    "name", ["Roster", "_see_roster", "file-passed-over", "StandInLookup", "find_donors", "LetGoError"]
)
def test_a_retired_word_is_found_in_any_spelling(name: str) -> None:
    assert any(holds(name, word) for word in RETIRED)
