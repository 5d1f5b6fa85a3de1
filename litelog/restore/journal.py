"""The journal of a restore: the ranges that it has verified. A restore after a kill does not read them again.

Each line is a CRC-32C and JSON about a range of a log segment, or about a WAL segment. A restore does not trust the
journal: it reuses bytes only if they match the checksums in the sealed segment or in the WAL segment's header. So the
order in which bytes and journal reach the disk does not matter, and the plan may change.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from typing import TYPE_CHECKING, NamedTuple

from litelog.codec.checksum import crc32c
from litelog.codec.decoding import JsonLimits, is_valid_text, parse_json
from litelog.codec.lz4_frames import skippable_frame
from litelog.dataclass import dataclass
from litelog.errors import CorruptObjectError
from litelog.events import fields
from litelog.objects.layout import wal_key
from litelog.objects.wal_segment import WalSegment, decode_header
from litelog.system.files import open_regular, read_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from litelog.objects.position import Position
    from litelog.restore.commit_writer import SegmentFiles

JOURNAL_NAME = ".litelog-restore-journal"
"""The journal's file, next to the log segments while the folder has its temporary name."""

MAX_JOURNAL_BYTES = 64 << 20
"""The most bytes of a journal. The replica supplies everything that the journal lacks."""


_WAL = "wal"
_LINE = JsonLimits(size=MAX_JOURNAL_BYTES, values=8, texts=8, containers=1, depth=1)

_logger = logging.getLogger(__name__)


class VerifiedBytes(NamedTuple):
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
    """SHA-256 of the object, in hex, which the next object names."""
    header: str
    """The header's text, as in the object."""
    kind: str = _WAL


class Journal:
    """The ranges that exist. Shared by threads."""

    def __init__(
        self,
        folder: int,
        held: Iterable[VerifiedBytes | VerifiedWal] = (),
        make_durable: Callable[[int], None] = os.fsync,
    ) -> None:
        """Make it, without a file.

        Args:
            folder: The descriptor of the folder.
            held: The ranges that an earlier restore left there.
            make_durable: Makes what was written to an open file durable. It takes as long as the disk does.
        """
        self._folder = folder
        self._held: set[VerifiedBytes] = set()
        self._wal: dict[str, VerifiedWal] = {}
        self._wal_files: set[str] = set()
        for verified in held:
            if isinstance(verified, VerifiedBytes):
                self._held.add(verified)
            else:
                self._wal[verified.key] = verified
                self._wal_files.add(verified.file)
        self._adopted: set[tuple[str, str]] = set()
        self._file = -1
        self._size = 0
        self._make_durable = make_durable
        self._lock = threading.Lock()
        self._syncing = threading.Lock()
        """Held during a sync, so that nothing closes the file. ``add`` does not wait for it: the threads that write
        would all wait for the disk, and give it nothing to do."""

    @property
    def files(self) -> set[str]:
        """The names of the log segments of which some part exists."""
        with self._lock:
            return {held.file for held in self._held} | {name for name, _ in self._adopted} | self._wal_files

    def holds(self, verified: VerifiedBytes) -> bool:
        """Whether that range exists, from this restore or an earlier one."""
        return verified in self._held or (verified.file, verified.digest) in self._adopted

    def wal(self, key: str) -> VerifiedWal | None:
        """The WAL segment of that key, if an earlier restore wrote its bytes."""
        return self._wal.get(key)

    def adopt(self, name: str, digest: str) -> None:
        """Treat a whole log segment as existing, for the duration of this restore."""
        self._adopted.add((name, digest))

    def add(self, verified: VerifiedBytes) -> None:
        """Add a range that was written."""
        with self._lock:
            self._held.add(verified)
            self._write(verified)

    def add_wal(self, verified: VerifiedWal) -> None:
        """Add a WAL segment whose bytes were written."""
        with self._lock:
            self._wal_files.add(verified.file)
            self._write(verified)

    def _write(self, verified: VerifiedBytes | VerifiedWal) -> None:
        line = encode_line(verified)
        if self._file < 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            self._file = open_regular(JOURNAL_NAME, flags, 0o600, dir_fd=self._folder)
            self._size = os.fstat(self._file).st_size
            line = b"\n" + line  # an earlier last line may be torn
        if self._size + len(line) <= MAX_JOURNAL_BYTES:
            self._size += os.write(self._file, line)

    def sync(self) -> None:
        """Make durable what was added before the call. Other threads may add more meanwhile."""
        with self._syncing:
            with self._lock:
                file = self._file
            if file >= 0:
                self._make_durable(file)

    def close(self) -> None:
        """Close the file. Idempotent."""
        with self._syncing, self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1


def read_journal(folder: int, path: str = "") -> list[VerifiedBytes | VerifiedWal]:
    """Read the whole lines of the journal that an earlier restore left in the folder with descriptor ``folder``.

    If the file is not a journal, logs that and returns nothing: the restore then reads everything again. ``path``: the
    folder's, for messages.
    """
    try:
        text = read_regular(JOURNAL_NAME, MAX_JOURNAL_BYTES, flags=os.O_NOFOLLOW, dir_fd=folder)
        found = [_decode_line(line) for line in text.split(b"\n")]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        name = os.path.join(path, JOURNAL_NAME)
        message = "%s: the journal of an earlier restore cannot be used (%s): what it left is read again"
        _logger.warning(message, name, reason, extra=fields("not-resumed", path=name))
        return []
    return [verified for verified in found if verified is not None]


def encode_line(verified: VerifiedBytes | VerifiedWal) -> bytes:
    """A line of the journal."""
    text = json.dumps(verified).encode()
    return b"%08x %s\n" % (crc32c(text), text)


def _decode_line(line: bytes) -> VerifiedBytes | VerifiedWal | None:
    """Decode a line; None if it is torn. Raises ValueError if its checksum holds and its content is not valid."""
    stated, _, text = line.partition(b" ")
    if stated != b"%08x" % crc32c(text):
        return None
    values = parse_json(text, _LINE)
    if not isinstance(values, list):
        raise ValueError("a line is not a list")
    wal = [*map(type, values)] == [str] * 5 and values[-1] == _WAL
    if not wal and [*map(type, values)] != [str, str, int, int]:
        raise ValueError("a line has other fields")
    if not all(is_valid_text(value) for value in values if isinstance(value, str)):
        raise ValueError("a line is not Unicode")
    return VerifiedWal(*values) if wal else VerifiedBytes(*values)


_CHUNK_BYTES = 1 << 20
_FRAME_HEAD_BYTES = 8


@dataclass(frozen=True, slots=True)
class ResumedWalSegment(WalSegment):
    """A WAL segment without its object: its bytes are in the log segment that is being restored."""

    open_file: Callable[[], int]
    """The log segment's descriptor."""

    def pieces(self) -> Iterator[memoryview]:
        """Yield the bytes, as for an object. Raises CorruptObjectError if they are gone, or have changed."""
        header, file = self.header, self.open_file()
        at, crc = header.offset, 0
        while at < header.end and (data := os.pread(file, min(_CHUNK_BYTES, header.end - at), at)):
            crc = crc32c(data, crc)
            at += len(data)
            yield memoryview(data)
        if at != header.end or crc != header.crc:
            raise CorruptObjectError(self.key, "the bytes that an earlier restore left have another CRC-32C")


class ResumedWalSegments:
    """The WAL segments that a killed restore left, and those that this restore writes, through the journal."""

    def __init__(self, journal: Journal, files: SegmentFiles) -> None:
        self._journal = journal
        self._files = files

    def find(self, position: Position) -> ResumedWalSegment | None:
        """The WAL segment at ``position`` if its bytes may exist; ``pieces`` checks them. Else None.

        The next object proves the digest that the journal states, as if the object had been read.
        """
        key = wal_key(position)
        kept = self._journal.wal(key)
        if kept is None:
            return None
        try:
            header = decode_header(key, skippable_frame(kept.header.encode()))
        except CorruptObjectError:
            return None
        return ResumedWalSegment(
            header, kept.object_digest, memoryview(b""), lambda: self._files.open(header.index, header.file)
        )

    def note(self, segment: WalSegment) -> None:
        """Add a WAL segment, whose bytes were written and checked, to the journal."""
        if isinstance(segment, ResumedWalSegment):
            return
        size = int.from_bytes(segment.body[4:_FRAME_HEAD_BYTES], "little")
        text = bytes(segment.body[_FRAME_HEAD_BYTES : _FRAME_HEAD_BYTES + size]).decode()
        self._journal.add_wal(VerifiedWal(segment.key, segment.header.file, segment.digest, text))
