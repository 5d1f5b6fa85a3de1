"""Judges the statements of one WAL segment by the objects before it, by the sealed segments, and by the claims."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.objects.chain import Identity, Rule, never_began, sealed_violations, violations
from litelog.objects.layout import parse_claim, sealed_key, snapshot_key
from litelog.objects.position import Position, epoch_of
from litelog.verify.findings import AnomalyKind
from litelog.verify.wal import MarkChecks

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.objects.chain import ChainState, Violation
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


KINDS = {
    Rule.ENDED: AnomalyKind.ORDER,
    Rule.BEFORE_FIRST: AnomalyKind.ORDER,
    Rule.OVERLAP: AnomalyKind.OVERLAP,
    Rule.GAP: AnomalyKind.GAP,
    Rule.IDENTITY: AnomalyKind.FOREIGN,
    Rule.OWNER: AnomalyKind.FOREIGN,
    Rule.DIGEST: AnomalyKind.CHAIN,
    Rule.CHECKSUM: AnomalyKind.CHECKSUM,
    Rule.TIME: AnomalyKind.ORDER,
    Rule.TERMINAL: AnomalyKind.CONFLICT,
    Rule.FILE: AnomalyKind.CONFLICT,
    Rule.FILE_NAME: AnomalyKind.FOREIGN,
    Rule.FILE_ORDER: AnomalyKind.ORDER,
    Rule.SEQUENCE: AnomalyKind.ORDER,
    Rule.UNNUMBERED: AnomalyKind.CONFLICT,
    Rule.SEALED: AnomalyKind.CONFLICT,
}
"""The kind of anomaly for each broken rule of the chain."""


@dataclass(slots=True)
class ChainPosition:
    """How far the verification of a generation has come."""

    state: ChainState
    is_lost: bool = False
    """Whether the next slot is unknown, because an object is damaged or was not read."""
    key: str = ""
    """The key of the object that has ``state.digest``."""
    epoch: int = 0
    """The epoch of the last commit that was read."""
    last: WalHeader | None = None
    """The last WAL segment that carries bytes or ends an index."""

    @property
    def slot(self) -> Position | None:
        """The position at which the next WAL segment must lie; None if it is unknown."""
        return None if self.is_lost else self.state.slot

    def lose(self, slot: Position | None) -> None:
        """Trust the statements of the next WAL segment, at ``slot`` if that is known."""
        self.state = self.state.after_loss(slot or self.state.slot)
        self.is_lost, self.key = slot is None, ""

    def name_before(self, digest: str, key: str) -> None:
        """Note the object that the next WAL segment must name as the one before it."""
        self.state, self.key = replace(self.state, digest=digest), key

    def advance(self, header: WalHeader, key: str, digest: str) -> None:
        """Step past a WAL segment. ``digest``: its SHA-256; empty if it is damaged."""
        self.state, self.is_lost = self.state.after(header, digest), False
        if header.successor is None:
            self.key, self.last = key, header


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
    """Notes a contradiction of a sealed segment. Returns False if a snapshot names it: then it is a conflict."""
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
    """Judges the WAL segments of one generation, one at a time."""

    def __init__(self, subject: GenerationUnderTest, tools: VerifyContext) -> None:
        self._subject = subject
        self._name = subject.name
        self._base = subject.base
        self._tools = tools
        self._anomalies = tools.findings.anomalies
        self._marks = MarkChecks(subject.name, subject.known, tools.sealed, self._against)
        facts = subject.base.facts.items()
        self.unproved = {at: it for at, it in facts if it.chain is not None and at > subject.first}
        """The snapshots whose ``chain`` is still to be compared, by their index."""
        self.sealed_digests: set[str] = set()
        """The digests of sealed segments that a ``final`` names."""

    def check(self, before: ChainPosition, read: WalRead, header: WalHeader) -> None:
        """Judge a WAL segment that lies at a valid position."""
        if before.state.identity is None:
            before.state = replace(before.state, identity=Identity.of(header))
        self._find_late_snapshot(before, read, header)
        is_terminal = header.successor is not None
        log_format = None if is_terminal else self._tools.formats(header.format)
        self._confirm_digest(before, header)
        for violation in violations(before.state, header, log_format):
            self.report(violation, read.key, before.key)
        self.prove_snapshots(before, header)
        if is_terminal:
            self._check_successor(read.key, header)
            return
        self._marks.check(read.key, header)
        self._check_skipped(before.state, read, header)
        if read.epoch is not None:
            if read.epoch < before.epoch:
                what = f"epoch of its commits is {read.epoch}, expected {before.epoch} or above"
                self._anomalies.add(AnomalyKind.ORDER, read.key, what)
            before.epoch = max(before.epoch, read.epoch)
        if header.final:
            self._check_sealed(before.state, read.key, header)

    def _confirm_digest(self, before: ChainPosition, header: WalHeader) -> None:
        """Read the object before once more if ``header`` names another digest: bytes may change in transit."""
        if before.state.digest in ("", header.previous) or never_began(self._subject.first, header):
            return
        if self._tools.reader.has_digest(before.key, header.previous):
            before.name_before(header.previous, before.key)

    def report(self, violation: Violation, key: str, before: str = "") -> None:
        """Report a broken rule of the chain. ``before``: the key of the object before."""
        self._anomalies.add(KINDS[violation.rule], key, _render(violation, before))

    def _find_late_snapshot(self, before: ChainPosition, read: WalRead, header: WalHeader) -> None:
        """Look again for the first snapshot if the listing lacked it; report it if it is missing."""
        first = self._subject.first
        at_start = header.position == Position(self._name, first, 0)
        if not at_start or before.state.digest or first in self._base.listed or never_began(first, header):
            return
        self._subject.refresh()
        facts = self._base.facts.get(first)
        if facts is not None:  # it was written since the snapshots were listed
            before.name_before(facts.digest, facts.key)
        elif self._subject.covered == first and first not in self._base.listed:
            what = f"is missing; {read.key} was written after it"
            if self._subject.pruned:
                what += ", as retention leaves it"
            key = snapshot_key(self._name, first)
            self._anomalies.add(AnomalyKind.MISSING, key, what, harmful=not self._subject.pruned)

    def prove_snapshots(self, before: ChainPosition, header: WalHeader | None) -> None:
        """Check that snapshots up to this index name the last WAL segment before it. None: at the generation's end."""
        reached = [at for at in self.unproved if header is None or at <= header.index]
        for at in reached:
            facts = self.unproved.pop(at)
            is_next = header is not None and header.position == Position(self._name, at, 0)
            digest = header.previous if header is not None and is_next and not before.state.digest else None
            digest = before.state.digest or digest
            passed = before.last is not None and before.last.index >= at
            if digest is not None and digest != facts.chain and not passed:
                what = f"names {facts.chain} as the last WAL segment before index {at}, which is {digest}"
                self._anomalies.add(AnomalyKind.CHAIN, facts.key, what)

    def give_up_proofs(self, index: int) -> None:
        """Give up the snapshots up to ``index`` whose last WAL segment before them does not exist any more."""
        for at in [at for at in self.unproved if at <= index]:
            del self.unproved[at]

    def _check_successor(self, key: str, header: WalHeader) -> None:
        """Check that a terminal names a claim of a higher epoch, which exists."""
        successor = parse_claim(header.successor or "")
        if successor is None or successor[0] <= epoch_of(self._name):
            what = f"names {header.successor!r} as its successor, which is not a claim of a higher epoch"
            self._anomalies.add(AnomalyKind.CONFLICT, key, what)
        elif header.successor is not None:
            self._tools.claims.require(header.successor, f"is missing; the terminal {key} names it")

    def _check_skipped(self, state: ChainState, read: WalRead, header: WalHeader) -> None:
        """Let the format judge sequences that are skipped between the object before and this one."""
        if state.next is not None and header.first is not None and header.first > state.next and state.is_exact:
            problem = self._tools.reader.follows(read, state.next)
            if problem is not None:
                self._anomalies.take(problem)

    def _check_sealed(self, state: ChainState, key: str, header: WalHeader) -> None:
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
        for violation in sealed_violations(state, header, entry):
            what = f"{violation.what} is {violation.actual}, and {violation.expected} in {key}"
            self._against(entry, what, is_named=header.sealed is not None)

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


def _render(violation: Violation, before: str) -> str:
    """The text of an anomaly. ``before``: the key of the object before."""
    expected, actual = violation.expected, violation.actual
    match violation.rule:
        case Rule.IDENTITY:
            return f"{violation.what} is {actual}, and its generation's is {expected}"
        case Rule.OWNER:
            return f"was written by owner {actual}, not {expected}"
        case Rule.DIGEST:
            return f"names {actual or 'nothing'} as the object before it, and {before} is {expected}"
        case Rule.OVERLAP:
            return f"lies before the generation's next slot, {expected}"
        case Rule.FILE:
            return f"file is {actual!r}, and {expected!r} before it in its index"
    return str(violation)
