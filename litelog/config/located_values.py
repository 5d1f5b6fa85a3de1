"""The values of a YAML text, and where each of them stands."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from litelog.dataclass import dataclass


class Expanded(str):
    """Text that results from an expansion. YAML has not given it a type, so readers of values convert it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TextPosition:
    """A place in the text; line and column count from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem in a document. ``location`` is the path of the key."""

    location: tuple[str | int, ...]
    place: TextPosition
    message: str


@dataclass(slots=True)
class Document:
    """The content of a text. All fields except ``value`` map the path of keys and list positions."""

    value: Any = None
    places: dict[tuple[str | int, ...], TextPosition] = field(default_factory=dict)
    """Where each value stands."""
    keys: dict[tuple[str | int, ...], TextPosition] = field(default_factory=dict)
    """Where each value's key stands."""
    shown: dict[tuple[str | int, ...], str] = field(default_factory=dict)
    """Each scalar as written, before expansion and without credentials: messages may show it."""
    problems: list[Problem] = field(default_factory=list)
