"""Prints the output of verbs: lines and tables for people, JSON lines for programs, times and bytes.

All text passes through ``escape``, since names, owners and reasons come from objects that anyone may have written.
Characters that would control a terminal, or start another line, are shown as escapes. No other module here prints.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from litelog.units import format_iso, format_second

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from litelog.errors import LitelogError

PLAIN_WIDTH = 10_000
"""Width of a table that is not for a terminal: nothing is wrapped."""

STANDARD_OUTPUT = "standard output"
"""Its name in messages."""

JSON_VERSION = 1
"""Within a version, fields are only added to what verbs print as JSON."""

MIN_TEXT_WIDTH = 24
"""The narrowest column into which text is wrapped."""


_MARKS = "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # they change the direction of text, or break lines
_CONTROL = f"[\x00-\x1f\x7f-\x9f{_MARKS}\ud800-\udfff]"
_BEYOND_JSON = f"[\x7f-\x9f{_MARKS}\ud800-\udfff]"  # JSON escapes the others itself
# re compiles and keeps them when a text needs it: each takes a millisecond. Python calls none of them printable.
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escape(text: str) -> str:
    """``text`` as a single line, with an escape (``\\x1b``, ``\\u202e``) for characters that control a terminal."""
    if text.isprintable():
        return text
    return re.sub(_CONTROL, lambda match: _SHORT.get(match[0]) or _render(match[0]), text)


def escape_json(text: str) -> str:
    """JSON, with JSON's own escape for each character that controls a terminal."""
    if text.isprintable():
        return text
    return re.sub(_BEYOND_JSON, lambda match: f"\\u{ord(match[0]):04x}", text)


def _render(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


@contextmanager
def naming_output() -> Iterator[None]:
    """Make the error of a write in the block name standard output, which may be full."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        error.filename = STANDARD_OUTPUT
        raise


def echo(text: str = "", *, err: bool = False) -> None:
    """Print one line."""
    # A bar on the terminal replaces ``sys.stderr`` to stay below each line; click by itself would write past that.
    click.echo(escape(text), sys.stderr if err else None, err=err)


def echo_colored(text: str, color: str | None) -> None:
    """Print one line, in bold and in a color of click's if standard output is a terminal that shows colors."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    click.secho(escape(text), fg=color, bold=True, color=False if is_plain else None)


def echo_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """Print lines."""
    for line in lines:
        echo(line, err=err)


def print_json(value: Mapping[str, Any], *, versioned: bool = True) -> None:
    """Print a JSON object on one line. ``versioned``: whether to add JSON_VERSION to it."""
    sys.stdout.write(json_line({"version": JSON_VERSION, **value} if versioned else value))


def kind_of(error: LitelogError) -> str:
    """The kind of an error for programs: ``NothingToRestoreError`` is ``nothing-to-restore``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(error).__name__.strip("_").removesuffix("Error")).lower()


def error_json(kind: str, message: str, exit_code: int) -> dict[str, object]:
    """Why something failed, as JSON values."""
    return {"kind": kind, "message": message, "exit_code": exit_code}


def print_json_error(kind: str, message: str, exit_code: int, *, is_event: bool) -> None:
    """Print as JSON why a verb failed. ``is_event``: whether the line stands among the events of ``replicate``."""
    named = {"event": "error"} if is_event else {}
    print_json({**named, "error": error_json(kind, message, exit_code)})


def json_time(microseconds: int | None) -> str | None:
    """Microseconds since 1970 for JSON: ISO 8601 in UTC; None for None."""
    return None if microseconds is None else format_time(microseconds)


def with_times(fields: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return ``fields``, with those in ``names`` as ISO 8601 in UTC instead of microseconds since 1970."""
    return {name: json_time(value) if name in names else value for name, value in fields.items()}


def json_line(value: Mapping[str, Any]) -> str:
    """``value`` as a line of JSON, in ASCII if standard output does not take all characters."""
    return escape_json(json.dumps(value, ensure_ascii=not _is_utf())) + "\n"


def _is_utf() -> bool:
    return (sys.stdout.encoding or "utf-8").lower().startswith("utf")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[str] = ()) -> None:
    """Print rows under column titles. ``numbers``: columns to align on the right.

    No cell is cut. If a terminal is too narrow, the text in columns without a title is wrapped; if that is not enough,
    whole lines are.
    """
    from shutil import get_terminal_size

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    right = set(numbers)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(escape(cell)) for cell in row))
    if sys.stdout.isatty():
        width, height = get_terminal_size()
        # Without a height, it takes a dumb terminal to have 80 columns.
        console = Console(file=sys.stdout, width=width, height=height, highlight=False)
        untitled = [column for column in table.columns if not column.header]
        whole = console.measure(table, options=console.options.update(width=PLAIN_WIDTH)).maximum
        texts = max((len(str(cell)) for column in untitled for cell in column.cells), default=0)
        if whole - texts + MIN_TEXT_WIDTH <= console.width:
            for text in untitled:
                text.no_wrap, text.overflow = False, "fold"
        elif whole > console.width:
            console.width = whole  # the terminal wraps the lines
        console.print(table)
        return
    console = Console(file=io.StringIO(), width=PLAIN_WIDTH, highlight=False)
    with console.capture() as capture:
        console.print(table)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def format_number(number: float | None) -> str:
    """The number for people, with separators (``12,345``); ``-`` for None."""
    return "-" if number is None else f"{number:,}"


def format_range(first: int | None, following: int | None) -> str:
    """Sequences for people: ``0-2,999``; ``-`` for none. ``following``: the sequence after the last one."""
    return "-" if first is None or following is None or first >= following else f"{first:,}-{following - 1:,}"


def format_place(position: str | None) -> str:
    """The index and offset of a position for people, without leading zeros; ``-`` for None."""
    return "-" if position is None else "/".join(f"{int(part, 16):x}" for part in position.split("/")[1:])


def format_moment(microseconds: int | None) -> str:
    """Microseconds since 1970 for people: UTC, to the second. ``-`` for None."""
    return "-" if microseconds is None else format_second(microseconds)


def format_time(microseconds: int | None) -> str:
    """Microseconds since 1970 as ISO 8601 in UTC; ``-`` for None."""
    return "-" if microseconds is None else format_iso(microseconds)
