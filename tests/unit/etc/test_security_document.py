"""``etc/docs/security.md``: each row of its table of thieves names tests that exist, for each promise."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PROMISES = 12


def rows() -> list[list[str]]:
    table = (ROOT / "etc/docs/security.md").read_text().split("<!-- thief table -->\n")[1].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[2:]]


def test_each_promise_has_a_row_with_what_each_thief_can_do() -> None:
    found = rows()
    assert len(found) == PROMISES
    assert all(len(row) == 5 and all(row) for row in found)
    promised = (ROOT / "etc/docs/guarantees.md").read_text().split("## Promises")[1].split("##")[0]
    names = [row[0] for row in found]
    assert [name for name in names if f"| {name} |" not in promised] == ["safe retention", "secrecy"]


def test_each_row_names_tests_that_exist() -> None:
    named = [text for row in rows() for text in re.findall(r"`(test_\w+\.py(?:::\w+)?)`", row[-1])]
    assert all(re.search(r"`test_", row[-1]) for row in rows())
    for text in named:
        module, _, test = text.partition("::")
        found = [path.read_text() for path in (ROOT / "tests").rglob(module)]
        assert any(f"def {test}(" in source or not test for source in found), text
