"""Verifies one WAL segment by itself, and the ship times in sealed footers against the WAL segments of the same bytes.

``chain`` checks a WAL segment against its neighbours.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from functools import partial
from typing import TYPE_CHECKING, Protocol

from litelog.dataclass import dataclass
from litelog.errors import CorruptionError, CorruptObjectError, NotFoundError, StoreError
from litelog.formats import Expectation
from litelog.objects import wal_segment
from litelog.objects.chain import check_run
from litelog.objects.layout import wal_key
from litelog.objects.wal_segment import MAX_HEADER_BYTES
from litelog.reading.fetch import READ_ATTEMPTS, read_verified
from litelog.stores.object_store import ByteRange, read_bounded
from litelog.verify.findings import Anomaly, AnomalyKind, anomaly_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.formats import LogFormat, Scan
    from litelog.objects.frame_table import ShipTimes
    from litelog.objects.position import Generation, Position
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalHeader, WalSegment
    from litelog.stores.object_store import ObjectStore
    from litelog.verify.findings import Scope
    from litelog.verify.sealed import SealedVerifier


class ComparedLog(Protocol):
    """A log that the replica is compared with."""

    def has_bytes(self, file: str, start: int, stop: int, digest: str) -> bool:
        """Whether the bytes [start, stop) of a log segment have this SHA-256, or cannot be read. Any thread may call
        it."""


PROBE_BYTES = 4 << 10
"""How many bytes are read for a header without the contents; a longer header costs a second request."""


@dataclass(frozen=True, slots=True)
class WalRead:
    """The result for one key."""

    position: Position
    size: int
    """The object's size in the listing, in bytes."""
    header: WalHeader | None = None
    """The header; None if it cannot be read."""
    digest: str | None = None
    """SHA-256 of the object; None if only its header was read."""
    epoch: int | None = None
    """The epoch of its last commit; None if none was read."""
    problems: tuple[Anomaly, ...] = ()
    gone: bool = False
    """Whether it has disappeared."""
    failure: StoreError | None = None
    content: int = 0
    """Bytes of the log that were read and checked."""
    other: tuple[int, int] | None = None
    """Bytes [start, stop) of its log segment that the compared log has others of: all of them, or the last commits if
    its contents were not read. None if it has the same, or if they were not compared."""

    @property
    def key(self) -> str:
        return wal_key(self.position)


class WalReader:
    """Reads WAL segments, each on some thread."""

    def __init__(
        self,
        store: ObjectStore,
        scope: Scope,
        formats: Callable[[str], LogFormat | None],
        local: Callable[[str], ComparedLog | None] = lambda _: None,
    ) -> None:
        """``formats`` returns None for an unknown format, whose commits are not judged. ``local`` returns the log to
        compare with, read in a format; None to compare with none."""
        self._store = store
        self._scope = scope
        self._formats = formats
        self._local = local
        self.always: Position | None = None
        """The WAL segment whose contents are always read, also if it is not in the sample."""

    def read(self, listed: tuple[Position, int]) -> WalRead:
        """Read and check the WAL segment at a position, with its listed size in bytes. Raises no error of the store.

        If a check fails, reads it again: bytes may change in transit.
        """
        position, size = listed
        try:
            for _ in range(READ_ATTEMPTS):
                found = self._read_once(position, size)
                if not found.problems:
                    break
        except NotFoundError:
            return WalRead(position, size, gone=True)
        except StoreError as error:
            return WalRead(position, size, failure=error)
        return found

    def header(self, position: Position) -> WalHeader | None:
        """Read the header of a WAL segment; None if it is damaged. Raises StoreError."""
        key = wal_key(position)
        try:
            return read_verified(partial(self._read_head, key), partial(wal_segment.decode_header, key))
        except CorruptObjectError:
            return None

    def has_digest(self, key: str, digest: str) -> bool:
        """Whether another read of an object gives that SHA-256. Raises no error of the store."""
        try:
            return any(wal_segment.digest([read_bounded(self._store, key)]) == digest for _ in range(READ_ATTEMPTS - 1))
        except (CorruptionError, NotFoundError, StoreError):
            return False

    def follows(self, read: WalRead, sequence: int) -> Anomaly | None:
        """Judge, by its format, a WAL segment whose first record should have ``sequence`` and does not."""
        try:
            read_again = partial(read_bounded, self._store, read.key)
            segment = read_verified(read_again, partial(wal_segment.decode_checked, read.key))
            log_format = self._formats(segment.header.format)
            if log_format is not None:
                data = segment.data()
                log_format.scan(segment.header.path, data, segment.header.offset, Expectation(sequence))
        except CorruptionError as error:
            return anomaly_of(read.key, error)
        except StoreError:
            return None  # it was read before
        return None

    def _read_once(self, position: Position, size: int) -> WalRead:
        key = wal_key(position)
        if position != self.always and not self._scope.takes(key):
            return self._read_header(position, size)
        try:
            body = read_bounded(self._store, key, size=size)
        except CorruptObjectError as error:  # it cannot be decrypted
            return WalRead(position, size, problems=(anomaly_of(key, error),))
        problems = [] if len(body) == size else [_other_size(key, size, len(body))]
        header, epoch, content = None, None, 0
        hashed, other = hashlib.sha256(), None
        try:
            segment = wal_segment.decode(key, body)
            header = segment.header
            local = self._local_of(header)
            scan = _scan(segment, self._formats(header.format), None if local is None else hashed)
            content = header.length
            if local is not None and not local.has_bytes(header.file, header.offset, header.end, hashed.hexdigest()):
                other = header.offset, header.end
            if scan is not None and scan.commits:
                epoch = scan.epoch
        except CorruptionError as error:
            problems.append(anomaly_of(key, error))
            header = header or _header_of(key, body)
        digest = wal_segment.digest([body])
        return WalRead(
            position,
            size,
            header,
            digest,
            epoch,
            tuple(problems),
            content=content,
            other=other,
        )

    def _read_header(self, position: Position, size: int) -> WalRead:
        key = wal_key(position)
        try:
            header = wal_segment.decode_header(key, self._read_head(key))
        except CorruptObjectError as error:
            return WalRead(position, size, problems=(anomaly_of(key, error),))
        local, start, digest, other = self._local_of(header), header.check_start, header.check_digest, None
        if local is not None and start is not None and digest is not None:
            other = None if local.has_bytes(header.file, start, header.end, digest) else (start, header.end)
        return WalRead(position, size, header, other=other)

    def _local_of(self, header: WalHeader) -> ComparedLog | None:
        """The log to compare the bytes with; None if they are not compared."""
        is_compared = header.length > 0 and header.successor is None and self._scope.takes(header.file)
        return self._local(header.format) if is_compared else None

    def _read_head(self, key: str) -> bytes:
        """The front of an object, with all of its header."""
        head = self._read_front(key, PROBE_BYTES)
        if len(head) == PROBE_BYTES and int.from_bytes(head[4:8], "little") > PROBE_BYTES - 8:
            return self._read_front(key, MAX_HEADER_BYTES)
        return head

    def _read_front(self, key: str, length: int) -> bytes:
        with self._store.open(key, ByteRange(0, length)) as stream:
            try:
                return stream.read(length)
            except OSError as error:
                raise StoreError("read", key, str(error)) from error


def _header_of(key: str, body: bytes) -> WalHeader | None:
    """The header of an object whose other bytes are damaged, so that later objects can still be judged."""
    try:
        return wal_segment.decode_header(key, body[:MAX_HEADER_BYTES])
    except CorruptObjectError:
        return None


def _other_size(key: str, listed: int, read: int) -> Anomaly:
    return Anomaly(AnomalyKind.LENGTH, key, f"holds {read} bytes, and {listed} in the listing")


def _scan(segment: WalSegment, log_format: LogFormat | None, hashed: hashlib._Hash | None) -> Scan | None:
    """Check a WAL segment's bytes, and its commits as they come. Return their scan, if there are any to check. The
    bytes are added to ``hashed``.

    Raises CorruptObjectError, CorruptCommitError and SequenceGapError.
    """
    header = segment.header
    if log_format is None or header.successor is not None or not header.length:
        _add(hashed, segment.data())
        return None
    expect = Expectation(header.next if header.first is None else header.first)
    if not log_format.self_numbered:  # the ends of commits may depend on how much is scanned at once
        data = segment.data()
        _add(hashed, data)
        scan = log_format.scan(header.path, data, header.offset, expect)
    else:
        scan = _scan_pieces(segment, log_format, expect, hashed)
    check_run(header, segment.key, scan, log_format)
    return scan


def _add(hashed: hashlib._Hash | None, data: memoryview) -> None:
    if hashed is not None:
        hashed.update(data)


def _scan_pieces(segment: WalSegment, log_format: LogFormat, expect: Expectation, hashed: hashlib._Hash | None) -> Scan:
    """Scan a WAL segment's bytes frame by frame, while each is in the processor's cache."""
    whole: Scan | None = None
    offset, rest, wanted = segment.header.offset, memoryview(b""), 0
    for piece in segment.pieces():
        _add(hashed, piece)
        rest = memoryview(b"".join((rest, piece))) if rest else piece
        if len(rest) < wanted:
            continue  # inside a commit that is larger than a frame
        scan = log_format.scan(segment.header.path, rest, offset, expect)
        whole = scan if whole is None else whole.joined(scan)
        rest, wanted = rest[scan.end - offset :], max(scan.wanted, 0 if scan.commits else 2 * len(rest))
        offset, expect = scan.end, scan.expectation
    if rest or whole is None:
        scan = log_format.scan(segment.header.path, rest, offset, expect)
        whole = scan if whole is None else whole.joined(scan)
    return whole


class MarkChecks:
    """Judges the marks of one generation's sealed segments against its WAL segments, which come in order."""

    def __init__(
        self,
        name: Generation,
        known: Callable[[int], SnapshotEntry | None],
        reader: SealedVerifier,
        against: Callable[[SnapshotEntry, str], None],
    ) -> None:
        """``known``: a log segment's sealed entry, by its index. ``against`` is called with each contradiction."""
        self._name = name
        self._known = known
        self._reader = reader
        self._against = against
        self._index = -1
        self._entry: SnapshotEntry | None = None
        self._marks: ShipTimes | None = None

    def check(self, key: str, header: WalHeader) -> None:
        """Compare a WAL segment's ship time with the mark for its bytes, if they are also sealed.

        Exact marks have one for each WAL segment. Other marks must not be earlier than the real times: otherwise a
        restore to a time would return bytes that were not shipped by then.
        """
        if not header.length:
            return
        if header.index != self._index:
            self._open(header.index)
        if self._marks is None or self._entry is None:
            return
        at = bisect_right(self._marks.offsets, header.offset)
        if at == len(self._marks.offsets):
            return  # after its end: the check of the length reports it
        end, time = self._marks.offsets[at], self._marks.times[at]
        if (self._marks.exact and (end, time) != (header.end, header.shipped)) or time < header.shipped:
            what = f"marks bytes {header.offset} to {end} as shipped at {time}; {key} holds those to {header.end}"
            self._against(self._entry, f"{what}, shipped at {header.shipped}")

    def _open(self, index: int) -> None:
        """Read the marks of an index, and keep only these. ``SealedChecks`` reports a footer that cannot be read."""
        self._index, self._marks = index, None
        self._entry = entry = self._known(index)
        if entry is None or (entry.generation, entry.sealed_index) != (self._name, index):
            return
        try:
            self._marks = self._reader.footer(entry.generation, index).marks
        except (CorruptionError, StoreError):
            return
