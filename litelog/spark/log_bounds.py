"""Bounds for single logs: parses the JSON object of an option, and finds the logs that its names mean."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

NAMED_LOGS = 5
"""How many logs a message names."""

_KAFKA_WORDS = {-2: "earliest", -1: "latest"}
"""The meaning of these numbers where Kafka expects an offset."""


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The bounds of single logs, by option and by the name that the user wrote. None: the log has no such bound."""

    values: Mapping[str, Mapping[str, int | None]] = field(default_factory=dict)

    def of(self, logs: Sequence[str]) -> list[dict[str, int | None]]:
        """The bounds of each of these logs, by option.

        Raises ConfigError if a name means none of them, or more than one, or if two names of an option mean the same.
        """
        found: list[dict[str, int | None]] = [{} for _ in logs]
        for option, bounds in self.values.items():
            for log, name in match_names(option, bounds, logs).items():
                found[log][option] = bounds[name]
        return found


def split_by_log(option: str, text: str) -> dict[str, str] | None:
    """The text of the bound of each named log, if ``text`` is a JSON object; None if it is one bound for all logs.

    An object for a topic has bounds by partition, as Kafka writes them: each is for the log ``<topic>-<partition>``.

    Raises ConfigError if a value in the object is not a number or a text.
    """
    if not text.lstrip().startswith("{"):
        return None
    example = 'such as {"orders": 17, "payments": 3}'
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        raise ConfigError(f"{option}={text!r} is not valid JSON, {example}") from None
    found: dict[str, str] = {}
    for name, bound in given.items():
        if isinstance(bound, Mapping):
            found |= {f"{name}-{number}": _kafka_text(option, name, number, each) for number, each in bound.items()}
        else:
            found[name] = _bound_text(option, name, bound)
    return found


def _kafka_text(option: str, topic: str, number: str, bound: object) -> str:
    """The bound of a partition, in which Kafka's numbers stand for words."""
    if not number.isdecimal():
        raise ConfigError(f"{option}: {number!r} of {topic!r} is not the number of a partition")
    if isinstance(bound, int) and not isinstance(bound, bool) and bound in _KAFKA_WORDS:
        return _KAFKA_WORDS[bound]
    return _bound_text(option, f"{topic}-{number}", bound)


def _bound_text(option: str, name: str, bound: object) -> str:
    if isinstance(bound, int) and bound in _KAFKA_WORDS and not isinstance(bound, bool):
        raise ConfigError(f'{option}: {name!r} is {bound}: write "{_KAFKA_WORDS[bound]}", or leave the log out')
    if isinstance(bound, bool) or not isinstance(bound, int | str):
        raise ConfigError(f"{option}: {name!r} must be a number or a text, not {json.dumps(bound)}")
    return str(bound)


def match_names(option: str, names: Collection[str], logs: Sequence[str]) -> dict[int, str]:
    """Map each log that any of ``names`` means, as its number in ``logs``, to that name.

    A name is the log's whole name in the column ``log``, or the end of it after a ``/``, or the log's URL. Raises
    ConfigError as ``LogBounds.of`` does.
    """
    found: dict[int, str] = {}
    for name in names:
        wanted = (name.partition("://")[2] or name).strip("/")
        exact = [number for number, log in enumerate(logs) if log == wanted]
        meant = exact or [number for number, log in enumerate(logs) if wanted and log.endswith(f"/{wanted}")]
        if not meant:
            raise ConfigError(f"{option}: no log is named {name!r}; the logs are {_listed(logs)}")
        if len(meant) > 1:
            several = _listed([logs[number] for number in meant])
            raise ConfigError(f"{option}: {name!r} may mean {several}: write more of the path")
        if meant[0] in found:
            raise ConfigError(f"{option}: {found[meant[0]]!r} and {name!r} mean the same log, {logs[meant[0]]}")
        found[meant[0]] = name
    return found


def _listed(logs: Sequence[str]) -> str:
    more = len(logs) - NAMED_LOGS
    return ", ".join(logs[:NAMED_LOGS]) + (f", and {more} others" if more > 0 else "")
