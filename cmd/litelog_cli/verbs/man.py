"""``litelog man``: prints manual pages, made from the verbs' own help."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from litelog.version import VERSION
from litelog_cli.output import echo_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog_cli.reference import Paragraph, VerbHelp


@click.command(
    epilog="""\b
Examples:
  litelog man | man -l -
  litelog man restore | man -l -
  litelog man > /usr/local/share/man/man1/litelog.1
"""
)
@click.argument("verb", nargs=-1)
@click.pass_context
def man(ctx: click.Context, verb: tuple[str, ...]) -> None:
    """Print the manual page of VERB, or one page for all verbs.

    The page is for man(1), in the language of troff.
    """
    from litelog_cli.reference import describe_verbs

    root = ctx.find_root().command
    described = list(describe_verbs(root))
    name = " ".join(("litelog", *verb))
    chosen = [each for each in described if each.name == name] if verb else described
    if not chosen:
        raise click.UsageError(f"no verb {' '.join(verb)!r}; litelog --help lists all")
    echo_lines(make_page(chosen))


def make_page(verbs: list[VerbHelp]) -> Iterator[str]:
    """The lines of a page that begins with the first of ``verbs`` and describes all of them."""
    first, *others = verbs
    title = first.name.replace(" ", "-")
    about = first.about[0].text.split(". ")[0].rstrip(".") if first.about else ""
    yield f'.TH "{_escape(title.upper())}" 1 "" "litelog {_escape(VERSION)}" "User Commands"'
    yield ".SH NAME"
    yield f"{_escape(title)} \\- {_escape(about)}"
    yield ".SH SYNOPSIS"
    yield f".B {_escape(first.usage)}"
    yield ".SH DESCRIPTION"
    yield from _body(first)
    for verb in others:
        yield f'.SH "{_escape(verb.name.upper())}"'
        yield f".B {_escape(verb.usage)}"
        yield ".PP"
        yield from _body(verb)


def _body(verb: VerbHelp) -> Iterator[str]:
    for paragraph in verb.about:
        yield from _paragraph(paragraph)
    for syntax, description in verb.options:
        yield ".TP"
        yield f".B {_escape(syntax)}"
        yield _escape(" ".join(description.split()))
    for paragraph in verb.notes:
        yield from _paragraph(paragraph)


def _paragraph(paragraph: Paragraph) -> Iterator[str]:
    yield ".PP"
    if paragraph.verbatim:
        yield ".nf"
        yield from map(_escape, paragraph.text.splitlines())
        yield ".fi"
    else:
        yield _escape(paragraph.text)


def _escape(text: str) -> str:
    r"""Escape text for troff, which takes ``\``, ``-`` and a line that begins with a dot or a quote as commands."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
