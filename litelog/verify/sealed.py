"""Verifies sealed segments: the footer and frames of each, and then the statements of the snapshots that name them.

They are read concurrently, run by run in bounded memory, and compared in order.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from litelog.codec.checksum import combine
from litelog.codec.joint_sha256 import joint_sha256
from litelog.dataclass import dataclass
from litelog.errors import CorruptionError, CorruptObjectError, NotFoundError, StoreError, UnknownVersionError
from litelog.formats import Expectation
from litelog.objects.layout import sealed_key
from litelog.objects.sealed_decoding import decode_checked, decode_frames
from litelog.objects.sealed_segment import read_footer
from litelog.objects.snapshot_entries import SnapshotEntry, make_entry
from litelog.reading.fetch import READ_ATTEMPTS, read_verified
from litelog.stores.object_store import ByteRange
from litelog.verify.findings import Anomaly, AnomalyKind, anomaly_of
from litelog.verify.inventory import sealed_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
    from typing import BinaryIO

    from litelog.formats import LogFormat
    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation, Position
    from litelog.objects.sealed_segment import SealedFooter
    from litelog.objects.snapshot import Snapshot
    from litelog.reading.fetch import OrderedPool
    from litelog.stores.object_store import ObjectStore
    from litelog.verify.findings import Findings, Scope
    from litelog.verify.inventory import ListedObjects
    from litelog.verify.snapshots import SnapshotReader

_FIELDS = tuple(name for name in SnapshotEntry.__slots__ if name != "index")


class SealedChecks:
    """Judges sealed segments, and keeps the facts that WAL segments are compared with."""

    def __init__(
        self,
        store: ObjectStore,
        reader: SealedVerifier,
        snapshots: SnapshotReader,
        claims: Mapping[Generation, Claim],
        findings: Findings,
    ) -> None:
        self._store = store
        self._reader = reader
        self._snapshots = snapshots
        self._claims = claims
        self._findings = findings
        self._anomalies = findings.anomalies
        self._first_wal: Mapping[Generation, Position | None] = {}
        self._entries: dict[tuple[Generation, int], SnapshotEntry] = {}
        self._unread: set[tuple[Generation, int]] = set()
        self._unnamed: dict[Generation, list[SnapshotEntry]] = {}
        self._contradictions: dict[str, str] = {}

    def read_all(self, generations: Mapping[Generation, ListedObjects], pool: OrderedPool) -> None:
        """Read the sealed segments of all generations, then report the named ones that are missing."""
        self._first_wal = {name: held.first_wal for name, held in generations.items()}
        wanted = [held for held in generations.values() if held.sealed]
        total = sum(held.sealed for held in wanted)
        groups = cut_groups(self._listed(wanted), total, 2 * pool.workers)
        for reads in pool.map(self._reader.read_together, groups):
            for read in reads:
                self._take(read)
        gone = [key for key, named in self._snapshots.named.items() if not named.seen and self._is_gone(named.entry)]
        try:
            left = self._snapshots.names_now(generations) if gone else ()
        except StoreError as error:
            self._findings.fail(error)
            return
        for key in gone:
            if key in left:
                self._anomalies.add(AnomalyKind.MISSING, key, f"is not there; {self._snapshots.named[key].by} names it")

    def _listed(self, wanted: list[ListedObjects]) -> Iterator[tuple[Generation, int, int]]:
        for held in wanted:
            for index, size in sealed_of(self._store, held.name):
                yield held.name, index, size

    def known(self, generation: Generation, index: int) -> SnapshotEntry | None:
        """The facts of a generation's sealed segment about a log segment that may also have WAL segments."""
        return self._entries.get((generation, index))

    def find(self, generation: Generation, index: int) -> SnapshotEntry | None:
        """As ``known``, for a sealed segment that may have been put since the listing: finds it by its name, reads it
        and judges it. Raises StoreError if it cannot be looked up."""
        key = sealed_key(generation, index)
        size = _find_size(self._store, key)
        if size is None:
            return None
        read = self._reader.read((generation, index, size))
        self._take(read)
        if read.entry is not None:
            self._entries[generation, index] = read.entry
        return read.entry

    def is_unread(self, generation: Generation, index: int) -> bool:
        """Whether a sealed segment exists, but the store fails to return it."""
        return (generation, index) in self._unread

    def mark_contradicted(self, entry: SnapshotEntry, what: str) -> bool:
        """Note what contradicts a sealed segment that no snapshot names: it then counts for nothing.

        Returns False if a snapshot names it.
        """
        is_unnamed = entry.key not in self._snapshots.named
        if is_unnamed:
            self._contradictions.setdefault(entry.key, what)
        return is_unnamed

    def check_succession(self, snapshot: Snapshot) -> None:
        """Check that the records of a snapshot's log segments follow each other, by their format's rules."""
        before: int | None = None
        for entry in snapshot.segments:
            if None not in (before, entry.first) and entry.first != before and self._snapshots.named[entry.key].seen:
                problem = self._reader.follows(SealedRead(*_place_of(entry)), before or 0)
                if problem is not None:
                    self._anomalies.take(problem)
            before = entry.next if entry.next is not None else before

    def check_unnamed(
        self, generation: Generation, covered: int, slot: Position | None, *, ended: bool, finals: set[str]
    ) -> None:
        """Report sealed segments that no snapshot names, unless they are new, or a snapshot was not read.

        ``covered``: the index before which its snapshots name all that counts; 0 while it has none. ``slot``: its next
        slot, if known.
        """
        if self._snapshots.unread:
            return
        growing = slot.index if slot is not None and slot.offset > 0 else None
        for entry in self._unnamed.pop(generation, []):
            if entry.digest in finals or entry.key in self._snapshots.named:
                continue
            reason = self._contradictions.get(entry.key)
            if reason is None and not ended and entry.index == growing:
                reason = "its log segment still grows"
            if reason is not None or ended or entry.index < covered:
                what = "is named by no snapshot" + ("" if reason is None else f": {reason}")
                self._anomalies.add(AnomalyKind.ORPHAN, entry.key, what, harmful=False)
            else:
                self._findings.counts.pending += 1

    def _take(self, read: SealedRead) -> None:
        named = self._snapshots.named.get(read.key)
        if read.gone:
            return  # those that a snapshot names are read once more
        if named is not None:
            named.seen = True
        if read.failure is not None:
            self._findings.fail(read.failure)
            self._unread.add((read.generation, read.index))
            return
        self._findings.counts.sealed_segments += 1
        self._findings.counts.content_bytes += read.content
        if read.entry is None and named is not None and read.size != named.entry.size:  # its footer was cut off
            self._other("size", read.size, named.entry.size, read.key, named.by)
        else:
            for problem in read.problems:
                self._anomalies.take(problem)
        if read.entry is not None:
            self._check_identity(read)
            first = self._first_wal.get(read.generation)
            if first is not None and read.index >= first.index:
                self._entries[read.generation, read.index] = read.entry
            if named is None:
                self._unnamed.setdefault(read.generation, []).append(read.entry)
            else:
                self._compare(read.entry, named.entry, named.by)
        self._findings.count_judged(read.size)

    def _check_identity(self, read: SealedRead) -> None:
        claim = self._claims.get(read.generation)
        if claim is None:
            return
        expected = (claim.log, claim.format, claim.owner)
        for what, mine, theirs in zip(("log", "format", "owner"), read.identity, expected, strict=True):
            if mine != theirs:
                self._anomalies.add(
                    AnomalyKind.FOREIGN, read.key, f"{what} is {mine}, and its generation's is {theirs}"
                )

    def _compare(self, made: SnapshotEntry, entry: SnapshotEntry, by: str) -> None:
        for name in _FIELDS:
            mine, theirs = getattr(made, name), getattr(entry, name)
            if mine != theirs:
                self._other(name, mine, theirs, made.key, by)

    def _other(self, name: str, mine: object, theirs: object, key: str, by: str) -> None:
        kind = AnomalyKind.LENGTH if name == "size" else AnomalyKind.CONFLICT
        self._anomalies.add(kind, key, f"{name} is {mine}, and {theirs} in {by}, which names it")

    def _is_gone(self, entry: SnapshotEntry) -> bool:
        """Read a named sealed segment that was not listed, as a listing may lag. Return whether it is missing."""
        read = self._reader.read(_place_of(entry))
        self._take(read)
        return read.gone


def _place_of(entry: SnapshotEntry) -> tuple[Generation, int, int]:
    """(generation, index, size in bytes) of the sealed segment that an entry names."""
    return entry.generation, entry.sealed_index, entry.size


TOGETHER = 2
"""How many sealed segments a thread reads in turn."""


def cut_groups(
    listed: Iterable[tuple[Generation, int, int]], total: int, most_alone: int
) -> Iterator[list[tuple[Generation, int, int]]]:
    """Groups of TOGETHER sealed segments of the ``total`` that are listed; each of the last ``most_alone`` is alone, so
    that no thread waits for another at the end."""
    group: list[tuple[Generation, int, int]] = []
    for number, one in enumerate(listed):
        group.append(one)
        if len(group) == TOGETHER or total - number <= most_alone:
            yield group
            group = []
    if group:
        yield group


HASHED_LATER_BYTES = 4 << 20
"""The bytes of a log segment that may wait until they are hashed together with those of another one."""

MAX_PROBLEMS = 100
"""How many bad runs of frames are reported per sealed segment."""


@dataclass(frozen=True, slots=True)
class SealedRead:
    """The result for one key."""

    generation: Generation
    index: int
    size: int
    """The object's size in the listing, in bytes."""
    entry: SnapshotEntry | None = None
    """The entry that a snapshot has of it, made from its footer; None if the footer cannot be read."""
    identity: tuple[str, str, str] = ("", "", "")
    """Log, format and owner that its footer names."""
    previous: str = ""
    """The chain digest that it continues from."""
    problems: tuple[Anomaly, ...] = ()
    gone: bool = False
    failure: StoreError | None = None
    content: int = 0
    """Bytes of the log that were read and checked."""

    @property
    def key(self) -> str:
        return sealed_key(self.generation, self.index)


class SealedVerifier:
    """Reads sealed segments, each on some thread."""

    def __init__(
        self,
        store: ObjectStore,
        scope: Scope,
        formats: Callable[[str], LogFormat | None],
        known: Mapping[tuple[Generation, int, int], SealedRead] | None = None,
    ) -> None:
        """``formats`` returns None for an unknown format, whose commits are not judged. ``known``: results from before,
        by generation, index and size in bytes."""
        self._known = known or {}
        self._store = store
        self._scope = scope
        self._formats = formats

    def read(self, listed: tuple[Generation, int, int]) -> SealedRead:
        """Read and check the sealed segment of a generation and index, with its listed size in bytes. Raises no error
        of the store."""
        return self.read_together((listed,))[0]

    def read_together(self, listed: Sequence[tuple[Generation, int, int]]) -> list[SealedRead]:
        """As ``read``, for several: a run of each in turn, so that this thread computes their SHA-256 two at a time."""
        found: dict[int, SealedRead] = {}
        going = {number: self._steps(one) for number, one in enumerate(listed)}
        while going:
            for number, steps in list(going.items()):
                try:
                    next(steps)
                except StopIteration as end:
                    found[number] = end.value
                    del going[number]
        return [found[number] for number in range(len(listed))]

    def _steps(self, listed: tuple[Generation, int, int]) -> Generator[None, None, SealedRead]:
        """Read and check a sealed segment; pauses after each run."""
        if listed in self._known:
            return self._known[listed]
        try:
            return (yield from self._read(*listed))
        except NotFoundError:
            return SealedRead(*listed, gone=True)
        except StoreError as error:
            return SealedRead(*listed, failure=error)

    def footer(self, generation: Generation, index: int) -> SealedFooter:
        """Read the footer of a sealed segment of unknown size. Raises StoreError and CorruptObjectError."""
        key = sealed_key(generation, index)
        size = _find_size(self._store, key)
        if size is None:
            raise NotFoundError(key)
        return self._checked_footer(key, size)

    def follows(self, read: SealedRead, sequence: int) -> Anomaly | None:
        """Judge, by its format, a sealed segment whose first record should have ``sequence`` and does not."""
        try:
            footer = self._checked_footer(read.key, read.size)
            log_format = self._formats(footer.format)
            if log_format is not None:
                run = footer.frames.run_of(0)
                stored = footer.frames.stored_range(run)
                data = read_verified(
                    lambda: self._read_range(read.key, stored), partial(decode_frames, read.key, footer, run)
                )
                log_format.scan(footer.path, data, 0, Expectation(sequence))
        except (CorruptionError, UnknownVersionError) as error:
            return anomaly_of(read.key, error)
        except StoreError:
            return None  # it was read before
        return None

    def _read(self, generation: Generation, index: int, size: int) -> Generator[None, None, SealedRead]:
        key = sealed_key(generation, index)
        try:
            footer = self._checked_footer(key, size)
        except (CorruptObjectError, UnknownVersionError) as error:
            return SealedRead(generation, index, size, problems=(anomaly_of(key, error),))
        problems: list[Anomaly] = []
        content = 0
        for length, problem in self._check_one(key, footer):
            content += length
            if problem is not None and len(problems) < MAX_PROBLEMS:
                problems.append(problem)
            yield
        identity = (footer.log, footer.format, footer.owner)
        entry = make_entry(footer, size)
        return SealedRead(generation, index, size, entry, identity, footer.previous, tuple(problems), content=content)

    def _check_one(self, key: str, footer: SealedFooter) -> Iterator[tuple[int, Anomaly | None]]:
        """Check the runs to read; yield (intact bytes of the log, anomaly) for each."""
        crc = 0
        for frame_crc, length in zip(footer.frames.crcs, footer.frames.lengths, strict=True):
            crc = combine(crc, frame_crc, length)
        if crc != footer.crc:
            yield 0, _other(key, "CRC-32C of the log segment", f"{footer.crc:#010x}", f"{crc:#010x}")
        if not self._scope.is_all:
            for run in footer.frames.runs():
                if self._scope.takes(key, run.start):
                    data, problem = self._read_run(key, footer, run)
                    yield len(data), problem
            return
        sha = joint_sha256(HASHED_LATER_BYTES)
        whole = True
        for data, problem in self._read_runs(key, footer):
            length = len(data)
            sha.update(data)
            whole &= problem is None
            del data  # another sealed segment's run takes its place in memory
            yield length, problem
        if whole and (digest := sha.hexdigest()) != footer.digest:
            yield 0, _other(key, "SHA-256 of the log segment", footer.digest, digest)

    def _read_runs(self, key: str, footer: SealedFooter) -> Iterator[tuple[memoryview, Anomaly | None]]:
        """Read all runs from one stream. A run that fails is read once more by itself."""
        if not footer.data_bytes:
            return
        with self._store.open(key, ByteRange(0, footer.data_bytes)) as stream:
            for run in footer.frames.runs():
                yield self._take_run(key, footer, run, stream)  # not kept here while it is used

    def _take_run(
        self, key: str, footer: SealedFooter, run: range, stream: BinaryIO
    ) -> tuple[memoryview, Anomaly | None]:
        body = _read_all(key, stream, len(footer.frames.stored_range(run)))
        try:
            return self._decode(key, footer, run, body), None
        except CorruptionError:
            return self._read_run(key, footer, run)

    def _read_run(self, key: str, footer: SealedFooter, run: range) -> tuple[memoryview, Anomaly | None]:
        """Read one run, up to READ_ATTEMPTS times, as bytes may change in transit."""
        problem: Anomaly | None = None
        for _ in range(READ_ATTEMPTS):
            body = self._read_range(key, footer.frames.stored_range(run))
            try:
                return self._decode(key, footer, run, body), None
            except CorruptionError as error:
                problem = anomaly_of(key, error)
        return memoryview(b""), problem

    def _decode(self, key: str, footer: SealedFooter, run: range, body: bytes) -> memoryview:
        log_format = self._formats(footer.format)
        if log_format is None:
            return decode_frames(key, footer, run, body)
        return decode_checked(key, footer, run, body, log_format)

    def _checked_footer(self, key: str, size: int) -> SealedFooter:
        def read(start: int, length: int) -> bytes:
            return self._read_range(key, range(start, start + length))

        return read_verified(lambda: None, lambda _: read_footer(key, read, size))

    def _read_range(self, key: str, stored: range) -> bytes:
        with self._store.open(key, ByteRange(stored.start, len(stored))) as stream:
            return _read_all(key, stream, len(stored))


def _find_size(store: ObjectStore, key: str) -> int | None:
    """The size of an object in bytes, by a listing; None if it does not exist."""
    return next((info.size for info in store.list(key) if info.key == key), None)


def _read_all(key: str, stream: BinaryIO, length: int) -> bytes:
    """``length`` bytes, or fewer if the object ends before."""
    try:
        return stream.read(length)
    except OSError as error:
        raise StoreError("read", key, str(error)) from error


def _other(key: str, what: str, expected: str, actual: str) -> Anomaly:
    return anomaly_of(key, CorruptObjectError(key, what, expected, actual))
