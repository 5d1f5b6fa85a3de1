"""What a restore has verified so far, kept beside the files that it writes: a killed one need not fetch it again.

A line for each range of a log segment, or for each WAL segment: JSON, which begins with the CRC-32C of what follows it.
It promises nothing: bytes are reused only if they still have the checksums that the sealed segment states, or the WAL
segment's header, whatever else the journal says. So it does not matter which of the two came to the disk first, nor
whether the plan is still the same.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from typing import TYPE_CHECKING, NamedTuple

from litelog.codec.checksum import crc32c
from litelog.codec.decoding import JsonLimits, is_spelled, parse_json
from litelog.events import fields
from litelog.system.regular_files import open_regular, read_regular

if TYPE_CHECKING:
    from collections.abc import Iterable

JOURNAL_NAME = ".litelog-restore-journal"
"""Beside the log segments, as long as the folder has its temporary name."""

MAX_JOURNAL_BYTES = 64 << 20
"""More is not written, and not read: what it lacks is read from the replica."""


_WAL = "wal"
_LINE = JsonLimits(size=MAX_JOURNAL_BYTES, values=8, texts=8, containers=1, depth=1)

_logger = logging.getLogger(__name__)


class Verified(NamedTuple):
    """Bytes [start, stop) of a log segment that were written and checked."""

    file: str
    digest: str
    """The SHA-256 of the whole log segment."""
    start: int
    stop: int


class VerifiedWal(NamedTuple):
    """A WAL segment whose bytes were written and checked."""

    key: str
    file: str
    """The log segment's name."""
    object_digest: str
    """SHA-256 of the object, hex: what the next one names."""
    header: str
    """The header's text, as it is in the object."""
    kind: str = _WAL


class Journal:
    """The ranges that are there. Shared by threads."""

    def __init__(self, folder: int, held: Iterable[Verified | VerifiedWal] = ()) -> None:
        """``folder``: the descriptor of the folder; ``held``: what an earlier restore left there."""
        self._folder = folder
        self._held: set[Verified] = set()
        self._wal: dict[str, VerifiedWal] = {}
        self._wal_files: set[str] = set()
        for verified in held:
            if isinstance(verified, Verified):
                self._held.add(verified)
            else:
                self._wal[verified.key] = verified
                self._wal_files.add(verified.file)
        self._adopted: set[tuple[str, str]] = set()
        self._file = -1
        self._size = 0
        self._lock = threading.Lock()

    @property
    def files(self) -> set[str]:
        """The names of the log segments of which anything is there."""
        with self._lock:
            return {held.file for held in self._held} | {name for name, _ in self._adopted} | self._wal_files

    def holds(self, verified: Verified) -> bool:
        """Whether that range is there, of this restore or an earlier one."""
        return verified in self._held or (verified.file, verified.digest) in self._adopted

    def wal(self, key: str) -> VerifiedWal | None:
        """The WAL segment of that key, if an earlier restore wrote its bytes."""
        return self._wal.get(key)

    def adopt(self, name: str, digest: str) -> None:
        """Take all of a log segment for there, as long as this restore lasts."""
        self._adopted.add((name, digest))

    def add(self, verified: Verified) -> None:
        """Note a range that was written."""
        with self._lock:
            self._held.add(verified)
            self._write(verified)

    def add_wal(self, verified: VerifiedWal) -> None:
        """Note a WAL segment whose bytes were written."""
        with self._lock:
            self._wal_files.add(verified.file)
            self._write(verified)

    def _write(self, verified: Verified | VerifiedWal) -> None:
        line = encode_line(verified)
        if self._file < 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            self._file = open_regular(JOURNAL_NAME, flags, 0o600, dir_fd=self._folder)
            self._size = os.fstat(self._file).st_size
            line = b"\n" + line  # an earlier last line may be torn
        if self._size + len(line) <= MAX_JOURNAL_BYTES:
            self._size += os.write(self._file, line)

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


def read_journal(folder: int, path: str = "") -> list[Verified | VerifiedWal]:
    """What an earlier restore left in the folder of that descriptor, by the whole lines of its journal. ``path``: the
    folder's, for messages.

    Nothing, with a log line, where it is not a journal: then all is read again.
    """
    try:
        text = read_regular(JOURNAL_NAME, MAX_JOURNAL_BYTES, flags=os.O_NOFOLLOW, dir_fd=folder)
        found = [_decode_line(line) for line in text.split(b"\n")]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        name = os.path.join(path, JOURNAL_NAME)
        said = "%s: the journal of an earlier restore cannot be used (%s): what it left is read again"
        _logger.warning(said, name, reason, extra=fields("not-resumed", path=name))
        return []
    return [verified for verified in found if verified is not None]


def encode_line(verified: Verified | VerifiedWal) -> bytes:
    """A line of the journal."""
    text = json.dumps(verified).encode()
    return b"%08x %s\n" % (crc32c(text), text)


def _decode_line(line: bytes) -> Verified | VerifiedWal | None:
    """Decode a line; None where it is torn. ValueError where it is whole, and holds something else."""
    stated, _, text = line.partition(b" ")
    if stated != b"%08x" % crc32c(text):
        return None
    values = parse_json(text, _LINE)
    if not isinstance(values, list):
        raise ValueError("a line is not a list")
    wal = [*map(type, values)] == [str] * 5 and values[-1] == _WAL
    if not wal and [*map(type, values)] != [str, str, int, int]:
        raise ValueError("a line has other fields")
    if not all(is_spelled(value) for value in values if isinstance(value, str)):
        raise ValueError("a line is not Unicode")
    return VerifiedWal(*values) if wal else Verified(*values)
