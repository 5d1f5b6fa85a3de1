"""Formats whose log segments are all files that match a pattern: their names, order and rotation.

The bytes of these files do not identify the log.

Specified in litelog/formats/README.md#file-names.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from litelog.errors import ConfigError
from litelog.formats.capabilities import INDEX_SUFFIXES
from litelog.formats.log_format import FinishedTail

if TYPE_CHECKING:
    from uuid import UUID


class PatternFormat:
    """Files that match ``pattern``, a glob, in natural order. They are shipped to their last byte."""

    finished_tail = FinishedTail.SHIP
    has_timestamps = False
    self_numbered = False
    has_log_id = False

    def __init__(self, pattern: str = "*") -> None:
        self.pattern = pattern

    def segment_order(self, name: str) -> tuple[object, ...] | None:
        return natural_order(name, self.pattern)

    def check_names(self, names: list[str]) -> None:
        refuse_rotation(names, self.pattern)

    def log_id(self, name: str, head: memoryview) -> UUID | None:  # noqa: ARG002  # such bytes have none
        return None


NEVER_SEGMENTS = (*INDEX_SUFFIXES, ".tmp")
"""Indexes are rewritten in place and can be rebuilt; temporary files are renamed."""

_NUMBERS = re.compile(r"([0-9]+)")
_COMPRESSED = r"(?:\.(?:gz|bz2|xz|zst|lz4|Z))?"
_SHIFTED = re.compile(r"(?P<base>.+)\.[0-9]+" + _COMPRESSED, re.DOTALL)
_DATED = re.compile(r"(?P<base>.+)-[0-9]{8,}" + _COMPRESSED, re.DOTALL)


def natural_order(name: str, pattern: str) -> tuple[object, ...] | None:
    """The sort key of ``name``, with its numbers compared as numbers; None if ``name`` does not match the pattern."""
    if name.startswith(".") or name.endswith(NEVER_SEGMENTS) or not fnmatchcase(name, pattern):
        return None
    parts = _NUMBERS.split(name)
    # Text and numbers alternate, so text is compared with text. The name itself decides between a1 and a01.
    return (tuple(int(part) if place & 1 else part for place, part in enumerate(parts)), name)


def refuse_rotation(names: list[str], pattern: str) -> None:
    """Raise ConfigError if a log segment is renamed when it is full, so that its name will mean another file."""
    segments = {name for name in names if natural_order(name, pattern) is not None}
    for name in sorted(names):
        shifted, dated = _SHIFTED.fullmatch(name), _DATED.fullmatch(name)
        if shifted and shifted["base"] in segments:
            base = shifted["base"]
            raise ConfigError(
                f"{base} next to {name}: rotation by renaming gives each name to another file each time, so names do "
                f"not show what was replicated; let finished files keep their names (logrotate: dateext), and "
                f"replicate those with the pattern '{base}-*'"
            )
        if dated and dated["base"] in segments:
            base = dated["base"]
            raise ConfigError(
                f"{base} next to {name}: {base} is renamed when it is full, so its name will mean another file; "
                f"replicate only the finished files, with the pattern '{base}-*', or let the program write into dated "
                "files from the start"
            )
