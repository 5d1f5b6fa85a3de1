"""Prints the output of verbs: lines and tables for people, JSON lines for programs, times and bytes.

All text passes through ``escape``, since names, owners and reasons come from objects that anyone may have written.
Characters that would control a terminal, or start another line, are shown as escapes. No other module here prints.
"""

from __future__ import annotations

import json
import math
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

TERMINAL_WIDTH = 80
"""Columns of a terminal that does not say how wide it is."""

GAP = 2
"""Spaces between two columns of a table."""

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
    table = [list(columns), *([escape(cell) for cell in row] for row in rows)]
    widths = [max(map(_width, column)) for column in zip(*table, strict=True)]
    room = _terminal_width() if sys.stdout.isatty() else math.inf
    whole = sum(widths) + GAP * (len(widths) - 1)
    texts = max((width for title, width in zip(columns, widths, strict=True) if not title), default=0)
    if whole > room >= whole - texts + MIN_TEXT_WIDTH:
        _print_wrapped(table, set(numbers), int(room))
        return
    right = set(numbers)
    for number, row in enumerate(table):
        cells = (
            " " * (width - _width(cell)) + cell if title in right else cell + " " * (width - _width(cell))
            for title, cell, width in zip(columns, row, widths, strict=True)
        )
        line = (" " * GAP).join(cells).rstrip()
        if number == 0:
            echo_colored(line, None)
        else:
            sys.stdout.write(f"{line}\n")


def _width(text: str) -> int:
    """How many columns of a terminal ``text`` takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _terminal_width() -> int:
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or TERMINAL_WIDTH
    except (OSError, ValueError):
        return TERMINAL_WIDTH


def _print_wrapped(table: Sequence[Sequence[str]], right: set[str], width: int) -> None:
    """Print a table, whose first row has the titles, with the text in columns without a title wrapped."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    titles, *rows = table
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        shown.add_column(title, justify="right" if title in right else "left", no_wrap=bool(title), overflow="fold")
    for row in rows:
        shown.add_row(*map(Text, row))
    # Without a height, it takes a dumb terminal to have 80 columns.
    Console(file=sys.stdout, width=width, height=len(table), highlight=False).print(shown)


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
