"""The manifest of an append-only file: which files are part of it, in the order in which Redis loads them.

A line is ``file <name> seq <number> type <b, i or h>``: the base file, incremental files, and files that Redis is about
to delete. Specified in litelog/formats/README.md#redis-aof.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NAME = re.compile(
    r"(?!\.|temp-)(?P<prefix>[^\s\"'/]+)\.(?P<number>[1-9][0-9]{0,18})\.(?P<kind>base\.rdb|base\.aof|incr\.aof)"
)
"""The name of a file that Redis 7 or later writes."""

SUFFIX = ".manifest"


def is_manifest(name: str) -> bool:
    """Whether a file's name is that of a manifest."""
    return name.endswith(SUFFIX) and not name.startswith((".", "temp-"))


def read_manifest(content: bytes) -> list[str]:
    """The files that Redis loads, in order: at most one base file, and the incremental files.

    Raises ValueError for anything that Redis 7 or later does not write.
    """
    bases: list[tuple[int, str]] = []
    increments: list[tuple[int, str]] = []
    for line in content.decode("utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        words = line.split()
        facts = dict(zip(words[::2], words[1::2], strict=False))
        name, kind = facts.get("file", ""), facts.get("type", "")
        if kind == "h":
            continue
        match = NAME.fullmatch(name)
        if match is None and kind == "b":
            raise ValueError(
                f"its base file {name!r} is older than Redis 7: run BGREWRITEAOF in Redis, and wait for it"
            )
        if match is None or kind not in {"b", "i"} or (kind == "b") != match["kind"].startswith("base"):
            raise ValueError(f"its line {line[:200]!r} is not as Redis writes it")
        (bases if kind == "b" else increments).append((int(match["number"]), name))
    if len(bases) > 1 or not (bases or increments) or increments != sorted(set(increments)):
        raise ValueError("it does not list at most one base file, and incremental files with rising numbers")
    return [name for _, name in (*bases, *increments)]


def write_manifest(names: Sequence[str]) -> tuple[str, bytes]:
    """The name and content of the manifest that lists these files, which are in order."""
    matches = [match for name in names if (match := NAME.fullmatch(name)) is not None]
    return f"{matches[0]['prefix']}{SUFFIX}", "".join(_lines(matches)).encode()


def _lines(matches: Iterable[re.Match[str]]) -> Iterable[str]:
    for match in matches:
        yield f"file {match[0]} seq {match['number']} type {'b' if match['kind'].startswith('base') else 'i'}\n"
