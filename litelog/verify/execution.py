"""Verifies all of a replica, in an order that needs little memory, and continues no matter what it finds.

Claims and snapshots come first, as they say what must exist. Then come the sealed segments, then the WAL segments of
each generation, oldest first. Objects are read concurrently and judged in order.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from litelog.errors import CorruptionError, CorruptObjectError, NotFoundError, PrunedError, StoreError
from litelog.objects.claim import Relation
from litelog.objects.layout import snapshot_prefix, wal_key, wal_prefix
from litelog.objects.position import Generation, Position, epoch_of
from litelog.objects.wal_segment import LASTING_SEGMENTS, digest, may_be_remnant
from litelog.reading import latest as reading
from litelog.reading.fetch import OrderedPool, read_verified
from litelog.reading.latest import latest
from litelog.stores.capabilities import kept_versions
from litelog.stores.object_store import ObjectReplicaClient, read_bounded
from litelog.system.clock import SystemClock
from litelog.verify.anchored_store import AnchoredStore
from litelog.verify.chain import Chain, ChainExtent
from litelog.verify.checkpoints import check_checkpoints
from litelog.verify.claims import ClaimReader
from litelog.verify.consumers import check_consumers
from litelog.verify.findings import Anomalies, AnomalyKind, Findings, Formats, Scope, Watch, anomaly_of
from litelog.verify.inventory import ListedObjects, take_generation_inventory, take_inventory, wal_between
from litelog.verify.local_compare import HeldSegment, LocalComparison, LocalLog, NotComparedReason
from litelog.verify.report import VerifiedGeneration, VerifyReport
from litelog.verify.sealed import SealedChecks, SealedVerifier
from litelog.verify.snapshots import SnapshotReader
from litelog.verify.versions import check_versions
from litelog.verify.wal import WalReader
from litelog.verify.wal_checks import GenerationUnderTest, VerifyContext

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from litelog.formats import LogFormat
    from litelog.objects.claim import Claim
    from litelog.stores.object_store import ObjectStore
    from litelog.system.clock import Clock
    from litelog.verify.chain import ChainSegment
    from litelog.verify.claims import Claims
    from litelog.verify.findings import Acknowledged
    from litelog.verify.local_compare import Comparison
    from litelog.verify.sealed import SealedRead
    from litelog.verify.snapshots import KnownSnapshots

PARALLELISM = 4
"""The number of threads. Even on two cores, some wait for the store while others decompress."""

MAX_PARALLELISM = 64
"""Each thread holds one object, or one run of a sealed segment's frames: at most 112 MiB, if it is one commit of the
largest size. In addition, a few MiB of two sealed segments wait until they are hashed."""


def verify(  # noqa: PLR0913 - each is a separate choice
    store: ObjectStore,
    *,
    formats: Callable[[str], LogFormat],
    scope: Scope | None = None,
    parallelism: int = PARALLELISM,
    acknowledged: Acknowledged | None = None,
    against: str | None = None,
    watch: Watch | None = None,
    clock: Clock | None = None,
    known: Mapping[tuple[Generation, int, int], SealedRead] | None = None,
) -> VerifyReport:
    """Check all objects of the replica in ``store``. Changes nothing, and raises no error for damage to the replica.

    Args:
        store: The replica's object store.
        formats: Returns a log format by its name.
        scope: Which contents to read; by default all.
        parallelism: The number of objects read at a time, 1 to MAX_PARALLELISM.
        acknowledged: What the replica's owner knows to be durable.
        against: The folder of the local log, to compare the latest generation with.
        watch: Receives progress and anomalies, and may stop the verification.
        clock: For times in the report.
        known: Sealed segments that were read elsewhere with the same scope, by (generation, index, size in bytes).
            They are not read again.

    Returns:
        The report, with all anomalies.

    Raises:
        StoreError: The store cannot even be listed, or its root is away.
        VerifyStoppedError: ``watch`` stopped the verification.
        SourceError, SourceMissingError: The local log cannot be read, or is missing.
        ValueError: ``parallelism`` is out of range.
    """
    if not 1 <= parallelism <= MAX_PARALLELISM:
        raise ValueError(f"parallelism is 1 to {MAX_PARALLELISM}, not {parallelism}")
    clock = clock or SystemClock()
    started = clock.monotonic()
    scope = scope or Scope()
    watch = watch or Watch()
    findings = Findings(watch, Anomalies(watch.anomaly))
    with OrderedPool(parallelism) as pool:
        run = _Verification(
            AnchoredStore(store),
            findings,
            Formats(formats, findings.unknown_formats),
            scope,
            pool,
            known or {},
            against,
        )
        generations = run.run(acknowledged)
        check_versions(kept_versions(store), run.isolated, findings)
        comparison = run.compare()
    return VerifyReport.of(store.url, findings, scope, generations, comparison, clock.monotonic() - started)


class _Verification:
    def __init__(
        self,
        store: ObjectStore,
        findings: Findings,
        formats: Formats,
        scope: Scope,
        pool: OrderedPool,
        known: Mapping[tuple[Generation, int, int], SealedRead],
        against: str | None,
    ) -> None:
        """``against``: the folder of the log to compare the replica with; None: it is not compared."""
        self._store = store
        self._findings = findings
        self._anomalies = findings.anomalies
        self._formats = formats
        self._scope = scope
        self._pool = pool
        self._claims = ClaimReader(store, findings)
        self._snapshots = SnapshotReader(store, findings, formats)
        self._wal = WalReader(store, scope, formats, self._local)
        self._against = against
        self._locals: dict[str, LocalLog] = {}
        """The log to compare with, by the name of the format in which it is read."""
        self._sealed_reader = SealedVerifier(store, scope, formats, known)
        self._tools = VerifyContext(store, self._wal, self._sealed_reader, self._claims, findings, formats)
        self._bases: dict[Generation, KnownSnapshots] = {}
        self._subjects: dict[Generation, GenerationUnderTest] = {}
        self._shipped: dict[Generation, tuple[ChainSegment, ...]] = {}
        self._extents: dict[Generation, ChainExtent] = {}

    @property
    def isolated(self) -> Collection[Generation]:
        """The generations of owners that nothing fences."""
        return self._claims.claims.isolated

    def run(self, acknowledged: Acknowledged | None) -> list[VerifiedGeneration]:
        """Judge everything. Return the result for each generation, oldest first."""
        seen = take_inventory(self._store, self._anomalies)
        self._findings.total, self._findings.total_bytes = seen.objects, seen.bytes
        if self._findings.watch.walk is not None:
            self._findings.watch.walk(max(len(seen.claims), len(seen.generations)))
        claims = self._claims.read(seen.claims)
        self._open_local(claims)
        for name in claims.by_generation:
            seen.generations.setdefault(name, ListedObjects(name))
        generations = dict(sorted(seen.generations.items()))
        self._findings.counts.generations = len(generations)
        for name, held in generations.items():
            if name not in claims.by_generation:
                self._claims.require_of(name)
            self._bases[name] = self._snapshots.read_all(held, claims.by_generation.get(name))
        check_checkpoints(self._store, seen.checkpoints, self._findings)
        check_consumers(self._store, seen.consumers, self._findings)
        sealed = SealedChecks(self._store, self._sealed_reader, self._snapshots, claims.by_generation, self._findings)
        sealed.read_all(generations, self._pool)
        if self._scope.share and generations:
            self._wal.always = max(generations.values(), key=lambda held: held.wal_segments).first_wal
        started = max((epoch_of(name) for name, held in generations.items() if held.snapshots), default=0)
        reports = [self._check_one(held, claims, sealed, started) for held in generations.values()]
        for claim in claims.by_generation.values():
            self._check_mapping(claim)
        if acknowledged is not None:
            try:
                self._check_acknowledged(acknowledged)
            except StoreError as error:
                self._findings.fail(error)
        return reports

    def _check_one(self, held: ListedObjects, claims: Claims, sealed: SealedChecks, started: int) -> VerifiedGeneration:
        """Judge one generation: the log segments in its snapshots, its WAL segments, and its end."""
        name, base = held.name, self._bases[held.name]
        claim = claims.by_generation.get(name)
        if base.newest is not None:
            sealed.check_succession(base.newest)

        subject = GenerationUnderTest(
            name,
            claim,
            base,
            known=lambda index: base.entry(index) or sealed.known(name, index),
            find_sealed=partial(sealed.find, name),
            is_unread=partial(sealed.is_unread, name),
            mark_contradicted=sealed.mark_contradicted,
            look_again=partial(self._look_again, claims=claims, started=started),
            pruned=self._was_pruned(held, claims, started),
        )
        self._subjects[name] = subject
        if subject.pruned:
            self._note_half_gone(held)
        chain = Chain(subject, self._tools)
        try:
            for read in self._pool.map(self._wal.read, self._listed(held)):
                if not read.gone:
                    self._findings.counts.wal_segments += 1
                    self._findings.counts.content_bytes += read.content
                chain.take(read)
                self._findings.count_judged(read.size)
            extent = chain.finish((end, key) for end, key in claims.ends() if end.generation == name)
            self._check_vanished(subject)
        except StoreError as error:
            self._findings.fail(error)
            extent = ChainExtent(None, ended=False, next=None, shipped=0, read=False)
        if extent.read:
            self._check_end(name, extent, claims, started)
            covered = base.covered or 0  # while a generation begins, its log segments are sealed before its snapshot
            sealed.check_unnamed(name, covered, extent.slot, ended=extent.ended, finals=chain.sealed_digests)
        self._check_predecessor_end(base, claims)
        self._check_beginning(base, extent)
        self._extents[name] = extent
        self._shipped[name] = tuple(chain.segments.values())
        return VerifiedGeneration.of(held, claim, base, extent)

    def _look_again(self, subject: GenerationUnderTest, claims: Claims, started: int) -> None:
        """List a generation again: its owner or retention may have changed it. Raises StoreError."""
        self._snapshots.refresh(subject.base, subject.name)
        if not (subject.base.any_left or subject.pruned):
            held = take_generation_inventory(self._store, subject.name)
            subject.pruned = subject.pruned_meanwhile = self._was_pruned(held, claims, started)

    def _check_vanished(self, subject: GenerationUnderTest) -> None:
        """Report lost snapshots. Retention removes older snapshots only, or the newest with all of its generation."""
        if subject.base.vanished and subject.base.covered is None:
            subject.refresh()
            for key in subject.base.vanished if subject.base.covered is None and not subject.pruned else ():
                self._anomalies.add(AnomalyKind.MISSING, key, "was listed and is gone, and no newer one is there")

    def _was_pruned(self, held: ListedObjects, claims: Claims, started: int) -> bool:
        """Whether retention seems to have pruned a generation, or to be pruning it: it has no snapshot, and precedes
        all that can be restored."""
        if held.snapshots or epoch_of(held.name) >= started:
            return False
        claim = claims.by_generation.get(held.name)
        start = held.first_wal if claim is None else Position(held.name, claim.first, 0)
        if start is not None and not may_be_remnant(held.first_wal, start, held.wal_segments):
            return False
        bases = ((name, base) for name, base in self._bases.items() if name != held.name and base.listed)
        older = (name for name, _ in bases if name not in claims.isolated)
        return held.name < min(older, default=held.name) or held.name in claims.isolated

    def _note_half_gone(self, held: ListedObjects) -> None:
        """Report the leftovers of an interrupted prune. The next prune deletes them, and no reader uses them, but they
        look the same as a generation that lost its last snapshot."""
        if held.wal_segments > LASTING_SEGMENTS:
            what = f"there is none, but {held.wal_segments} WAL segments: an interrupted prune leaves this state"
            self._anomalies.add(AnomalyKind.MISSING, snapshot_prefix(held.name), what, harmful=False)

    def _listed(self, held: ListedObjects) -> Iterator[tuple[Position, int]]:
        return wal_between(self._store, Position(held.name, 0, 0), None)

    def _check_end(self, name: Generation, extent: ChainExtent, claims: Claims, started: int) -> None:
        """Check that a generation was ended before one above it began."""
        if extent.ended or epoch_of(name) >= started or name in claims.isolated:
            return
        key = wal_prefix(name) if extent.slot is None else wal_key(extent.slot)
        self._anomalies.add(
            AnomalyKind.MISSING, key, f"is not ended, and a generation of epoch {started} began after it"
        )

    def _check_beginning(self, base: KnownSnapshots, extent: ChainExtent) -> None:
        """Report a first snapshot that came after its generation had been closed. It harms no reader."""
        if base.newest is not None and not extent.began and extent.slot is not None:
            what = f"came after {wal_key(extent.slot)}: its generation never began, and no reader takes it"
            self._anomalies.add(AnomalyKind.ORPHAN, base.newest.key, what, harmful=False)

    def _check_predecessor_end(self, base: KnownSnapshots, claims: Claims) -> None:
        """Check that the end that a snapshot states for its predecessor is its terminal's place. An isolated generation
        does not have to have ended."""
        for facts in base.facts.values():
            end = facts.predecessor_end
            is_fixed = end is not None and end.generation not in claims.isolated
            older = self._extents.get(end.generation) if end is not None and is_fixed else None
            if older is not None and older.ended and older.slot is not None and older.slot != end:
                what = f"says that its predecessor ended at {end}; its terminal lies at {older.slot}"
                self._anomalies.add(AnomalyKind.CONFLICT, facts.key, what)

    def _check_mapping(self, claim: Claim) -> None:
        """Check that a claim maps the log segment with which its predecessor ended to that segment's own index."""
        if claim.relation is not Relation.CONTINUES or claim.predecessor is None:
            return
        newer, older = claim.generation, claim.predecessor
        end = self._extents.get(older)
        if end is None or end.slot is None or not end.ended or newer not in self._extents:
            return
        last = end.slot.index - (end.slot.offset == 0)
        ended, mapped = self._names(older).get(last), last + claim.shift
        names = self._names(newer)
        found = next((index for index, name in names.items() if name == ended), mapped)
        if ended is not None and (found != mapped or names.get(mapped, ended) != ended):
            there = f", which is {names[mapped]!r}" if mapped in names else f", and it is index {found}"
            what = f"maps log segment {ended!r} of generation {older} to index {mapped}{there}"
            self._anomalies.add(AnomalyKind.CONFLICT, claim.key, what)

    def _names(self, name: Generation) -> dict[int, str]:
        """The names of a generation's log segments, by index."""
        return {held.place.index: held.file for held in self._held(name)}

    def _check_acknowledged(self, acknowledged: Acknowledged) -> None:
        """Check that the object that the owner knows to be durable exists: no other object names the newest one."""
        key = wal_key(acknowledged.position)

        def check(body: bytes) -> None:
            if (found := digest([body])) != acknowledged.digest:
                raise CorruptObjectError(key, f"is {found}, and its owner put {acknowledged.digest} there")

        try:
            read_verified(partial(read_bounded, self._store, key), check)
        except CorruptObjectError as error:
            self._anomalies.take(anomaly_of(key, error))
        except NotFoundError:
            if not self._was_deleted(acknowledged.position):
                self._anomalies.add(AnomalyKind.MISSING, key, "is missing: the store had confirmed it to its owner")

    def _was_deleted(self, position: Position) -> bool:
        """Whether a missing WAL segment was deleted because a snapshot covers it: the owner's knowledge is old."""
        subject = self._subjects.get(position.generation)
        if subject is None:
            return False
        subject.refresh()
        if position < Position(position.generation, subject.base.covered or 0, 0):
            return True
        return subject.pruned and next(wal_between(self._store, position, None), None) is not None

    def _local(self, format_name: str) -> LocalLog | None:
        """The log to compare with, read in a format; None without one. Threads of the pool call it."""
        return self._locals.get(format_name)

    def _open_local(self, claims: Claims) -> None:
        """Open the log to compare with, for each format of the replica. Raises SourceError, SourceMissingError."""
        folder = self._against
        if folder is None:
            return
        for name in {claim.format for claim in claims.by_generation.values()}:
            log_format = self._formats(name)
            if log_format is not None:
                self._locals[name] = LocalLog(folder, log_format)

    def compare(self) -> Comparison | None:
        """Compare the latest generation with the log. None without a log, if that is another log, if the replica holds
        no generation, or if the store fails to return what the comparison needs."""
        folder = self._against
        if folder is None or self._snapshots.unread or not all(extent.read for extent in self._extents.values()):
            return None
        claim = self._latest()
        log_format = None if claim is None else self._formats(claim.format)
        if claim is None or log_format is None:
            return None
        local = self._locals[claim.format]
        local.refresh()
        if (other := local.other_format()) is not None:
            what = f"is a log of {other.written_by} (format {other.format}); the replica's is of format {claim.format}"
            self._anomalies.add(AnomalyKind.FOREIGN, folder, what)
            return None
        if (log_id := local.log_id()) not in (None, claim.log):
            self._anomalies.add(AnomalyKind.FOREIGN, folder, f"is another log, {log_id}; the replica holds {claim.log}")
            return None
        comparer = LocalComparison(local, self._scope, self._store, self._sealed_reader, self._wal)
        name = claim.generation
        earlier = self._names_before(name) if claim.relation is Relation.DIVERGED else frozenset[str]()
        compared = comparer.compare(name, self._held(name), earlier, self._findings, self._pool)
        if self._scope.is_all and any(each.reason is NotComparedReason.REWRITTEN for each in compared.not_compared):
            self._compare_rewritten(folder, log_format, name)
        return compared

    def _compare_rewritten(self, folder: str, log_format: LogFormat, name: Generation) -> None:
        """Compare the records of a log whose writer has rewritten log segments."""
        from litelog.verify.rewritten import find_unlike_record  # noqa: PLC0415 - it loads NumPy, and few logs need it

        with suppress(CorruptionError, PrunedError):  # reported where the object or the log segment is read
            sequence = find_unlike_record(folder, log_format, ObjectReplicaClient(self._store), name)
            if sequence is not None:
                what = f"was rewritten by its writer, and its record {sequence} is not as generation {name} holds it"
                self._anomalies.add(AnomalyKind.DIFFERS, folder, what)

    def _names_before(self, generation: Generation) -> frozenset[str]:
        """The names of the log segments that earlier generations hold."""
        older = (name for name in self._extents if name < generation)
        return frozenset(segment.file for name in older for segment in self._held(name))

    def _held(self, name: Generation) -> Iterator[HeldSegment]:
        newest = self._bases[name].newest if self._extents[name].began else None
        for entry in newest.segments if newest is not None else ():
            yield HeldSegment.of_entry(entry, name)
        covered = newest.next if newest is not None else 0  # a newer one may exist by now
        for shipped in self._shipped[name]:
            if shipped.index < covered:
                continue
            yield HeldSegment.of_wal(wal_key(Position(name, shipped.index, 0)), shipped, name)

    def _latest(self) -> Claim | None:
        """The claim of the generation that readers use. If damage hides which generation that is: the claim of the
        newest generation that holds anything."""
        claims = self._claims.claims.by_generation
        known = {name: claim for name, claim in claims.items() if name in self._extents}
        held = [name for name in known if any(True for _ in self._held(name))]
        try:
            return latest(known, self._reading_extent, lambda claim: claim.generation in held)
        except CorruptionError:
            return known[max(held)] if held else None

    def _reading_extent(self, claim: Claim) -> reading.GenerationRange:
        name = claim.generation
        slot = self._extents[name].slot
        if slot is None:
            raise CorruptObjectError(wal_prefix(name), "its end is damaged")
        return reading.GenerationRange(Position(name, claim.first, 0), slot)
