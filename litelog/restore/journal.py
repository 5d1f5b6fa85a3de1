"""What a restore has verified so far, kept beside the files that it writes: a killed one need not fetch it again.

A line for each range of a log segment: JSON, which begins with the CRC-32C of what follows it. It promises nothing: a
range is reused only if its bytes still have the checksums that the sealed segment states, whatever the journal says. So
it does not matter which of the two came to the disk first, nor whether the plan is still the same.
"""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING, NamedTuple

from litelog.checksum import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterable

JOURNAL_NAME = ".litelog-restore-journal"
"""Beside the log segments, as long as the folder has its temporary name."""

MAX_JOURNAL_BYTES = 64 << 20
"""More is not read: then the restore begins anew."""


class Verified(NamedTuple):
    """Bytes [start, stop) of a log segment that were written and checked."""

    file: str
    digest: str
    """The SHA-256 of the whole log segment."""
    start: int
    stop: int


class Journal:
    """The ranges that are there. Shared by threads."""

    def __init__(self, folder: int, held: Iterable[Verified] = ()) -> None:
        """``folder``: the descriptor of the folder; ``held``: what an earlier restore left there."""
        self._folder = folder
        self._held = set(held)
        self._adopted: set[tuple[str, str]] = set()
        self._file = -1
        self._lock = threading.Lock()

    @property
    def files(self) -> set[str]:
        """The names of the log segments of which anything is there."""
        with self._lock:
            return {held.file for held in self._held} | {name for name, _ in self._adopted}

    def holds(self, verified: Verified) -> bool:
        """Whether that range is there, of this restore or an earlier one."""
        return verified in self._held or (verified.file, verified.digest) in self._adopted

    def adopt(self, name: str, digest: str) -> None:
        """Take all of a log segment for there, as long as this restore lasts."""
        self._adopted.add((name, digest))

    def add(self, verified: Verified) -> None:
        """Note a range that was written."""
        line = encode_line(verified)
        with self._lock:
            self._held.add(verified)
            if self._file < 0:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
                self._file = os.open(JOURNAL_NAME, flags, 0o666, dir_fd=self._folder)
                line = b"\n" + line  # an earlier last line may be torn
            os.write(self._file, line)

    def sync(self) -> None:
        """Make durable what was noted."""
        with self._lock:
            if self._file >= 0:
                os.fsync(self._file)

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1


def read_journal(folder: int) -> list[Verified]:
    """What an earlier restore left in the folder of that descriptor, by the whole lines of its journal."""
    try:
        file = os.open(JOURNAL_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return []
    with os.fdopen(file, "rb") as opened:
        text = opened.read(MAX_JOURNAL_BYTES + 1)
    found = map(_decode_line, text.splitlines()) if len(text) <= MAX_JOURNAL_BYTES else ()
    return [verified for verified in found if verified is not None]


def encode_line(verified: Verified) -> bytes:
    """A line of the journal."""
    text = json.dumps(verified).encode()
    return b"%08x %s\n" % (crc32c(text), text)


def _decode_line(line: bytes) -> Verified | None:
    stated, _, text = line.partition(b" ")
    if stated != b"%08x" % crc32c(text):
        return None
    try:
        return Verified(*json.loads(text))
    except (ValueError, TypeError):
        return None
