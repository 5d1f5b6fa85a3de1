"""What the verbs print: tables for people, JSON lines for programs, times and bytes."""

from __future__ import annotations

import base64
import io
import json
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PLAIN_WIDTH = 10_000
"""Columns of a table that is not for a terminal: nothing is wrapped."""

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object in one line."""
    sys.stdout.write(json_line(value))


def json_line(value: Mapping[str, Any]) -> str:
    """The line, of characters that standard output takes: JSON escapes what it cannot hold in ASCII."""
    return json.dumps(value, ensure_ascii=not _takes_all()) + "\n"


def _takes_all() -> bool:
    return (sys.stdout.encoding or "utf-8").lower().startswith("utf")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[str] = ()) -> None:
    """Rows under column titles; ``numbers`` are the columns to align on the right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    right = set(numbers)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", no_wrap=not sys.stdout.isatty())
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    if sys.stdout.isatty():
        Console(file=sys.stdout, highlight=False).print(table)
        return
    console = Console(file=io.StringIO(), width=PLAIN_WIDTH, highlight=False)
    with console.capture() as capture:
        console.print(table)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def format_number(number: float | None) -> str:
    """A number as it is; ``-`` where there is none."""
    return "-" if number is None else str(number)


def format_time(microseconds: int | None) -> str:
    """Microseconds since 1970 as ISO 8601 in UTC; ``-`` where there is none."""
    if microseconds is None:
        return "-"
    try:
        moment = _BEGINNING + timedelta(microseconds=microseconds)
    except OverflowError:
        return f"{microseconds}us"
    return moment.isoformat(timespec="microseconds" if microseconds % 1_000_000 else "seconds").replace("+00:00", "Z")


def json_bytes(value: bytes | None) -> str | dict[str, str] | None:
    """Bytes as JSON holds them: text where they are UTF-8, else ``{"base64": ...}``."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
