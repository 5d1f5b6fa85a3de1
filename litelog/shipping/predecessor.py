"""The generation that a new one follows: which one readers take now, where it ends, and whether the log holds its end.

If the header of the newest WAL segment is damaged, the replica no longer shows which of two slots is the next one. The
generation's own owner has that slot in its state, and the place in the log that the slot stands for. With these it ends
the generation, and continues it in a new one.

Specified in litelog/shipping/README.md#what-a-generation-continues and
litelog/shipping/README.md#objects-that-a-store-loses.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import CorruptObjectError, NothingToRestoreError, UnknownVersionError
from litelog.events import fields
from litelog.objects import wal_segment
from litelog.objects.claim import Claim, Relation
from litelog.objects.position import Position
from litelog.objects.wal_segment import WalHeader
from litelog.reading.contents import LISTINGS
from litelog.reading.generations import GenerationEnd, find_tip, newest_claims, read_claim_of, read_forward
from litelog.reading.latest import GenerationRange, find_latest
from litelog.shipping.claiming import close_below
from litelog.shipping.initial_snapshot import count_kept, find_hole, find_known
from litelog.shipping.log_identity import ShippedEnd, find_checksum
from litelog.shipping.shared_end import find_shared_end
from litelog.shipping.state import Claimed, OwnEnd, Running, Unclaimed

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from litelog.log.source_position import SourcePosition
    from litelog.objects.position import ClaimName, Generation
    from litelog.shipping.context import ReplicaContext
    from litelog.shipping.log_identity import LogIdentity
    from litelog.shipping.stages import Cause, ClosedBelow
    from litelog.shipping.state import ReplicaState
    from litelog.stores.replica_client import ReplicaClient


_logger = logging.getLogger(__name__)

NOT_HELD = "the log does not hold what the predecessor ended with"
"""Why a generation diverges if no other reason is known."""

RENUMBERED = "the log begins with log segments that the predecessor did not have: its records have new numbers"
"""Why a generation diverges in a format whose records do not carry their numbers."""


@dataclass(frozen=True, slots=True)
class Succession:
    """How a claim follows its predecessor, and which index it gives to the log's first log segment."""

    claim: Claim
    """Its ``first`` does not yet count the log segments that are to be sealed."""
    base: int
    salvaged: int | None = None
    """The index, in the predecessor, of the first log segment that is still whole there, if the rest was lost."""
    lost: str = ""
    """The data that the replica lost for good."""


class Predecessors:
    """Examines the generations below an owner's own. It has no state: each answer comes from the replica and the
    log."""

    def __init__(self, context: ReplicaContext, identity: LogIdentity) -> None:
        self._context = context
        self._client = context.client
        self._identity = identity

    def find_latest(self, state: ReplicaState | None) -> tuple[tuple[Claim, GenerationEnd] | None, OwnEnd | None]:
        """Return the generation that a reader would read now: a new one continues it, or diverges from it. Also return
        where the owner's own generation ended, if the replica no longer shows that."""
        ended = state.ended if isinstance(state, Unclaimed | Claimed) else None
        try:
            return self._look_up_latest(ended), ended
        except (CorruptObjectError, UnknownVersionError):
            if ended is not None or not isinstance(state, Running):
                raise
            ended = find_own_end(self._context, state)
            if ended is None:
                raise
        return self._look_up_latest(ended), ended

    def _look_up_latest(self, ended: OwnEnd | None) -> tuple[Claim, GenerationEnd] | None:
        def find_extent(claim: Claim) -> GenerationRange | None:
            return extent_of(claim, self._read_tip(ended, claim)) if is_end_of(ended, claim) else None

        try:
            claim = find_latest(self._client, known=find_extent)
        except NothingToRestoreError:
            return None
        return claim, self._read_tip(ended, claim)

    def relate(self, claim: Claim, latest: tuple[Claim, GenerationEnd] | None, cause: Cause) -> Succession:
        """Return how ``claim``, whose relation is FIRST as yet, follows ``latest``.

        If the log continues the predecessor, indexes do, too, so that log segments that the source has dropped keep
        theirs.
        """
        if latest is None:
            return Succession(claim, 0)
        predecessor, tip = latest
        claim = replace(
            claim,
            predecessor=predecessor.generation,
            predecessor_end=tip.slot,
            predecessor_file=tip.file,
            transactions=predecessor.transactions,
        )
        shift = None if cause.diverges else self._identity.find_shift(tip)
        if shift is None:
            return Succession(replace(claim, relation=Relation.DIVERGED, reason=cause.reason or NOT_HELD), 0)
        if self._renumbers(shift):
            return Succession(replace(claim, relation=Relation.DIVERGED, reason=RENUMBERED), 0)
        base = max(0, -shift)
        return Succession(replace(claim, relation=Relation.CONTINUES, shift=shift + base), base)

    def _renumbers(self, shift: int) -> bool:
        """Whether the records that follow would have other numbers than in the predecessor."""
        return shift > 0 and not self._context.source.format.self_numbered

    def avoid_holes(
        self,
        found: Succession,
        predecessor: Claim | None,
        state: ReplicaState | None,
        damaged: Collection[str],
        *,
        seals: bool,
    ) -> Succession:
        """Adapt a succession to what the replica lost before the log's first log segment.

        The log does not hold the lost log segments any more. A generation that continued them could not be restored, so
        this one diverges, and begins with what is whole after the last hole. If nothing is lost, returns ``found``.

        ``predecessor``: its claim. ``damaged``: the keys of sealed segments that exist but cannot be read. ``seals``:
        the first snapshot can name what is whole.
        """
        claim, base = found.claim, found.base
        found = replace(found, lost=state.lost if state is not None else "")
        if claim.relation is not Relation.CONTINUES or predecessor is None or base == 0:
            return found
        name = predecessor.generation
        first_here = base - claim.shift  # by the predecessor's indexes
        own = state if isinstance(state, Running) and state.claim.generation == name else None
        for _ in range(LISTINGS):
            known = find_known(self._client, predecessor, damaged)
            hole = find_hole(self._client, known, own, first_here)
            if hole is None:
                return found
            read_claim_of(self._client, name, claim)  # a replica that is unavailable for a moment shows a hole, too
        kept = count_kept(known, first_here) if seals else 0
        why = f"the replica lost log segments up to index {hole} of generation {name}, which the log no longer holds"
        extra = fields("objects-unrecoverable", log=self._context.source.folder, replica=self._client.url, reason=why)
        _logger.error(
            "%s: %s: a default restore begins after them; to restore what is whole before them, use --generation %s",
            self._client.url,
            why,
            name,
            extra=extra,
        )
        diverged = replace(claim, relation=Relation.DIVERGED, reason=why, shift=0)
        return Succession(diverged, kept, first_here - kept, why)

    def find_shared(
        self, found: Succession, predecessor: Claim | None, start_file: str, finished: int
    ) -> ShippedEnd | None:
        """Return the end of what the log still shares with ``predecessor``, if ``found`` diverges from it. Arguments as
        ``find_shared_end``."""
        if predecessor is None or found.claim.relation is not Relation.DIVERGED:
            return None
        return find_shared_end(self._context, predecessor, start_file, found.base, finished)

    def close(self, claim: Claim, names: Sequence[ClaimName], ended: OwnEnd | None) -> dict[Generation, GenerationEnd]:
        """Close the generations below ``claim``, of which ``names`` lists the claims. Return their tips by
        generation."""
        below = newest_claims(self._client, [name for name in names if name.epoch < claim.epoch])
        return close_below(self._client, claim, below, self._context.clock, partial(self._read_tip, ended))

    def is_current(self, claim: Claim, tips: dict[Generation, GenerationEnd], cause: Cause) -> bool:
        """Whether the claim, which was chosen for ``cause``, still names the generation that readers take, and its end;
        ``tips`` are of the generations that were closed.

        False if a generation that had not begun when the claim was made began since, or if the predecessor shipped more
        while the log was truncated: the claim would leave that out.
        """
        if claim.is_isolated:
            return True
        passed = [name for name, tip in tips.items() if name > (claim.predecessor or "") and _holds_any(tip)]
        if passed and find_latest(self._client).generation != claim.predecessor:
            return False
        if claim.relation is not Relation.DIVERGED or cause.diverges:
            return True
        tip = None if claim.predecessor is None else tips.get(claim.predecessor)
        if tip is None or tip.slot == claim.predecessor_end:
            return True
        shift = self._identity.find_shift(tip)
        return shift is None or self._renumbers(shift)

    def find_tip(
        self, claim: Claim, tips: dict[Generation, GenerationEnd], ended: OwnEnd | None
    ) -> GenerationEnd | None:
        """Return how far the claim's predecessor came; None if it has none."""
        if claim.predecessor is None:
            return None
        tip = tips.get(claim.predecessor)
        if tip is None:
            tip = self._read_tip(ended, read_claim_of(self._client, claim.predecessor, claim))
        return tip

    def is_end_held(self, closed: ClosedBelow) -> bool:
        """Whether the log holds the end of the predecessor that the claim continues, or of what a claim that diverges
        shares with it, at the index that the claim states. It may have been rewound, or its first log segments may have
        been truncated meanwhile."""
        claim, predecessor = closed.claim, closed.predecessor
        if closed.state.promised is not None:
            return self._identity.find_shift_to(closed.state.promised) is not None
        if predecessor is None or claim.relation is not Relation.CONTINUES or not _holds_any(predecessor):
            return True
        return self._identity.find_shift(predecessor) == claim.shift - closed.state.base

    def find_promised(self, closed: ClosedBelow) -> ShippedEnd | None:
        """Return where a continued predecessor, or what is shared with one, ended, if the first snapshot does not reach
        that far."""
        claim, predecessor = closed.claim, closed.predecessor
        if closed.state.promised is not None:
            return closed.state.promised
        if predecessor is None or claim.relation is not Relation.CONTINUES:
            return None
        promised = self._identity.find_end(predecessor)
        return promised if promised is not None and promised.index + claim.shift >= claim.first else None

    def _read_tip(self, ended: OwnEnd | None, claim: Claim) -> GenerationEnd:
        """Return how far a generation has come, from the replica, or from the state for the generation that
        ``ended`` describes."""
        if ended is not None and is_end_of(ended, claim):
            return read_own_tip(self._client, claim, ended)
        return find_tip(self._client, claim)


def _holds_any(tip: GenerationEnd) -> bool:
    """Whether a generation holds anything of its log."""
    return tip.last is not None or tip.sealed is not None


def find_own_end(context: ReplicaContext, state: Running) -> OwnEnd | None:
    """Return where the generation of ``state`` ended, if its newest WAL segment cannot be read; else None.

    StoreError, SourceError.
    """
    client = context.client
    try:
        find_tip(client, state.claim)
    except (CorruptObjectError, UnknownVersionError):
        end = _find_shipped(context, state.place)
    else:
        return None
    if end is None and state.base:  # nothing shows which log segment has which index
        return None
    name = state.claim.generation
    slot, digest = Position(name, state.place.index, state.place.offset), state.digest
    later = deque(client.wal_segments(name, slot), maxlen=1)  # this owner put it after it saved the state
    if later:
        at = later[0].position
        slot = Position(name, at.index, at.offset + 1)  # its length is unknown, and no longer matters
        digest = wal_segment.digest([client.read_wal_segment(at)])
    return OwnEnd(slot, digest, state.shipped, state.place.sequence, end)


def is_end_of(ended: OwnEnd | None, claim: Claim) -> bool:
    """Whether ``ended`` describes the generation of that claim."""
    return ended is not None and ended.slot.generation == claim.generation


def read_own_tip(client: ReplicaClient, claim: Claim, ended: OwnEnd) -> GenerationEnd:
    """Return how far the generation that ``ended`` describes has come: to its slot, or past the terminal in it."""
    return read_forward(client, GenerationEnd(ended.slot, _reconstruct(claim, ended), ended.digest))


def extent_of(claim: Claim, tip: GenerationEnd) -> GenerationRange:
    """Return what readers of the generation would find if they could read its newest WAL segment."""
    start = Position(tip.slot.generation, claim.first, 0)
    successor = tip.terminal.successor if tip.terminal is not None else None
    return GenerationRange(start, tip.slot, successor, last=tip.terminal)


def _find_shipped(context: ReplicaContext, place: SourcePosition) -> ShippedEnd | None:
    """Return the end of the last bytes that the owner shipped, from the position after them; None if it shipped
    none."""
    if place.offset:
        checked = (place.check_start, place.check_digest)
        return ShippedEnd(place.file, place.index, place.offset, place.crc_total, *checked, final=False)
    if place.finished_end is None:
        return None
    # The state has a digest of the last bytes, but no CRC-32C of all bytes: that is computed from the log.
    source = context.source
    crc = find_checksum(source.folder, source.format, context.clock, place.finished, place.finished_end)
    checked = (place.finished_start, place.finished_digest)
    return ShippedEnd(place.finished, place.index - 1, place.finished_end, crc, *checked, final=True)


def _reconstruct(claim: Claim, ended: OwnEnd) -> WalHeader | None:
    """Return a header to use in place of the newest WAL segment's, which cannot be read."""
    end = ended.end
    if end is None:
        return None
    return replace(
        WalHeader.of(claim, end.index, end.end, previous=ended.digest, shipped=ended.shipped),
        file=end.file,
        next=ended.sequence,
        crc_total=end.crc_total,
        final=end.final,
        check_start=end.check_start,
        check_digest=end.check_digest,
    )
