"""The rules of a generation's chain: what each WAL segment must say, given the ones before it. No I/O.

``violations`` yields every rule that a WAL segment breaks. A reader raises the first one (``next_state``); ``verify``
reports all of them.

Specified in litelog/reading/README.md#what-each-object-must-say.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from litelog.codec.checksum import combine
from litelog.dataclass import dataclass
from litelog.errors import CorruptObjectError, ReplicaGapError
from litelog.formats import Expectation, FinishedTail, safe_segment_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from litelog.formats import LogFormat, Scan
    from litelog.objects.claim import Claim
    from litelog.objects.position import Position
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalHeader, WalSegment


class Rule(Enum):
    """A rule of the chain, named by what breaks it."""

    ENDED = auto()
    """It lies after the terminal."""
    BEFORE_FIRST = auto()
    """It lies before the first index of its generation."""
    OVERLAP = auto()
    """It lies before the next slot."""
    GAP = auto()
    """It lies after the next slot: an object between is missing."""
    IDENTITY = auto()
    """Its log, format or generation is another one."""
    OWNER = auto()
    """Another owner wrote it, and it is not a terminal."""
    DIGEST = auto()
    """It names another object as the one before it."""
    CHECKSUM = auto()
    """The CRC-32C of the log segment up to its end does not follow from the one before."""
    TIME = auto()
    """It was shipped before the one before it."""
    TERMINAL = auto()
    """It is a terminal and carries something."""
    FILE = auto()
    """It is of another file than the ones before it in its index."""
    FILE_NAME = auto()
    """Its file cannot be a log segment of its format."""
    FILE_ORDER = auto()
    """Its file does not sort after that of the index before."""
    SEQUENCE = auto()
    """A sequence goes back."""
    UNNUMBERED = auto()
    """It has records without a first sequence, or skips sequences without records."""
    SEALED = auto()
    """The sealed segment of its log segment contradicts it."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule. ``expected`` is None if ``what`` alone describes it."""

    rule: Rule
    what: str
    expected: object = None
    actual: object = None

    def __str__(self) -> str:
        return self.what if self.expected is None else f"{self.what} is {self.actual}, expected {self.expected}"

    def error(self, key: str) -> CorruptObjectError:
        """The error of a reader that meets it in the object ``key``."""
        return CorruptObjectError(key, self.what, self.expected, self.actual)


class Identity(NamedTuple):
    """The fields that are the same in every WAL segment of a generation. Only its terminal names another owner: the one
    who ended it."""

    log: str
    format: str
    generation: str
    owner: str

    @classmethod
    def of(cls, stated: Claim | WalHeader) -> Identity:
        """The identity that a claim gives its generation, or that a WAL segment states."""
        return cls(stated.log, stated.format, stated.generation, stated.owner)


@dataclass(frozen=True, slots=True)
class ChainState:
    """The known facts of a generation's chain before its next WAL segment. A rule about something unknown is not
    checked."""

    identity: Identity | None
    """None if the generation's claim is unknown."""
    first: int
    """The first index that the generation ships as WAL segments, as its claim states it."""
    slot: Position
    """The position at which the next WAL segment must lie."""
    digest: str
    """The SHA-256 that it must name as the preceding object; empty if unknown."""
    shipped: int = 0
    """The earliest time at which it can have been shipped, in microseconds since 1970."""
    next: int | None = None
    """The sequence that follows; None before the first record."""
    is_exact: bool = True
    """Whether ``next`` is the exact sequence. Otherwise it is the lowest possible one."""
    crc_total: int | None = 0
    """CRC-32C of the index's bytes up to here; None if unknown."""
    file: str = ""
    """The file name of the index's log segment; empty at the start of an index, or if unknown."""
    file_before: str = ""
    """The file name of the log segment of the index before; empty if unknown."""
    ended: bool = False
    """Whether a terminal was seen: nothing may follow it."""

    @classmethod
    def before(cls, header: WalHeader, identity: Identity | None = None, first: int = 0) -> ChainState:
        """The state before ``header`` for a reader that starts there, and trusts what it says."""
        known = identity or Identity.of(header)
        return cls(known, first, header.position, header.previous, header.shipped, crc_total=None, file=header.file)

    def after(self, header: WalHeader, digest: str) -> ChainState:
        """The state after a WAL segment. ``digest``: its SHA-256, hex; empty if unknown."""
        shipped = max(self.shipped, header.shipped)
        if header.successor is not None:
            return replace(self, slot=header.position, shipped=shipped, ended=True)
        file = header.file or self.file
        return replace(
            self,
            slot=header.next_slot,
            digest=digest,
            shipped=shipped,
            next=self.next if header.next is None else header.next,
            is_exact=self.is_exact or header.next is not None,
            crc_total=0 if header.final else header.crc_total,
            file="" if header.final else file,
            file_before=file if header.final else self.file_before,
        )

    def after_loss(self, slot: Position) -> ChainState:
        """The state after objects that are damaged or missing, up to ``slot``."""
        return replace(self, slot=slot, digest="", is_exact=False, crc_total=None, file="", ended=False)

    def total_after(self, header: WalHeader) -> int | None:
        """CRC-32C of the log segment up to the end of ``header``, by what came before it; None if unknown."""
        before = self.crc_total if header.offset else 0
        return None if before is None else combine(before, header.crc, header.length)


def never_began(first: int, header: WalHeader) -> bool:
    """Whether a WAL segment shows that its generation never began: one rule for its owner, its successors and its
    readers (litelog/shipping/README.md#which-generations-began). ``first``: the claim's first index.

    An owner begins its generation with the first snapshot. A new owner that closes a generation looks for that snapshot
    before it puts the terminal, and the terminal names the snapshot as the object before it. If a terminal in the first
    slot names no object, its owner saw no snapshot, and the generation never began. A snapshot that exists nevertheless
    came too late: its owner was paused, found the newer claim after the put, and was fenced. So nothing that this
    snapshot names was ever acknowledged.
    """
    in_first_slot = (header.index, header.offset) == (first, 0)
    return header.successor is not None and in_first_slot and not header.previous


def place_violation(state: ChainState, position: Position) -> Violation | None:
    """The rule that a WAL segment at ``position`` breaks by its place alone; None if it lies in the next slot."""
    if state.ended:
        return Violation(Rule.ENDED, "lies after the end of its generation")
    if position.index < state.first:
        return Violation(Rule.BEFORE_FIRST, f"lies before index {state.first}, at which its generation begins")
    if position != state.slot:
        rule = Rule.OVERLAP if position < state.slot else Rule.GAP
        return Violation(rule, "position", state.slot, position)
    return None


def violations(state: ChainState, header: WalHeader, log_format: LogFormat | None) -> Iterator[Violation]:
    """Yield the rules that a WAL segment in the next slot breaks.

    Args:
        state: The state of the chain before it.
        header: What it says. ``check_run`` and ``WalSegment.pieces`` check its bytes.
        log_format: The format that the header names; None if it is not known here.
    """
    yield from _identity_violations(state.identity, header)
    # If the generation never began, its snapshot came too late for the writer of this terminal.
    if state.digest and header.previous != state.digest and not never_began(state.first, header):
        yield Violation(Rule.DIGEST, "SHA-256 of the object before it", state.digest, header.previous)
    total = state.total_after(header)
    if total is not None and total != header.crc_total:
        yield Violation(Rule.CHECKSUM, "CRC-32C up to its end", f"{total:#010x}", f"{header.crc_total:#010x}")
    if header.shipped < state.shipped:
        yield Violation(Rule.TIME, "time shipped", f"{state.shipped} or later", header.shipped)
    if header.successor is None:
        yield from _file_violations(state, header.file, log_format)
        yield from _sequence_violations(state, header)
        return
    if header.length or header.final:
        yield Violation(Rule.TERMINAL, "is a terminal, and not an empty one")
    if state.file and header.file not in ("", state.file):
        what = f"is a terminal in {header.file!r}, and the log segment before it is {state.file!r}"
        yield Violation(Rule.TERMINAL, what)


def sealed_violations(state: ChainState, header: WalHeader, entry: SnapshotEntry) -> Iterator[Violation]:
    """Yield what the sealed segment of a log segment contradicts in its ``final``.

    Args:
        state: The state of the chain before the ``final``.
        header: The ``final``, which stands for the sealed segment, or ends the WAL segments of the same bytes.
        entry: What the sealed segment's footer says.
    """
    facts: list[tuple[str, object, object]] = [("file", header.file, entry.file)]
    crc = ("CRC-32C", f"{header.crc_total:#010x}", f"{entry.crc:#010x}")
    if header.sealed is None:
        facts += [("length", header.end, entry.length), crc]
        if None not in (header.next, entry.next):
            facts.append(("next sequence", header.next, entry.next))
    else:
        facts += [("generation", header.generation, entry.generation), ("index", header.index, entry.sealed_index)]
        facts.append(("SHA-256", header.sealed, entry.digest))
        if header.offset > entry.length:
            facts.append(("length", f"{header.offset} or more", entry.length))
        elif header.offset == entry.length:
            facts.append(crc)
        if entry.next is not None or state.is_exact:
            facts.append(("next sequence", header.next, entry.next if entry.next is not None else state.next))
    for what, expected, actual in facts:
        if expected != actual:
            yield Violation(Rule.SEALED, what, expected, actual)


def _identity_violations(identity: Identity | None, header: WalHeader) -> Iterator[Violation]:
    if identity is None:
        return
    for what in ("log", "format", "generation"):
        expected, actual = getattr(identity, what), getattr(header, what)
        if expected != actual:
            yield Violation(Rule.IDENTITY, what, expected, actual)
    if header.successor is None and identity.owner != header.owner:
        yield Violation(Rule.OWNER, "owner", identity.owner, header.owner)


def _file_violations(state: ChainState, file: str, log_format: LogFormat | None) -> Iterator[Violation]:
    if state.file:
        if file != state.file:
            yield Violation(Rule.FILE, "file", state.file, file)
        return
    if log_format is None:
        return
    order = safe_segment_order(log_format, file)
    before = log_format.segment_order(state.file_before) if state.file_before else None
    if order is None:
        what = f"file {file!r} is not the name of a log segment of format {log_format.name}"
        yield Violation(Rule.FILE_NAME, what)
    elif before is not None and order <= before:
        yield Violation(Rule.FILE_ORDER, "file", f"a name that sorts after {state.file_before!r}", repr(file))


def _sequence_violations(state: ChainState, header: WalHeader) -> Iterator[Violation]:
    known = state.next
    what, sequence = ("first", header.first) if header.sealed is None else ("next", header.next)
    if sequence is not None:
        if known is not None and sequence < known:
            yield Violation(Rule.SEQUENCE, f"{what} sequence", f"{known} or above", sequence)
    elif header.sealed is None:
        skips = None not in (header.next, known) and header.next != known
        if header.records or (skips and state.is_exact):
            what = f"holds {header.records} records without a first sequence, and {header.next} follows"
            yield Violation(Rule.UNNUMBERED, what)


def next_state(state: ChainState, segment: WalSegment, log_format: LogFormat | None) -> ChainState:
    """The state after ``segment``, which must continue ``state``. Without ``log_format`` no file name is checked.

    Raises ReplicaGapError if an object between them is missing, and CorruptObjectError, which names the segment's key,
    for any other violation. ``WalSegment.pieces`` and ``check_run`` check the segment's bytes.
    """
    header = segment.header
    _require_place(state, segment)
    if header.sealed is not None:
        raise CorruptObjectError(segment.key, "stands for a sealed segment, which must be read in its place")
    _raise_first(violations(state, header, log_format), segment.key)
    return state.after(header, segment.digest)


def next_state_sealed(
    state: ChainState, segment: WalSegment, entry: SnapshotEntry, log_format: LogFormat | None
) -> ChainState:
    """The state after a ``final`` that stands for a sealed segment, which ``entry`` describes.

    Raises as ``next_state``. The caller reads the sealed segment, from ``state.slot`` on, in place of the ``final``.
    """
    header, key = segment.header, segment.key
    _require_place(state, segment)
    _raise_first(violations(state, header, log_format), key)
    for violation in sealed_violations(state, header, entry):
        raise replace(violation, what=f"{violation.what}, which {key} states,").error(entry.key)
    return state.after(header, segment.digest)


def state_after(claim: Claim, segment: WalSegment) -> ChainState:
    """The state after a WAL segment whose statements are trusted: for a reader that starts in the middle."""
    header, identity = segment.header, Identity.of(claim)
    _raise_first(_identity_violations(identity, header), segment.key)
    return ChainState.before(header, identity, claim.first).after(header, segment.digest)


def expectation(state: ChainState, header: WalHeader) -> Expectation:
    """What the first commit in a segment that continues ``state`` must be."""
    return Expectation(header.first if state.next is None else state.next)


def check_run(header: WalHeader, key: str, scan: Scan, log_format: LogFormat) -> None:
    """Check a header against a scan of its segment's whole bytes. Raises CorruptObjectError."""
    may_have_tail = header.final and log_format.finished_tail is FinishedTail.SHIP
    if scan.end != header.end and not may_have_tail:
        raise CorruptObjectError(key, "end of the last whole commit", header.end, scan.end)
    for name in ("records", "first", "next", "lowest", "highest") if scan.commits else ("records",):
        stated, found = getattr(header, name), getattr(scan, name)
        if stated != found:
            raise CorruptObjectError(key, name, stated, found)


def _require_place(state: ChainState, segment: WalSegment) -> None:
    violation = place_violation(state, segment.header.position)
    if violation is None:
        return
    if violation.rule is Rule.GAP:
        raise ReplicaGapError(str(state.slot), str(segment.header.position))
    raise violation.error(segment.key)


def _raise_first(found: Iterable[Violation], key: str) -> None:
    for violation in found:
        raise violation.error(key)
