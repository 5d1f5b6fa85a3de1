"""Judges what one WAL segment says: by the objects before it, by the sealed segments, and by the claims."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from litelog.codec.checksum import combine
from litelog.objects.layout import parse_claim, sealed_key, snapshot_key
from litelog.objects.position import Position, epoch_of
from litelog.reading.beginning import never_began
from litelog.reading.wal_chain import MAX_FILE_NAME_BYTES
from litelog.verify.findings import AnomalyKind
from litelog.verify.wal import MarkChecks

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalHeader
    from litelog.stores.object_store import ObjectStore
    from litelog.verify.claims import ClaimReader
    from litelog.verify.findings import Findings, Formats
    from litelog.verify.sealed import SealedVerifier
    from litelog.verify.snapshots import KnownSnapshots
    from litelog.verify.wal import WalRead, WalReader


@dataclass(slots=True)
class ChainPosition:
    """The state of the chain. None means unknown: what came before is damaged, was pruned, or was not read."""

    slot: Position | None
    """The position at which the next WAL segment must lie."""
    digest: str | None = None
    """SHA-256 of the object before it."""
    key: str = ""
    """That object's."""
    crc_total: int | None = 0
    """CRC-32C of the index's bytes so far."""
    next: int | None = None
    """The sequence that follows; None before the first record."""
    exact: bool = True
    """Whether that is the exact next sequence, and not only a lower bound."""
    file: str = ""
    """The file name of the index's log segment; empty at its start, or if unknown."""
    file_before: str = ""
    shipped: int = 0
    epoch: int = 0
    last: WalHeader | None = None
    """The last WAL segment that carries bytes or ends an index."""
    ended: bool = False


@dataclass(frozen=True, slots=True)
class VerifyContext:
    """The tools for judging all generations."""

    store: ObjectStore
    reader: WalReader
    sealed: SealedVerifier
    claims: ClaimReader
    findings: Findings
    formats: Formats


@dataclass(slots=True)
class GenerationUnderTest:
    """The generation that is being judged."""

    name: Generation
    claim: Claim | None
    base: KnownSnapshots
    known: Callable[[int], SnapshotEntry | None]
    """The sealed entry of a log segment, by its index."""
    find_sealed: Callable[[int], SnapshotEntry | None]
    """The same, for log segments that were sealed since the listing. Raises StoreError."""
    is_unread: Callable[[int], bool]
    """Whether that sealed segment exists and cannot be read."""
    mark_contradicted: Callable[[SnapshotEntry, str], bool]
    """Reports what contradicts a sealed segment; returns False if a snapshot names it, which makes it a conflict."""
    look_again: Callable[[GenerationUnderTest], None]
    """Lists the generation again: updates ``base``, and ``pruned`` if no snapshot is left. Called before anything is
    reported as missing. Raises StoreError."""
    pruned: bool = False
    """Whether retention pruned it, if that can be determined. The WAL segments that are never deleted remain."""
    pruned_meanwhile: bool = False
    """Whether retention pruned it since the verification began."""

    def refresh(self) -> None:
        """List it again. Raises StoreError."""
        self.look_again(self)

    @property
    def first(self) -> int:
        """The first index that it ships as WAL segments."""
        return self.claim.first if self.claim is not None else min(self.base.listed, default=0)

    @property
    def covered(self) -> int:
        """The index before which WAL segments may have been deleted."""
        covered = self.base.covered
        return self.first if covered is None else max(self.first, covered)


class WalChecks:
    """Judges the WAL segments of one generation, one at a time. ``state`` is the state of the chain before it."""

    def __init__(self, subject: GenerationUnderTest, tools: VerifyContext) -> None:
        self._subject = subject
        self._name = subject.name
        self._base = subject.base
        self._tools = tools
        self._anomalies = tools.findings.anomalies
        self._marks = MarkChecks(subject.name, subject.known, tools.sealed, self._against)
        claim = subject.claim
        self._identity = None if claim is None else (claim.log, claim.format, claim.owner)
        facts = subject.base.facts.items()
        self.unproved = {at: it for at, it in facts if it.chain is not None and at > subject.first}
        """The snapshots whose ``chain`` is still to be compared, by their index."""
        self.sealed_digests: set[str] = set()
        """The digests of sealed segments that a ``final`` names."""

    def check(self, state: ChainPosition, read: WalRead, header: WalHeader) -> None:
        """Judge a WAL segment that lies at a valid position."""
        self._check_identity(read.key, header)
        self._check_chain(state, read, header)
        self.prove_snapshots(state, header)
        self._check_sums(state, read.key, header)
        if header.shipped < state.shipped:
            self._order(read.key, "time shipped", state.shipped, header.shipped)
        if header.successor is not None:
            self._check_terminal(state, read.key, header)
            return
        self._check_file(state, read.key, header)
        self._marks.check(read.key, header)
        self._check_sequences(state, read, header)
        if read.epoch is not None:
            if read.epoch < state.epoch:
                self._order(read.key, "epoch of its commits", state.epoch, read.epoch)
            state.epoch = max(state.epoch, read.epoch)
        if header.final:
            self._check_sealed(read.key, header)

    def _check_identity(self, key: str, header: WalHeader) -> None:
        if self._identity is None:
            self._identity = (header.log, header.format, header.owner)
        log, format_name, owner = self._identity
        for what, expected, actual in (("log", log, header.log), ("format", format_name, header.format)):
            if expected != actual:
                self._anomalies.add(AnomalyKind.FOREIGN, key, f"{what} is {actual}, and its generation's is {expected}")
        if header.successor is None and header.owner != owner:
            self._anomalies.add(AnomalyKind.FOREIGN, key, f"was written by owner {header.owner}, not {owner}")

    def _check_chain(self, state: ChainPosition, read: WalRead, header: WalHeader) -> None:
        at_start = header.position == Position(self._name, self._subject.first, 0)
        if never_began(self._subject.first, header):
            return  # its owner may have been late with the snapshot
        if at_start and state.digest is None and self._subject.first not in self._base.listed:
            self._subject.refresh()
            facts = self._base.facts.get(self._subject.first)
            if facts is not None:  # it was written since the snapshots were listed
                state.digest, state.key = facts.digest, facts.key
            elif self._subject.covered == self._subject.first and self._subject.first not in self._base.listed:
                what = f"is missing; {read.key} was written after it"
                if self._subject.pruned:
                    what += ", as retention leaves it"
                key = snapshot_key(self._name, self._subject.first)
                self._anomalies.add(AnomalyKind.MISSING, key, what, harmful=not self._subject.pruned)
        if state.digest is not None and header.previous != state.digest:
            what = f"names {header.previous or 'nothing'} as the object before it, and {state.key} is {state.digest}"
            self._anomalies.add(AnomalyKind.CHAIN, read.key, what)

    def prove_snapshots(self, state: ChainPosition, header: WalHeader | None) -> None:
        """Check that snapshots up to this index name the last WAL segment before it. None: at the generation's end."""
        reached = [at for at in self.unproved if header is None or at <= header.index]
        for at in reached:
            facts = self.unproved.pop(at)
            is_next = header is not None and header.position == Position(self._name, at, 0)
            digest = state.digest if state.digest is not None or header is None or not is_next else header.previous
            passed = state.last is not None and state.last.index >= at
            if digest is not None and digest != facts.chain and not passed:
                what = f"names {facts.chain} as the last WAL segment before index {at}, which is {digest}"
                self._anomalies.add(AnomalyKind.CHAIN, facts.key, what)

    def give_up_proofs(self, index: int) -> None:
        """Give up the snapshots up to ``index`` whose last WAL segment before them does not exist any more."""
        for at in [at for at in self.unproved if at <= index]:
            del self.unproved[at]

    def _check_sums(self, state: ChainPosition, key: str, header: WalHeader) -> None:
        before = 0 if header.offset == 0 else state.crc_total
        if before is None or header.sealed is not None:
            return
        total = combine(before, header.crc, header.length)
        if total != header.crc_total:
            what = f"CRC-32C up to its end is {header.crc_total:#010x}, expected {total:#010x}"
            self._anomalies.add(AnomalyKind.CHECKSUM, key, what)

    def _check_terminal(self, state: ChainPosition, key: str, header: WalHeader) -> None:
        successor = parse_claim(header.successor or "")
        if header.length or header.final:
            self._anomalies.add(AnomalyKind.CONFLICT, key, "is a terminal, and not an empty one")
        if state.file and header.file not in ("", state.file):
            what = f"is a terminal in {header.file!r}, and the log segment before it is {state.file!r}"
            self._anomalies.add(AnomalyKind.CONFLICT, key, what)
        if successor is None or successor[0] <= epoch_of(self._name):
            what = f"names {header.successor!r} as its successor, which is not a claim of a higher epoch"
            self._anomalies.add(AnomalyKind.CONFLICT, key, what)
        elif header.successor is not None:
            self._tools.claims.require(header.successor, f"is missing; the terminal {key} names it")

    def _check_file(self, state: ChainPosition, key: str, header: WalHeader) -> None:
        file = header.file
        if state.file:
            if file != state.file:
                self._anomalies.add(
                    AnomalyKind.CONFLICT, key, f"file is {file!r}, and {state.file!r} before it in its index"
                )
            return
        log_format = self._tools.formats(header.format)
        if log_format is None:
            return
        order = log_format.segment_order(file)
        plain = file not in ("", ".", "..") and not any(mark in file for mark in "/\\\0")
        if order is None or not plain or len(file.encode(errors="replace")) > MAX_FILE_NAME_BYTES:
            what = f"file {file!r} is not the name of a log segment of format {log_format.name}"
            self._anomalies.add(AnomalyKind.FOREIGN, key, what)
            return
        before = log_format.segment_order(state.file_before) if state.file_before else None
        if before is not None and order <= before:
            self._order(key, "file", f"one that sorts after {state.file_before!r}", repr(file))

    def _check_sequences(self, state: ChainPosition, read: WalRead, header: WalHeader) -> None:
        expected = state.next
        if header.sealed is not None and not header.records:
            if header.next is not None and expected is not None and header.next < expected:
                self._order(read.key, "next sequence", expected, header.next)
        elif header.first is None:
            is_other = None not in (header.next, expected) and header.next != expected
            if header.records or (is_other and state.exact):
                what = f"holds {header.records} records without a first sequence, and {header.next} follows"
                self._anomalies.add(AnomalyKind.CONFLICT, read.key, what)
        elif expected is not None and header.first < expected:
            self._order(read.key, "first sequence", expected, header.first)
        elif expected is not None and header.first > expected and state.exact:
            problem = self._tools.reader.follows(read, expected)
            if problem is not None:
                self._anomalies.take(problem)

    def _check_sealed(self, key: str, header: WalHeader) -> None:
        """Check a log segment's last WAL segment against its sealed segment, if it has one."""
        if header.sealed is not None:
            self.sealed_digests.add(header.sealed)
        entry = self._subject.known(header.index)
        if entry is None and header.sealed is not None and not self._is_dropped(header.index):
            entry = self._subject.find_sealed(header.index)  # it may have been sealed since the listing
        if entry is None:
            if header.sealed is not None and self._is_missing(header.index):
                what = f"is not there; {key} names it"
                self._anomalies.add(AnomalyKind.MISSING, sealed_key(self._name, header.index), what)
            return
        facts: list[tuple[str, object, object]] = [("file", header.file, entry.file)]
        if header.sealed is not None:
            facts.append(("SHA-256", header.sealed, entry.digest))
        else:
            facts.append(("length", header.end, entry.length))
            facts.append(("CRC-32C", f"{header.crc_total:#010x}", f"{entry.crc:#010x}"))
        if header.next is not None and entry.next is not None:
            facts.append(("next sequence", header.next, entry.next))
        for what, mine, theirs in facts:
            if mine != theirs:
                self._against(entry, f"{what} is {theirs}, and {mine} in {key}", is_named=header.sealed is not None)

    def _is_missing(self, index: int) -> bool:
        """Whether a sealed segment that was not found should exist."""
        if self._is_dropped(index) or self._subject.is_unread(index):
            return False
        self._subject.refresh()
        return not (self._is_dropped(index) or self._subject.pruned)

    def _is_dropped(self, index: int) -> bool:
        """Whether the newest snapshot begins after a log segment, so that its sealed segment may be gone."""
        return self._base.newest is not None and index < self._base.newest.first

    def _against(self, entry: SnapshotEntry, what: str, *, is_named: bool = False) -> None:
        """Report a sealed segment that contradicts the WAL. It counts only if a snapshot or a ``final`` names it."""
        if is_named or not self._subject.mark_contradicted(entry, what):
            self._anomalies.add(AnomalyKind.CONFLICT, entry.key, what)

    def _order(self, key: str, what: str, bound: object, actual: object) -> None:
        more = bound if isinstance(bound, str) else f"{bound} or above"
        self._anomalies.add(AnomalyKind.ORDER, key, f"{what} is {actual}, expected {more}")
