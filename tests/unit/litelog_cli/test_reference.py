"""``etc/docs/cli.md`` documents every verb as its own help does."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from litelog_cli.reference import Paragraph, describe_verbs, make_reference
from litelog_cli.verb_group import VERBS

DOCUMENT = Path(__file__).parents[3] / "etc" / "docs" / "cli.md"


@pytest.mark.slow
def test_the_document_is_as_the_code_says() -> None:
    assert DOCUMENT.read_text() == make_reference(), "run: python -m litelog_cli.reference > etc/docs/cli.md"


def test_every_verb_is_there_with_its_options() -> None:
    described = {verb.name: verb for verb in describe_verbs()}
    assert {f"litelog {name}" for name in VERBS} <= set(described)
    assert "litelog config check" in described
    assert "--delta" in [syntax for syntax, _ in described["litelog restore"].options]


def test_every_option_says_what_it_takes() -> None:
    plain = [(verb.name, syntax) for verb in describe_verbs() for syntax, _ in verb.options if syntax.endswith(" TEXT")]
    assert plain == []


@pytest.mark.parametrize("columns", ["40", "200"])
def test_the_page_does_not_depend_on_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    page = make_reference()
    monkeypatch.setenv("COLUMNS", columns)
    assert make_reference() == page


def test_paragraphs_keep_their_lines_where_the_help_does() -> None:
    @click.command(epilog="\b\nExamples:\n  one\n  two\n\b\n\b\nCodes: 0\nand 1.\n")
    @click.option("--x", metavar="A|B", help="One | other.")
    def verb(x: str) -> None:
        """Do\n    this.\n\n    And that."""

    (described,) = describe_verbs(verb)
    assert described.usage == "litelog [OPTIONS]"
    assert described.about == [Paragraph("Do this.", False), Paragraph("And that.", False)]
    assert described.options[0] == ("--x A|B", "One | other.")
    assert described.notes == [Paragraph("Examples:\n  one\n  two", True), Paragraph("Codes: 0\nand 1.", True)]
