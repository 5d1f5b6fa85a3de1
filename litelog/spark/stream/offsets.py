"""A stream's offsets: where it stands in each log. What Spark keeps in the checkpoint, and compares as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from litelog.errors import ConfigError, UnknownVersionError
from litelog.objects.position import MAX_INDEX, MAX_OFFSET, Position, generation

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1


@dataclass(frozen=True, slots=True)
class LogOffset:
    """Where a stream stands in a log: all before it was given."""

    position: Position
    sequence: int | None
    """No record with a lower one is given from here on; None where that is not known."""


def encode(offsets: Mapping[str, LogOffset]) -> dict[str, Any]:
    """``{"version", "logs": {log: {"generation", "index", "offset", "sequence"}}}``, keys always in this order, logs
    by their names: the same offsets are the same text."""
    return {"version": VERSION, "logs": {name: _encode_log(offsets[name]) for name in sorted(offsets)}}


def _encode_log(offset: LogOffset) -> dict[str, Any]:
    at = offset.position
    return {"generation": at.generation, "index": at.index, "offset": at.offset, "sequence": offset.sequence}


def decode(written: Mapping[str, Any]) -> dict[str, LogOffset]:
    """What ``encode`` was given. UnknownVersionError for what a newer litelog wrote; ConfigError for what none did."""
    version = written.get("version") if isinstance(written, dict) else None
    if type(version) is int and version > VERSION:
        raise UnknownVersionError("the stream's checkpoint", "offsets", VERSION, version)
    try:
        if type(version) is not int or version != VERSION:
            raise ValueError(f"version is {version!r}")
        return {name: _decode_log(offset) for name, offset in written["logs"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"the stream's checkpoint holds no offset of litelog's: {error}") from None


def _decode_log(written: Mapping[str, Any]) -> LogOffset:
    index, offset, sequence = written["index"], written["offset"], written["sequence"]
    for name, number, most in (("index", index, MAX_INDEX), ("offset", offset, MAX_OFFSET)):
        if type(number) is not int or not 0 <= number <= most:
            raise ValueError(f"{name} is {number!r}")
    if sequence is not None and (type(sequence) is not int or sequence < 0):
        raise ValueError(f"sequence is {sequence!r}")
    return LogOffset(Position(generation(written["generation"]), index, offset), sequence)
