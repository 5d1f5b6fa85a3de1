"""The tombstone: a small file that says where a log begins since it was truncated. It lies in the log's folder, or, for
the formats of other programs, where the state of the log's replicas is kept.

It is durable before the first log segment goes, so whoever finds less than was there finds the reason, too.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from litelog.codec.checksum import crc32c
from litelog.codec.decoding import JsonLimits
from litelog.codec.typed_fields import build
from litelog.system.private_files import read_json

if TYPE_CHECKING:
    from litelog.log.disk import Disk

NAME = ".tombstone"
"""No log format takes a name with a dot in front for a log segment's."""

VERSION = 1

MAX_HEAD_BYTES = 64 << 10
"""How much of a log segment is compared at most."""

LIMITS = JsonLimits(size=64 << 10, values=100, texts=100, containers=10, depth=2)
"""What such a file may hold: a name and four numbers."""


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
        fields = read_json(os.path.join(folder, NAME), LIMITS)
        if fields.pop("version") != VERSION or fields.pop("crc") != _crc(fields):
            return None
        tombstone = build(Tombstone, fields)
        return tombstone if _is_possible(tombstone) else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def write_tombstone(folder: str, tombstone: Tombstone, disk: Disk) -> None:
    """Put it there, durably, in the place of the one before. OSError."""
    path = os.path.join(folder, NAME)
    temporary = f"{path}.tmp"
    fields = asdict(tombstone)
    body = json.dumps({"version": VERSION, **fields, "crc": _crc(fields)}).encode()
    mode = 0o600 | (os.stat(folder).st_mode & 0o044)  # in a private folder it is private
    with suppress(FileNotFoundError):
        os.unlink(temporary)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        disk.write(descriptor, [body], 0)
        disk.sync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, path)
    disk.sync_folder(folder)


def _is_possible(tombstone: Tombstone) -> bool:
    return (tombstone.first or 0) >= 0 and 0 <= tombstone.head_length <= MAX_HEAD_BYTES and "/" not in tombstone.file


def _crc(fields: dict[str, object]) -> int:
    return crc32c(json.dumps(fields, sort_keys=True).encode())
