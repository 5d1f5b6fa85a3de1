"""Describes every verb from its click command. ``python -m litelog_cli.reference`` prints ``etc/docs/cli.md``."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

import click

from litelog.dataclass import dataclass
from litelog_cli.main import litelog
from litelog_cli.output import echo_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD = """# Commands

`python -m litelog_cli.reference` makes this page from the command's own help. A test fails if it differs from the code.

The exit codes of each verb, and what `--json` prints, are in [scripting.md](scripting.md).
"""

_MARKDOWN = re.compile(r"([\\*<|`])")


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph of a help text. A ``verbatim`` paragraph keeps its lines."""

    text: str
    verbatim: bool


@dataclass(frozen=True, slots=True)
class VerbHelp:
    """The help of a verb, without a terminal's width."""

    name: str
    """As it is typed: ``litelog config check``."""

    usage: str
    about: list[Paragraph]
    options: list[tuple[str, str]]
    """Each option as it is typed, and its description."""

    notes: list[Paragraph]
    """Examples, exit codes and whatever else follows the options."""


def describe_verbs(command: click.Command = litelog) -> Iterator[VerbHelp]:
    """Yield the help of a command and of all verbs below it, in the order of its own help."""
    yield from _describe(click.Context(command, info_name="litelog", **command.context_settings))


def make_reference() -> str:
    """The page of all verbs, as Markdown."""
    return _HEAD + "".join(f"{line}\n" for verb in describe_verbs() for line in _page_lines(verb))


def _describe(ctx: click.Context) -> Iterator[VerbHelp]:
    command = ctx.command
    options = [each for each in command.get_params(ctx) if isinstance(each, click.Option)]
    records = [record for option in options if (record := option.get_help_record(ctx)) is not None]
    yield VerbHelp(
        ctx.command_path,
        " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)]),
        _paragraphs(command.help),
        records,
        _paragraphs(command.epilog),
    )
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            verb = command.get_command(ctx, name)
            if verb is not None and not verb.hidden:
                yield from _describe(click.Context(verb, parent=ctx, info_name=name))


def _paragraphs(text: str | None) -> list[Paragraph]:
    r"""Split a help text at its empty lines. As in click's own help, ``\b`` marks a paragraph that keeps its lines."""
    found = []
    for part in re.split(r"\n\s*\n|\n(?=\x08)", inspect.cleandoc(text or "")):
        marked, verbatim = part.strip("\n"), "\b" in part
        lines = [line.rstrip() for line in marked.replace("\b", "").strip("\n").splitlines()]
        if any(lines):
            found.append(Paragraph("\n".join(lines) if verbatim else " ".join(map(str.strip, lines)), verbatim))
    return found


def _page_lines(verb: VerbHelp) -> Iterator[str]:
    yield ""
    yield f"## {verb.name}"
    yield ""
    yield "```text"
    yield verb.usage
    yield "```"
    for paragraph in verb.about:
        yield from _paragraph_lines(paragraph)
    yield ""
    yield "| option | |"
    yield "|---|---|"
    for syntax, description in verb.options:
        yield f"| `{syntax.replace('|', chr(92) + '|')}` | {_escape(' '.join(description.split()))} |"
    for paragraph in verb.notes:
        yield from _paragraph_lines(paragraph)


def _paragraph_lines(paragraph: Paragraph) -> Iterator[str]:
    yield ""
    if paragraph.verbatim:
        yield "```text"
        yield from paragraph.text.splitlines()
        yield "```"
    else:
        yield _escape(paragraph.text)


def _escape(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", text)


if __name__ == "__main__":
    echo_lines(make_reference().splitlines())
