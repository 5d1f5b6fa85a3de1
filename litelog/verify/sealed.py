"""The sealed segments of all generations: read side by side, compared in order with the snapshots that name them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.errors import StoreError
from litelog.objects.layout import parse_sealed, sealed_key
from litelog.objects.snapshot_entries import SnapshotEntry
from litelog.verify.anomaly import Kind
from litelog.verify.inventory import sealed_of
from litelog.verify.sealed_read import SealedRead

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation, Position
    from litelog.objects.snapshot import Snapshot
    from litelog.stores.object_store import ObjectStore
    from litelog.verify.findings import Findings
    from litelog.verify.inventory import Held
    from litelog.verify.pool import OrderedPool
    from litelog.verify.sealed_read import SealedReader
    from litelog.verify.snapshots import SnapshotReader

_FIELDS = tuple(name for name in SnapshotEntry.__slots__ if name != "index")


class SealedJudge:
    """Judges sealed segments, and keeps what the WAL segments beside them are compared with."""

    def __init__(
        self,
        store: ObjectStore,
        reader: SealedReader,
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
        self._refuted: dict[str, str] = {}

    def read_all(self, generations: Mapping[Generation, Held], pool: OrderedPool) -> None:
        """Read the sealed segments of all generations, then say which of those that are named are not there."""
        self._first_wal = {name: held.first_wal for name, held in generations.items()}
        wanted = [held for held in generations.values() if held.sealed]
        for read in pool.map(self._reader.read, self._listed(wanted)):
            self._take(read)
        gone = [key for key, named in self._snapshots.named.items() if not named.seen and self._is_gone(named.entry)]
        try:
            left = self._snapshots.names_now(generations) if gone else ()
        except StoreError as error:
            self._findings.fail(error)
            return
        for key in gone:
            if key in left:
                self._anomalies.add(Kind.MISSING, key, f"is not there; {self._snapshots.named[key].by} names it")

    def _listed(self, wanted: list[Held]) -> Iterator[tuple[Generation, int, int]]:
        for held in wanted:
            for index, size in sealed_of(self._store, held.name):
                yield held.name, index, size

    def known(self, generation: Generation, index: int) -> SnapshotEntry | None:
        """What the sealed segment of a generation says of a log segment, where WAL segments may lie beside it."""
        return self._entries.get((generation, index))

    def find(self, generation: Generation, index: int) -> SnapshotEntry | None:
        """As ``known``, of a sealed segment that may have been put since the listing: it is looked for by its name,
        read, and judged. StoreError where it cannot be looked for."""
        key = sealed_key(generation, index)
        size = next((info.size for info in self._store.list(key) if info.key == key), None)
        if size is None:
            return None
        read = self._reader.read((generation, index, size))
        self._take(read)
        if read.entry is not None:
            self._entries[generation, index] = read.entry
        return read.entry

    def is_unread(self, generation: Generation, index: int) -> bool:
        """Whether there is a sealed segment that the store does not give out."""
        return (generation, index) in self._unread

    def refute(self, entry: SnapshotEntry, what: str) -> bool:
        """Take note of what speaks against a sealed segment, if no snapshot names it: then it counts for nothing.

        False where one does.
        """
        is_unnamed = entry.key not in self._snapshots.named
        if is_unnamed:
            self._refuted.setdefault(entry.key, what)
        return is_unnamed

    def check_succession(self, snapshot: Snapshot) -> None:
        """The records of a snapshot's log segments follow each other, as their format has it."""
        before: int | None = None
        for entry in snapshot.segments:
            if None not in (before, entry.first) and entry.first != before and self._snapshots.named[entry.key].seen:
                problem = self._reader.follows(self._read_of(entry), before or 0)
                if problem is not None:
                    self._anomalies.take(problem)
            before = entry.next if entry.next is not None else before

    def judge_unnamed(
        self, generation: Generation, covered: int, slot: Position | None, *, ended: bool, finals: set[str]
    ) -> None:
        """Those that no snapshot names are new, or nobody needs them. Nothing is said where a snapshot was not read.

        ``slot``: the generation's next one, if known.
        """
        if self._snapshots.unread:
            return
        growing = slot.index if slot is not None and slot.offset > 0 else None
        for entry in self._unnamed.pop(generation, []):
            if entry.digest in finals or entry.key in self._snapshots.named:
                continue
            refuted = self._refuted.get(entry.key)
            if refuted is None and not ended and entry.index == growing:
                refuted = "its log segment still grows"
            if refuted is not None or ended or entry.index < covered:
                what = "is named by no snapshot" + ("" if refuted is None else f": {refuted}")
                self._anomalies.add(Kind.ORPHAN, entry.key, what, harmful=False)
            else:
                self._findings.counts.pending += 1

    def _take(self, read: SealedRead) -> None:
        named = self._snapshots.named.get(read.key)
        if read.gone:
            return  # those that are named are looked for once more
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
        self._findings.judged(read.size)

    def _check_identity(self, read: SealedRead) -> None:
        claim = self._claims.get(read.generation)
        if claim is None:
            return
        expected = (claim.log, claim.format, claim.owner)
        for what, mine, theirs in zip(("log", "format", "owner"), read.identity, expected, strict=True):
            if mine != theirs:
                self._anomalies.add(Kind.FOREIGN, read.key, f"{what} is {mine}, and its generation's is {theirs}")

    def _compare(self, made: SnapshotEntry, entry: SnapshotEntry, by: str) -> None:
        for name in _FIELDS:
            mine, theirs = getattr(made, name), getattr(entry, name)
            if mine != theirs:
                self._other(name, mine, theirs, made.key, by)

    def _other(self, name: str, mine: object, theirs: object, key: str, by: str) -> None:
        kind = Kind.LENGTH if name == "size" else Kind.CONFLICT
        self._anomalies.add(kind, key, f"{name} is {mine}, and {theirs} in {by}, which names it")

    def _is_gone(self, entry: SnapshotEntry) -> bool:
        """Look for one that is named and was not listed: a listing may be a moment late. True if it is not there."""
        read = self._reader.read(self._place_of(entry))
        self._take(read)
        return read.gone

    def _place_of(self, entry: SnapshotEntry) -> tuple[Generation, int, int]:
        parsed = parse_sealed(entry.key)
        assert parsed is not None
        return (*parsed, entry.size)

    def _read_of(self, entry: SnapshotEntry) -> SealedRead:
        return SealedRead(*self._place_of(entry))
