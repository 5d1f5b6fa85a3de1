"""Judges the WAL segments of one generation in order: each against the one before it, and against the sealed segments.

After an anomaly, the next WAL segment's statements are trusted, and later ones are judged by them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import StoreError
from litelog.objects.chain import ChainState, Identity, Rule, never_began, place_violation
from litelog.objects.layout import wal_key
from litelog.objects.position import Position
from litelog.verify.findings import AnomalyKind
from litelog.verify.inventory import wal_between
from litelog.verify.wal_checks import ChainPosition, WalChecks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from litelog.objects.snapshot import Snapshot
    from litelog.objects.wal_segment import WalHeader
    from litelog.verify.wal import WalRead
    from litelog.verify.wal_checks import GenerationUnderTest, VerifyContext


@dataclass(frozen=True, slots=True)
class ChainExtent:
    """How far a generation has come."""

    slot: Position | None
    """Its next slot, or the terminal's position; None if it is unknown because an object is damaged or unread."""
    ended: bool
    next: int | None
    shipped: int
    read: bool = True
    """Whether all its WAL segments could be read. If not, an unread WAL segment may end it."""
    began: bool = True
    """Whether it began before it was ended. If not, no reader uses its snapshot."""


@dataclass(frozen=True, slots=True)
class ChainSegment:
    """The part of a log segment that its WAL segments hold."""

    index: int
    file: str
    length: int
    crc: int
    """CRC-32C of [0, length). Over commits that end with their own CRC-32C it depends only on their lengths."""
    other: tuple[int, int] | None = None
    """Bytes [start, stop) that the compared log has others of: the first ones that are known."""
    digest: str | None = None
    """SHA-256, hex, of [0, length), if the log segment went up sealed."""
    is_finished: bool = False
    """Whether nothing follows in the log segment."""


class Chain:
    """Judges one generation. Call ``take`` for each WAL segment, in the order of their positions, then ``finish``."""

    def __init__(self, subject: GenerationUnderTest, tools: VerifyContext) -> None:
        self._subject = subject
        self._name = subject.name
        self._base = subject.base
        self._tools = tools
        self._anomalies = tools.findings.anomalies
        self._checks = WalChecks(subject, tools)
        self._again = False
        self._read = self._began = True
        identity = None if subject.claim is None else Identity.of(subject.claim)
        start = Position(subject.name, subject.first, 0)
        self._here = ChainPosition(ChainState(identity, subject.first, start, digest=""))
        self.segments: dict[int, ChainSegment] = {}
        """The log segments after the newest snapshot, by index."""
        self._begin()

    @property
    def sealed_digests(self) -> set[str]:
        """The digests of sealed segments that a ``final`` names."""
        return self._checks.sealed_digests

    def take(self, read: WalRead) -> None:
        """Judge the next WAL segment."""
        if read.gone:
            return  # the next one shows whether it is missing
        if read.failure is not None:
            self._tools.findings.fail(read.failure)
            self._read = False
        for problem in read.problems:
            self._anomalies.take(problem)
        if not self._is_in_place(read):
            return
        if read.header is None:
            self._here.lose(None)
            return
        self._checks.check(self._here, read, read.header)
        self._advance(read, read.header)

    def finish(self, required: Iterable[tuple[Position, str]]) -> ChainExtent:
        """Judge the end. ``required``: positions that the generation had reached, and the keys that say so."""
        here = self._here
        required = list(required)
        newest = self._base.newest
        if self._find_missing(required, newest) is not None:
            was_listed, newest = self._look_after(here.state.slot)
            if not was_listed:
                here.lose(None)
        if (missing := self._find_missing(required, newest)) is not None:
            self._anomalies.add(AnomalyKind.MISSING, *missing)
            here.lose(None)
        elif here.state.digest:
            self._checks.prove_snapshots(here, None)
        state = here.state
        return ChainExtent(here.slot, state.ended, state.next, state.shipped, self._read, self._began)

    def _begin(self) -> None:
        facts = self._base.facts.get(self._subject.first)
        if facts is not None:
            self._here.name_before(facts.digest, facts.key)
        self._take_base_facts(self._subject.first)

    def _take_base_facts(self, index: int) -> None:
        """Take over the newest snapshot's facts about the log segment before ``index``, which comes next."""
        entry = self._base.entry(index - 1)
        if entry is not None:
            self._here.state = replace(
                self._here.state, next=entry.next, is_exact=entry.next is not None, file_before=entry.file
            )

    def _is_in_place(self, read: WalRead) -> bool:
        here = self._here
        if here.is_lost:
            here.state = replace(here.state, slot=read.position)
        violation = place_violation(here.state, read.position)
        if violation is None:
            return True
        if violation.rule is Rule.GAP:
            return self._fill_gap(read)
        self._checks.report(violation, read.key)
        return False

    def _fill_gap(self, read: WalRead) -> bool:
        """Judge a gap before ``read``: pruned, listed late, or missing. Return whether ``read`` can be judged now."""
        here, position = self._here, read.position
        if not self._is_pruned(position):
            was_listed = self._look_again(here.state.slot, position)
            if here.slot is None or here.state.ended or here.slot >= position:
                return self._is_in_place(read)
            if was_listed and not self._is_pruned(position):
                missing = max(here.slot, Position(self._name, self._subject.covered, 0))
                what = f"is missing; the next one there is {read.key}"
                self._anomalies.add(AnomalyKind.GAP, wal_key(missing), what)
        here.lose(position)
        self._checks.give_up_proofs(position.index)
        facts = self._base.facts.get(position.index) if position.offset == 0 else None
        if facts is not None:
            here.name_before(facts.chain or "", f"the digest that {facts.key} names")
        if position.offset == 0:
            self._take_base_facts(position.index)
        return True

    def _is_pruned(self, position: Position) -> bool:
        """Whether all before ``position`` may have been deleted: a snapshot describes it, or nothing of the generation
        can be restored any more."""
        subject = self._subject
        may_begin_anywhere = subject.pruned and (self._here.last is None or subject.pruned_meanwhile)
        return may_begin_anywhere or position <= Position(self._name, self._subject.covered, 0)

    def _look_again(self, start: Position, stop: Position | None) -> bool:
        """Take WAL segments that are listed only now, as listings may lag. Return whether they could be listed."""
        try:
            self._take_listed_again(start, stop)
            self._subject.refresh()
        except StoreError as error:
            self._tools.findings.fail(error)
            self._read = False
            return False
        return True

    def _look_after(self, start: Position) -> tuple[bool, Snapshot | None]:
        """Take the WAL segments that are listed now from ``start`` on. Return whether they could be listed, and the
        newest snapshot from before: the owner may have written a newer one since."""
        try:
            self._subject.refresh()
            newest = self._base.newest
            self._take_listed_again(start, None)
        except StoreError as error:
            self._tools.findings.fail(error)
            self._read = False
            return False, None
        return True, newest

    def _take_listed_again(self, start: Position, stop: Position | None) -> None:
        if self._again:
            return
        self._again = True
        try:
            for position, size in wal_between(self._tools.store, start, stop):
                if self._here.slot is None or position >= self._here.slot:
                    self.take(self._tools.reader.read((position, size)))
        finally:
            self._again = False

    def _advance(self, read: WalRead, header: WalHeader) -> None:
        if header.successor is not None:
            self._began = not never_began(self._subject.first, header)
        elif header.index >= self._subject.covered:
            entry = self._subject.known(header.index) if header.sealed is not None else None
            if entry is None:
                before = self.segments.get(header.index)
                other = read.other if before is None or before.other is None else before.other
                facts = (header.index, header.file, header.end, header.crc_total)
                self.segments[header.index] = ChainSegment(
                    *facts, other, is_finished=header.final and header.sealed is None
                )
            else:
                facts = (header.index, header.file, entry.length, entry.crc)
                self.segments[header.index] = ChainSegment(*facts, digest=entry.digest, is_finished=True)
        self._here.advance(header, read.key, "" if read.problems else read.digest or "")

    def _find_missing(self, required: list[tuple[Position, str]], newest: Snapshot | None) -> tuple[str, str] | None:
        """(key, reason) of an object that is missing after the last WAL segment; None if none is known to be.
        ``newest``: the newest snapshot that existed before the WAL segments were listed."""
        slot = self._here.slot
        if slot is None:
            return None
        for position, key in required:
            if slot < position:
                return wal_key(slot), f"is missing; {key} says that the generation had come to {position}"
        if newest is not None and newest.chain is not None and slot < Position(self._name, newest.next, 0):
            what = f"is missing, or what ends the log segment before index {newest.next}: a generation's last WAL "
            return wal_key(slot), f"{what}segment is never deleted, and {newest.key} names it as {newest.chain}"
        return None
