"""Parses YAML into plain values, remembers where every key stands, and then replaces ${VARIABLES}."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml
from yaml.composer import ComposerError

from litelog.config.located_values import Document, Expanded, Problem, TextPosition
from litelog.stores.registry import redact

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_DEPTH = 16
"""The deepest nesting of a document. The configuration has five levels; the composer recurses for each."""

_EXPANSION = re.compile(r"\$(?:(\$)|\{([A-Za-z_][A-Za-z0-9_]*)(?::-((?:[^}$]|\$\$)*))?\})?")


_TAG = "tag:yaml.org,2002:"
_TAGS = frozenset(
    _TAG + kind for kind in ("map", "seq", "str", "null", "bool", "int", "float", "timestamp", "merge", "value")
)
"""The types of values without an explicit tag; ``<<`` and ``=`` are included."""


class _Composer(yaml.SafeLoader):
    """Composes the nodes of one document. Refuses aliases, and limits the depth while it composes."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        mark: Any = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        if self.check_event(yaml.AliasEvent):
            raise ComposerError(None, None, "aliases are not supported: write the value out", mark)
        if self.depth >= MAX_DEPTH:
            raise ComposerError(None, None, f"nested more than {MAX_DEPTH} deep", mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def read_document(text: str, environment: Mapping[str, str]) -> Document:
    """Parse the YAML document in ``text``. Problems are not raised: ``Document.problems`` lists them."""
    document = Document()
    try:
        node = _compose(text)
    except yaml.YAMLError as error:
        document.problems.append(_syntax_problem(error, text))
        return document
    document.places[()] = TextPosition(1, 1) if node is None else _place(node)
    if node is not None:
        document.value = _Reader(document, environment).read(node, ())
    return document


def _compose(text: str) -> yaml.Node | None:
    composer = _Composer(text)
    try:
        return composer.get_single_node()
    finally:
        composer.dispose()


def _syntax_problem(error: yaml.YAMLError, text: str) -> Problem:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        message = " ".join(part for part in (error.context, error.problem) if part)
        place = TextPosition(mark.line + 1, mark.column + 1) if mark else TextPosition(1, 1)
        return Problem((), place, f"not YAML: {message}")
    if isinstance(error, yaml.reader.ReaderError):
        before = text[: error.position]
        place = TextPosition(before.count("\n") + 1, len(before) - before.rfind("\n"))
        return Problem((), place, f"not YAML: {error.reason}")
    return Problem((), TextPosition(1, 1), "not YAML")


class _Reader:
    """Converts nodes to values, and records where they stand."""

    def __init__(self, document: Document, environment: Mapping[str, str]) -> None:
        self._document = document
        self._environment = environment

    def read(self, node: yaml.Node, location: tuple[str | int, ...]) -> Any:
        """The value of ``node``: dict, list, text, number, bool or None."""
        self._document.places[location] = _place(node)
        if node.tag not in _TAGS:
            written = node.tag.replace(_TAG, "!!", 1)
            self._report(location, _place(node), f"the tag {written} is not supported: write the value out")
        if isinstance(node, yaml.MappingNode):
            return self._read_mapping(node, location)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(item, (*location, number)) for number, item in enumerate(node.value)]
        return self._read_scalar(node, location)

    def _read_mapping(self, node: yaml.MappingNode, location: tuple[str | int, ...]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._report(location, _place(key_node), "a key must be text")
                continue
            key = key_node.value
            below = (*location, key)
            if key in values:
                first = self._document.keys[below].line
                self._report(below, _place(key_node), f"appears twice, first in line {first}")
                continue
            self._document.keys[below] = _place(key_node)
            values[key] = self.read(value_node, below)
        return values

    def _read_scalar(self, node: yaml.Node, location: tuple[str | int, ...]) -> Any:
        text: str = node.value
        self._document.shown[location] = redact(text)
        kind = node.tag.rpartition(":")[2]
        if kind == "null":
            return None
        if kind == "bool" and text.lower() in yaml.SafeLoader.bool_values:
            return yaml.SafeLoader.bool_values[text.lower()]
        if kind in ("int", "float"):
            try:
                return int(text) if kind == "int" else float(text)
            except ValueError:
                return text  # hex, sexagesimal and similar forms are not numbers here
        return self._expand(text, location) if "$" in text else text

    def _expand(self, text: str, location: tuple[str | int, ...]) -> Any:
        def value_of(match: re.Match[str]) -> str:
            dollar, name, default = match.groups()
            if dollar:
                return "$"
            if name is None:
                self._report(location, self._document.places[location], "a lone $: write ${NAME}, or $$ for a dollar")
                return ""
            value = self._environment.get(name, "")
            if value or (default is None and name in self._environment):
                return value
            if default is None:
                self._report(location, self._document.places[location], f"the variable {name} is not set")
                return ""
            return default.replace("$$", "$")

        return Expanded(_EXPANSION.sub(value_of, text))

    def _report(self, location: tuple[str | int, ...], place: TextPosition, message: str) -> None:
        self._document.problems.append(Problem(location, place, message))


def _place(node: yaml.Node) -> TextPosition:
    return TextPosition(node.start_mark.line + 1, node.start_mark.column + 1)
