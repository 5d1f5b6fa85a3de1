"""Builds logs and replicas from commits in memory, without a daemon."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from litelog.codec.checksum import combine, crc32c
from litelog.formats import Expectation
from litelog.formats.litelog import LitelogFormat, SegmentHeader, encode_commit, segment_name
from litelog.objects import claim as claims
from litelog.objects import snapshot as snapshots
from litelog.objects import wal_segment
from litelog.objects.claim import Claim, Relation
from litelog.objects.layout import snapshot_key
from litelog.objects.position import Position, new_generation
from litelog.objects.snapshot_entries import make_entry
from litelog.objects.wal_segment import WalHeader
from litelog.reading.replica_reader import ReplicaReader
from litelog.stores.object_store import ObjectReplicaClient
from replica_clients.memory import MemoryStore
from tests.builders.sealed_builder import make_sealed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from litelog.codec.frame_codecs import Compression
    from litelog.formats import LogFormat
    from litelog.objects.snapshot import Snapshot
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.stores.object_store import ObjectStore
    from litelog.stores.replica_client import ReplicaClient

FORMAT = LitelogFormat()
LOG = "0123456789abcdef0123456789abcdef"
SECOND = 1_000_000


@dataclass(frozen=True)
class LogSegment:
    """A log segment's bytes, and the offsets at which its commits end."""

    name: str
    data: bytes
    ends: tuple[int, ...]
    next: int
    """The sequence of the record after it."""


def make_segment(
    first: int, counts: Sequence[int], stamps: Sequence[int] | None = None, epoch: int = 1, tag: bytes = b"r"
) -> LogSegment:
    """A log segment. ``counts``: the number of records of each commit. By default record n has the time n seconds."""
    from uuid import UUID

    data = SegmentHeader(UUID(LOG), first, 0).encode()
    ends, sequence = [], first
    for number, count in enumerate(counts):
        stamp = sequence * SECOND if stamps is None else stamps[number]
        data += encode_commit(sequence, epoch, stamp, [tag + b"%d" % n for n in range(sequence, sequence + count)])
        sequence += count
        ends.append(len(data))
    return LogSegment(segment_name(first), data, tuple(ends), sequence)


def make_log(shape: Sequence[Sequence[int]], first: int = 0) -> list[LogSegment]:
    """Consecutive log segments. ``shape``: the number of records of each commit, by log segment."""
    log: list[LogSegment] = []
    for counts in shape:
        log.append(make_segment(first, counts))
        first = log[-1].next
    return log


def prefix(log: Iterable[LogSegment], commits: int) -> dict[str, bytes]:
    """The files of a log that ends after its first ``commits`` commits."""
    files = {}
    for segment in log:
        held = segment.ends[:commits]
        if held:
            files[segment.name] = segment.data[: held[-1]]
        commits -= len(held)
    return files


@dataclass
class Shipped:
    """The shipped part of a log segment."""

    name: str
    previous: str
    """The digest of the object before its first byte."""
    expect: int | None
    """The sequence that its first record must have."""
    data: bytes = b""
    marks: list[tuple[int, int]] = field(default_factory=list)
    """(offset, time) of each WAL segment."""
    chain: str | None = None
    """The digest of its ``final``."""


class GenerationBuilder:
    """Writes one generation as its owner would: its claim, its snapshot, then WAL segments, sealed segments and further
    snapshots."""

    def __init__(self, client: ReplicaClient, claim: Claim, log_format: LogFormat) -> None:
        self.client = client
        self.claim = claim
        self.name = claim.generation
        self.format = log_format
        self.slot = Position(self.name, claim.first, 0)
        self.positions: list[Position] = []
        self.clock = claim.time
        self._digest = ""
        self._file = ""
        self._end: Position | None = None
        self._next: int | None = None
        self._crc_total = 0
        self.shipped: dict[int, Shipped] = {}
        self.entries: dict[int, SnapshotEntry] = {}
        """The entries of sealed log segments, by index."""
        self.compression: Compression | None = None
        """Of sealed segments; None: as ``make_sealed`` chooses."""
        client.write_claim(claim.name, claims.encode(claim))

    def start(self, sealed: Iterable[SnapshotEntry] = (), end: Position | None = None) -> GenerationBuilder:
        """Write the first snapshot: empty, or with the log segments before the claim's first index."""
        self.entries |= {entry.index: entry for entry in sealed}
        self._end = end
        self._digest = snapshots.digest(self._write_snapshot(self.claim.first, min(self.entries, default=None)))
        self._next = self.entries[self.claim.first - 1].next if self.entries else None
        return self

    def header(self, data: bytes, name: str, /, *, described: bytes | None = None, **changes: object) -> WalHeader:
        """The right header of the next WAL segment, except for ``changes``.

        ``described``: the commits that the header describes, if those in ``data`` are damaged.
        """
        scan = None
        if data:
            scan = self.format.scan(name, memoryview(described or data), self.slot.offset, Expectation(self._next))
        crc = crc32c(data)
        slot = self.slot
        header = WalHeader.of(self.claim, slot.index, slot.offset, scan, previous=self._digest, shipped=self.clock)
        header = replace(
            header,
            length=len(data),
            file=name,
            next=self._next if scan is None else scan.next,
            crc=crc,
            crc_total=combine(self._crc_total, crc, len(data)),
        )
        return replace(header, **changes)  # type: ignore[arg-type]

    def ship(self, data: bytes, name: str, /, **changes: object) -> Position:
        """Write ``data`` as the next WAL segment, one second after the previous one."""
        self.clock += SECOND
        header = self.header(data, name, **changes)  # type: ignore[arg-type]
        body = wal_segment.encode(header, data)
        self.client.write_wal_segment(self.slot, body)
        self.positions.append(self.slot)
        self._note(header, data, wal_segment.digest(body))
        self._digest = wal_segment.digest(body)
        self._next = header.next
        self._crc_total = 0 if header.final else header.crc_total
        self._file = name
        if header.successor is None:
            self.slot = header.next_slot
        return self.positions[-1]

    def _note(self, header: WalHeader, data: bytes, digest: str) -> None:
        if header.successor is not None:
            return
        shipped = self.shipped.setdefault(header.index, Shipped(header.file, self._digest, self._next))
        shipped.data += data
        if data:
            shipped.marks.append((header.end, header.shipped))
        shipped.chain = digest if header.final else None

    def seal(self, index: int, *, frame_commits: int = 1) -> SnapshotEntry:
        """Seal a log segment from what was shipped of it, with ``frame_commits`` commits in each frame."""
        held = self.shipped[index]
        return self._put_sealed(
            index, held.name, held.data, frame_commits, marks=held.marks, previous=held.previous, expect=held.expect
        )

    def seal_unshipped(self, index: int, segment: LogSegment, *, frame_commits: int = 1) -> SnapshotEntry:
        """Seal a log segment that was finished before the generation's first WAL segment: call it before ``start``."""
        marks = [(len(segment.data), self.clock)]
        return self._put_sealed(index, segment.name, segment.data, frame_commits, marks=marks)

    def _put_sealed(self, index: int, name: str, data: bytes, frame_commits: int, **facts: object) -> SnapshotEntry:
        footer, body = make_sealed(
            self.claim,
            index,
            name,
            data,
            self.format,
            frame_commits=frame_commits,
            compression=self.compression,
            **facts,  # type: ignore[arg-type]
        )
        self.client.write_sealed_segment(self.name, index, [body])
        self.entries[index] = make_entry(footer, len(body))
        return self.entries[index]

    def stand_for_sealed(self, segment: LogSegment, *, frame_commits: int = 1) -> SnapshotEntry:
        """Seal the log segment that begins at the slot, and write the empty ``final`` that stands for it."""
        index, previous, expect = self.slot.index, self._digest, self._next
        marks = [(len(segment.data), self.clock + SECOND)]
        entry = self._put_sealed(
            index, segment.name, segment.data, frame_commits, marks=marks, previous=previous, expect=expect
        )
        digest = hashlib.sha256(segment.data).hexdigest()
        self.ship(b"", segment.name, final=True, sealed=digest, next=segment.next)
        return entry

    def snapshot(self, upto: int, first: int | None = None) -> Snapshot:
        """Write the snapshot of log segments [first, upto). Log segments that are not sealed yet are sealed first."""
        for index in range(self.claim.first, upto):
            if index not in self.entries:
                self.seal(index)
        return snapshots.decode(snapshot_key(self.name, upto), self._write_snapshot(upto, first))

    def _write_snapshot(self, upto: int, first: int | None = None) -> bytes:
        claim = self.claim
        first = min(self.entries, default=upto) if first is None else first
        body = snapshots.encode(
            snapshots.Snapshot(
                log=claim.log,
                format=claim.format,
                generation=claim.generation,
                owner=claim.owner,
                first=first,
                next=upto,
                created=self.clock,
                predecessor_end=self._end,
                chain=self.shipped[upto - 1].chain if upto > claim.first else None,
                segments=tuple(self.entries[index] for index in range(first, upto)),
            )
        )
        self.client.write_snapshot(self.name, upto, [body])
        return body

    def prune(self, upto: int) -> list[Position]:
        """Delete the WAL segments below index ``upto``, except the generation's last one. Return the deleted ones."""
        gone = [position for position in self.positions[:-1] if position.index < upto]
        self.client.delete_wal_segments(gone)
        return gone

    def ship_segment(
        self, segment: LogSegment, cuts: Iterable[int] = (), *, final: str | None = "last", upto: int | None = None
    ) -> None:
        """Ship a log segment, cut after the commits with these numbers.

        ``final``: "last" sets the flag on the last WAL segment, "empty" on an empty one after it; None sets none.
        ``upto``: the number of commits to ship.
        """
        ends = segment.ends[:upto]
        if not ends:
            return
        bounds = [0, *sorted({ends[cut] for cut in cuts if cut < len(ends) - 1}), ends[-1]]
        for start, end in pairwise(bounds):
            is_final = end == bounds[-1] and final == "last"
            self.ship(segment.data[start:end], segment.name, final=is_final)
        if final == "empty":
            self.ship(b"", segment.name, final=True)

    def end(self, successor: Claim) -> None:
        """Write the terminal, as the successor's owner does."""
        file = self._file if self.slot.offset else ""
        self.ship(b"", file, owner=successor.owner, successor=successor.key)


class ReplicaBuilder:
    """A replica in memory, generation by generation."""

    def __init__(self, log_format: LogFormat = FORMAT) -> None:
        self.store = MemoryStore("built")
        self.client = ObjectReplicaClient(self.store)
        self.format = log_format
        self.generations: list[GenerationBuilder] = []

    def claim(self, relation: Relation | None = None, shift: int = 0, first: int = 0) -> Claim:
        """The next epoch's claim; it continues the newest generation unless ``relation`` says otherwise."""
        epoch = len(self.generations) + 1
        before = self.generations[-1] if self.generations else None
        relation = relation or (Relation.CONTINUES if before else Relation.FIRST)
        return Claim(
            log=LOG,
            format=self.format.name,
            owner=f"owner{epoch}",
            host="host",
            generation=new_generation(epoch, 0xA0 + epoch),
            first=first,
            relation=relation,
            time=(before.clock if before else 1_000) + SECOND,
            predecessor=before.claim.generation if before else None,
            predecessor_end=before.slot if before else None,
            shift=shift,
            reason="rewound" if relation is Relation.DIVERGED else None,
        )

    def add(self, claim: Claim | None = None, *, close: bool = True, start: bool = True) -> GenerationBuilder:
        """Claim a generation, close the one before it, and write the snapshot."""
        claim = claim or self.claim()
        built = GenerationBuilder(self.client, claim, self.format)
        if close and self.generations:
            self.generations[-1].end(claim)
        if start:
            built.start()
        self.generations.append(built)
        return built

    def put_into(self, store: ObjectStore) -> None:
        """Put all objects into another store."""
        for key, body in self.objects().items():
            store.put(key, [body])

    def objects(self) -> dict[str, bytes]:
        """All objects, by key."""
        return {info.key: self.store.open(info.key).read() for info in self.store.list("")}


def of_other_owner(key: str, body: bytes) -> bytes:
    """A snapshot's object with another owner, otherwise unchanged."""
    return snapshots.encode(replace(snapshots.decode(key, body), owner="f" * 32))


def client_of(objects: dict[str, bytes]) -> ObjectReplicaClient:
    """A client of a new replica that holds these objects."""
    store = MemoryStore("copy")
    for key, body in objects.items():
        store.put(key, [body])
    return ObjectReplicaClient(store)


def log_id() -> UUID:
    """The log's id."""
    from uuid import UUID

    return UUID(LOG)


def make_unfinished(
    log: Sequence[LogSegment],
    *,
    cuts: Sequence[int] = (0,),
    snapshots: Sequence[int] = (),
    prune: int = 0,
    last_cuts: Sequence[int] = (0,),
) -> ReplicaBuilder:
    """A replica of a log whose last log segment still grows.

    ``cuts``: the commits after which the WAL segments of a log segment end; ``last_cuts``: the same for the last log
    segment. ``snapshots``: the indexes of snapshots; all log segments below are sealed. ``prune``: the index below
    which WAL segments are deleted.
    """
    builder = ReplicaBuilder()
    built = builder.add()
    *finished, last = log
    for segment in finished:
        built.ship_segment(segment, cuts=cuts)
    for index in snapshots:
        built.snapshot(index)
    if prune:
        built.prune(prune)
    built.ship_segment(last, cuts=last_cuts, final=None)
    return builder


def reader_of(client: ReplicaClient, **options: Any) -> ReplicaReader:
    """A reader of a built replica. It polls every millisecond."""
    return ReplicaReader(client, **{"formats": lambda _: FORMAT, "poll_interval": 0.001, **options})
