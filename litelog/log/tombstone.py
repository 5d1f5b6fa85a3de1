"""The tombstone: a small file that says where a log begins since it was truncated. It lies in the log's folder, or, for
the formats of other programs, where the state of the log's replicas is kept.

It is durable before the first log segment goes, so whoever finds less than was there finds the reason, too.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from litelog.checksum import crc32c

if TYPE_CHECKING:
    from litelog.log.disk import Disk

NAME = ".tombstone"
"""No log format takes a name with a dot in front for a log segment's."""

VERSION = 1


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Where a log begins."""

    file: str
    """The first log segment that is there."""
    first: int | None
    """The first available sequence."""
    head_length: int = 0
    """How many of its first bytes are known again; 0 where it tells its sequences itself."""
    head_crc: int = 0
    """Their CRC-32C."""


def read_tombstone(folder: str) -> Tombstone | None:
    """The tombstone of the log in ``folder``; None where there is none that can be read."""
    try:
        with open(os.path.join(folder, NAME), encoding="utf-8") as file:
            fields = json.load(file)
        if fields.pop("version") != VERSION or fields.pop("crc") != _crc(fields):
            return None
        return Tombstone(**fields)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def write_tombstone(folder: str, tombstone: Tombstone, disk: Disk) -> None:
    """Put it there, durably, in the place of the one before. OSError."""
    path = os.path.join(folder, NAME)
    temporary = f"{path}.tmp"
    fields = asdict(tombstone)
    body = json.dumps({"version": VERSION, **fields, "crc": _crc(fields)}).encode()
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        disk.write(descriptor, [body], 0)
        disk.sync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, path)
    disk.sync_folder(folder)


def _crc(fields: dict[str, object]) -> int:
    return crc32c(json.dumps(fields, sort_keys=True).encode())
