"""Loads a Config from a file's text, or raises one error that lists all problems."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, TypeVar

from litelog.config.checked_model import Model
from litelog.config.entries import SearchedFolder
from litelog.config.field_types import MistakesError, Source
from litelog.config.located_values import Problem, TextPosition
from litelog.config.models import Config, known_keys, same_places, spell, written
from litelog.errors import ConfigError, ConfigMistake, InvalidConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pydantic_core import ErrorDetails

    from litelog.config.field_types import Location
    from litelog.config.located_values import Document

_Model = TypeVar("_Model", bound=Model)

MAX_FILE_BYTES = 1 << 20
"""The most bytes of a configuration file: enough for thousands of logs."""

SECRET_KEYS = frozenset(("options", "heartbeat-url"))
"""Keys whose values are not shown, since they may be secret."""

_PATH = re.compile(r"[^\s:{}\[\]#]+\.ya?ml|/[^\n]*")
"""Matches a path. A YAML text is not matched, since it holds a mapping."""

MAX_SHOWN = 60
"""Characters of a wrong value that a message shows."""


def load_config(
    source: str | os.PathLike[str],
    environment: Mapping[str, str] | None = None,
    check: Callable[[Config], Iterable[tuple[Location, ConfigError]]] | None = None,
) -> Config:
    """Load a configuration from YAML.

    Args:
        source: a file's path, or a YAML text: a str that does not look like a path.
        environment: replaces ``${VAR}`` and ``${VAR:-default}`` in values; None: the variables of this process.
        check: returns further problems of a valid configuration, each with the path of its key.

    Returns:
        The configuration, with every default filled in.

    Raises:
        ConfigError: the file cannot be read.
        InvalidConfigError: the configuration is invalid. The error lists every problem with its line.
    """
    from litelog.config.document import read_document  # noqa: PLC0415 - a command with arguments needs no YAML

    environment = os.environ if environment is None else environment
    if isinstance(source, str) and not _PATH.fullmatch(source):
        name, text = "config", source
    else:
        name = os.fspath(source)
        text = _read_file(name)
    document = read_document(text, environment)
    problems = list(document.problems)
    config = None
    if document.value is not None or not problems:
        broken = {problem.location for problem in problems}
        try:
            values = {} if document.value is None else document.value
            config = Config.read(values, Source(is_document=True, by_alias=True, by_name=False))
        except MistakesError as error:
            problems += [
                _describe(document, detail) for detail in error.details() if written(detail["loc"]) not in broken
            ]
        problems += [problem for problem in _repeated(document) if problem.location not in broken]
    if config is not None and not problems and check is not None:
        problems += [_refused(document, location, str(error)) for location, error in check(config)]
    if config is None or problems:
        problems.sort(key=lambda problem: (problem.place.line, problem.place.column))
        mistakes = [_locate(problem) for problem in problems]
        raise InvalidConfigError(name, [_render(mistake) for mistake in mistakes], mistakes)
    return config


def make_config(source: str, values: Mapping[str, Any]) -> Config:
    """Make a Config from plain values.

    Args:
        source: says in messages where the values come from.
        values: the keys as Python spells them (``sync_interval``), and their values.

    Returns:
        The configuration, with every default filled in.

    Raises:
        InvalidConfigError: the values are invalid. The error lists every problem.
    """
    return _make(Config, source, values)


def make_folder(source: str, values: Mapping[str, Any]) -> SearchedFolder:
    """Make a SearchedFolder from plain values, as ``make_config``. Raises InvalidConfigError."""
    return _make(SearchedFolder, source, values)


def _make(model: type[_Model], source: str, values: Mapping[str, Any]) -> _Model:
    try:
        return model.read(values, Source(is_document=False, by_alias=False, by_name=True))
    except MistakesError as error:
        problems = [f"{spell(detail['loc'])}: {_message(detail)}".removeprefix(": ") for detail in error.details()]
        raise InvalidConfigError(source, problems) from None  # the original error shows values


def _read_file(path: str) -> str:
    try:
        with open(path, "rb") as file:  # may be a pipe: shells pass one for --config <(COMMAND)
            body = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    if len(body) > MAX_FILE_BYTES:
        raise ConfigError(f"{path}: larger than {MAX_FILE_BYTES} bytes")
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}: line {line}: not UTF-8") from error


def _locate(problem: Problem) -> ConfigMistake:
    key = spell(problem.location) if problem.location else ""
    return ConfigMistake(problem.place.line, problem.place.column, key, problem.message)


def _render(mistake: ConfigMistake) -> str:
    where = f"{mistake.key}: " if mistake.key else ""
    return f"line {mistake.line}, column {mistake.column}: {where}{mistake.message}"


def _describe(document: Document, detail: ErrorDetails) -> Problem:
    location: Location = written(detail["loc"])
    kind = detail["type"]
    if kind == "extra_forbidden":
        return Problem(location, document.keys.get(location, TextPosition(1, 1)), _unknown_key(detail["loc"]))
    place = document.places.get(location)
    if kind == "missing":
        return Problem(location, document.places.get(location[:-1], TextPosition(1, 1)), _required(location))
    message = _message(detail)
    if (shown := document.shown.get(location)) and not SECRET_KEYS.intersection(location):
        message += f" (found {_shorten(shown)!r})"
    return Problem(location, place or TextPosition(1, 1), message)


def _refused(document: Document, location: Location, message: str) -> Problem:
    known = location
    while known not in document.places:  # a default, which is not in the text
        known = known[:-1]
    return Problem(location, document.places[known], message)


def _message(detail: ErrorDetails) -> str:
    return _MESSAGES.get(detail["type"]) or detail["msg"].removeprefix("Value error, ")


_CLIENT_OPTIONS = {
    "access-key-id",
    "access-key-secret",
    "bucket",
    "endpoint",
    "force-path-style",
    "profile",
    "region",
    "secret-access-key",
    "session-token",
}
"""Keys that other programs take next to a replica's URL. Here they belong under ``options``, if the backend knows
them."""

_FOLDER_NAMES = {"folder", "folders", "directory"}
"""Keys that look like that of a folder of logs."""

_OTHER_NAMES = {"dbs": "logs"}
"""Keys of the whole file in another program's configuration, and their names here."""

_MESSAGES = {
    "string_type": "must be text (in quotes, if it looks like a number)",
    "string_too_short": "may not be empty",
    "string_unicode": "must be text in UTF-8",
    "tuple_type": "must be a list",
    "model_type": "must be a mapping of keys to values",
    "model_attributes_type": "must be a mapping of keys to values",
}


def _required(location: Location) -> str:
    is_log = [part for part in location if isinstance(part, str)] == ["logs", "path"]
    return "is required (or dir, for a folder of logs)" if is_log else "is required"


def _unknown_key(location: Location) -> str:
    known = known_keys(location[:-1])
    if ("path" in known or "logs" in known) and str(location[-1]) in _FOLDER_NAMES:
        return "unknown key; for a folder of logs, give its path as dir, in an entry of logs"
    known += ["dir"] if "path" in known else []
    if "url" in known and str(location[-1]).replace("_", "-") in _CLIENT_OPTIONS:
        return f"unknown key; it belongs under options: (options: {{{location[-1]}: ...}})"
    from difflib import get_close_matches  # noqa: PLC0415 - only a mistake needs it

    name = str(location[-1]).replace("_", "-")
    near = [other] if (other := _OTHER_NAMES.get(name)) in known else get_close_matches(name, known, 1, 0.6)
    return f"unknown key; did you mean {near[0]}?" if near else f"unknown key (known: {', '.join(known)})"


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."


def _repeated(document: Document) -> list[Problem]:
    """Find logs and replicas that appear twice. Reads the document instead of the models, which errors may hide."""
    paths: list[tuple[Location, str]] = []
    urls: list[tuple[Location, str]] = []
    for number, log in enumerate(_entries(document.value, "logs")):
        paths += _texts(("logs", number, "path"), log)
        for position, replica in enumerate(_entries(log, "replicas")):
            urls += _texts(("logs", number, "replicas", position, "url"), replica)
    return [
        Problem(location, document.places[location], f"is the same as {spell(first)}; name every log and replica once")
        for location, first in [*same_places(paths), *same_places(urls)]
    ]


def _entries(value: Any, key: str) -> list[Any]:
    entries = value.get(key) if isinstance(value, dict) else None
    return entries if isinstance(entries, list) else []


def _texts(location: Location, entry: Any) -> list[tuple[Location, str]]:
    if isinstance(entry, str) and entry and location[-1] == "url":  # a replica that is its URL alone
        return [(location[:-1], entry)]
    text = entry.get(location[-1]) if isinstance(entry, dict) else None
    return [(location, text)] if isinstance(text, str) and text else []
