"""``etc/docs/troubleshooting.md`` names messages that the code has, and every error class with its exit code."""

from __future__ import annotations

import inspect
import re

from litelog import errors
from tests.builders.documents import ROOT, section

PAGE = "etc/docs/troubleshooting.md"


def described(error: type[errors.LitelogError]) -> str:
    """The row of an error class, with its meaning from the first paragraph of the docstring."""
    meaning = " ".join(inspect.getdoc(error).split("\n\n")[0].split())  # type: ignore[union-attr]
    return f"| `{error.__name__}` | {int(error.exit_code)} | {meaning} |"


def test_every_error_class_has_its_row() -> None:
    classes = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, errors.LitelogError)]
    found = re.findall(r"^\| `\w+Error` .*\|$", section(PAGE, "Errors, by exit code"), re.MULTILINE)
    expected = sorted(classes, key=lambda each: (each.exit_code, each.__name__))
    assert found == [described(each) for each in expected]


def test_every_message_is_one_of_the_code() -> None:
    sources = "\n".join(
        path.read_text() for folder in ("litelog", "cmd", "replica_clients") for path in (ROOT / folder).rglob("*.py")
    )
    messages = re.findall(r"^\| (`.*?`) \|", section(PAGE, "Messages"), re.MULTILINE)
    assert len(messages) > 15
    assert [each for row in messages for each in re.findall(r"`([^`]+)`", row) if each not in sources] == []
