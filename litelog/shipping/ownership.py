"""How an owner gets its generation: it resumes the one it has, or claims a new one and closes all below it.

Specified in litelog/shipping/README.md#one-writer.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from litelog.errors import (
    CorruptObjectError,
    ForeignClaimError,
    NothingToRestoreError,
    SourceMissingError,
    StoreError,
    UnknownVersionError,
)
from litelog.events import fields
from litelog.log.source_position import SourcePosition
from litelog.objects import claim as claims
from litelog.objects.claim import Claim, Relation
from litelog.objects.layout import CLAIMS, Fencing, claim_key
from litelog.objects.position import generation, new_generation
from litelog.reading.contents import LISTINGS
from litelog.reading.generations import find_tip, newest_claims, read_claim, read_claim_of
from litelog.reading.latest import find_latest
from litelog.shipping.archive_state import ArchiveState, read_state, write_state
from litelog.shipping.background_job import InProgressError
from litelog.shipping.catching_up import CatchingUp
from litelog.shipping.claiming import (
    LostRaceError,
    SucceededError,
    close_below,
    create_claim,
    require_claim,
    require_epoch,
    require_fencing,
    require_newest,
)
from litelog.shipping.finished_segments import NotSealableError
from litelog.shipping.initial_snapshot import (
    OpenedGeneration,
    count_kept,
    find_hole,
    find_known,
    find_number,
    seal_first,
    write_first_snapshot,
)
from litelog.shipping.log_identity import LogIdentity
from litelog.shipping.own_end import extent_of, find_own_end, is_end_of, read_own_tip
from litelog.shipping.proof import describe_lost, find_lost
from litelog.shipping.sealer import SealedConflictError
from litelog.shipping.state import ReplicaState
from litelog.shipping.takeover import Takeover

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from litelog.log.identity import ShippedEnd
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.reading.generations import GenerationEnd
    from litelog.reading.latest import GenerationRange
    from litelog.shipping.backlog import BacklogSealer
    from litelog.shipping.context import LogSource
    from litelog.shipping.state import OwnEnd, StateFolder
    from litelog.stores.object_store import Root, Rooted
    from litelog.stores.replica_client import ReplicaClient
    from litelog.system.clock import Clock

_logger = logging.getLogger(__name__)

FIRST_EPOCH = 1

NOT_HELD = "the log does not hold what the predecessor ended with"
"""Why a generation diverges if no other reason is known."""


RENUMBERED = "the log begins with log segments that the predecessor did not have: its records have new numbers"
"""Why a generation diverges in a format whose records do not carry their numbers."""


class _OutrunError(Exception):
    """The predecessor or the log has changed since the claim was made: its end is not at the index that the claim
    states.

    Either the log does not hold that end any more, or its first log segments were truncated meanwhile.
    """


class _LaterPredecessorError(Exception):
    """A generation that had not begun when the claim was made is now the one that readers choose."""


class _OwnClaimError(Exception):
    """This owner made a claim of that epoch earlier, but the listing did not show it: its mount came late."""


class Owner:
    """One daemon's ownership of one replica. Every step can be repeated after a crash or a failed request."""

    def __init__(  # noqa: PLR0913
        self,
        source: LogSource,
        client: ReplicaClient,
        folder: StateFolder,
        *,
        clock: Clock,
        random: Random,
        host: str,
        takeover: Takeover | None = None,
        backlog_sealer: BacklogSealer | None = None,
        fencing: Fencing = Fencing.REQUIRED,
        try_store: Callable[[], None] | None = None,
        root: Rooted | None = None,
    ) -> None:
        """``try_store`` is called before the first claim that this state folder records. It raises UnfitStoreError if
        the store cannot do what the fencing needs, or StoreError. None: the store is known to do it. ``root``: the
        store, if its root may go away and come back as another one."""
        self._source = source
        self._client = client
        self._folder = folder
        self._clock = clock
        self._random = random
        self._host = host
        self._takeover = takeover or Takeover()
        self.backlog_sealer = backlog_sealer
        """Seals finished log segments; None: none are sealed before their WAL segments."""
        self._identity = LogIdentity(source, client, clock, random)
        self._unfit = ""
        self._fencing = fencing
        self._try_store = try_store or _do_nothing
        self._root = root
        self._epoch_met = FIRST_EPOCH - 1
        """The newest epoch of which a claim of ours turned up unexpectedly."""
        self._unsettled: ReplicaState | None = None
        self._opened: OpenedGeneration | None = None
        self.damaged: frozenset[str] = frozenset()
        """The keys of damaged sealed segments: no later generation relies on them."""
        self.on_snapshot: Callable[[Claim, Sequence[SnapshotEntry]], None] = _do_nothing_with
        """Called with the entries of a generation's first snapshot, once it is durable and before anything relies on
        it."""
        self.resumed = False
        """Whether the last ``resume`` continued an existing generation as it was left."""

    def resume(self) -> ReplicaState:
        """Continue the generation that the state folder names, if it is still ours; else begin a new one.

        Valid state costs three requests.

        Raises:
            InProgressError: finished log segments are being sealed.
            FencedError: another owner has taken over.
            SourceMissingError: there is no log.
            NotCreateOnlyError: the store cannot fence, but must.
            OtherLogError: the configuration now names another format.
        """
        self.resumed = False
        require_fencing(self._client, self._fencing)
        if self._takeover.needs_look:
            self._takeover.look(self._client.claims())
        state = self._folder.load()
        if state is None or state.claim is None or claims.parse(state.claim).fencing is not self._fencing:
            return self.begin(state, None)
        claim = claims.parse(state.claim)
        self._identity.require_format(claim)
        file = state.place.file or state.place.behind
        if file and self._source.format.segment_order(file) is None:
            return self.begin(state, f"{file} is no longer a log segment by the configuration's pattern")
        inode = _folder_inode(self._source.folder)
        try:
            if not state.closed:
                require_newest(self._client, claim, put=False)
                return self._settle(replace(state, folder_inode=inode))
            kept = read_state(state.archive, claim.generation, self._folder.boot, self._clock.monotonic())
            lost = self.check_ownership(state, kept.snapshot)
            if lost and (ahead := self.find_ahead(state)) is not None:  # the newest snapshot may cover what is gone
                state, lost = ahead, self.check_ownership(ahead, kept.snapshot)
            stale = describe_lost(lost) if lost else None
            if stale is not None:
                self._report_lost(stale)
        except (SucceededError, LostRaceError) as error:  # LostRaceError: a crash had delayed our claim
            rolled_back = isinstance(error, SucceededError) and error.owner == state.owner
            if not (rolled_back or self._takeover.is_open):
                raise
            return self.begin(state, "the saved state is older than the replica" if rolled_back else None)
        self._takeover.spend()
        if inode != state.folder_inode:
            stale = "the log's folder was restored or replaced"
        self.resumed = stale is None
        return state if stale is None else self.begin(state, stale)

    def check_ownership(
        self, state: ReplicaState, snapshot: int | None, first: ReplicaClient | None = None
    ) -> Sequence[str]:
        """Return which acknowledged objects of ``state`` the replica lost; empty if the generation can continue. For
        use after a start, a failure, a pause, or a long time without a successful put.

        ``snapshot``: the newest one's index. ``first``: a client that does not retry, so that a store that is down gets
        one request. Raises SucceededError, ReplicaUnavailableError, StoreError. If it returns, later puts go only to
        the root that it found.
        """
        assert state.claim is not None
        claim = claims.parse(state.claim)
        root = self._look_at_root()
        lost = find_lost(self._client, claim, state, snapshot, first)
        self._keep_to_root(root, claim.key)
        return lost

    def find_ahead(self, state: ReplicaState) -> ReplicaState | None:
        """Return ``state`` as it would have been saved after this owner's last object in the replica; None if the
        replica holds nothing after its position."""
        assert state.claim is not None
        ahead = CatchingUp(self._source, self._client, self._clock).find_ahead(claims.parse(state.claim), state)
        if ahead is not None:
            log, replica = self._source.folder, self._client.url
            message = "%s: the saved state is older than %s: continues after %s, which this daemon put"
            extra = fields("state-caught-up", log=log, replica=replica, position=ahead.last)
            _logger.warning(message, log, replica, ahead.last, extra=extra)
        return ahead

    def look_for_newer(self, state: ReplicaState) -> None:
        """Raise SucceededError if a newer claim exists."""
        assert state.claim is not None
        require_newest(self._client, claims.parse(state.claim))

    def keeps(self, state: ReplicaState) -> bool:
        """Whether the log still holds the predecessor's end, which a generation that continues it has promised.

        Its first log segments may have been truncated since the claim, which makes the shift smaller.
        """
        assert state.claim is not None
        assert state.promised is not None
        there = self._identity.find_shift_to(state.promised)
        return there is not None and there <= claims.parse(state.claim).shift - state.base

    def begin(
        self, state: ReplicaState | None, reason: str | None, start_file: str = "", *, forked: bool = False
    ) -> ReplicaState:
        """Claim a new generation, which ships the log from ``start_file`` (empty: its first log segment) on.

        ``reason``: why the last generation cannot continue. If the log still holds all of that one, the new one
        continues it, unless the log's history ``forked``. After a failure or InProgressError, call it again: it
        finishes what it began.
        """
        if self._unsettled is not None:
            return self._settle(self._unsettled, reason, start_file, forked=forked)
        owner = state.owner if state is not None else f"{self._random.getrandbits(128):032x}"
        root = self._look_at_root()
        names = self._client.claims()
        require_epoch(self._client, names, max(self._epoch_met, state.epoch if state is not None else 0))
        if names:
            self._keep_to_root(root, claim_key(*names[-1]))
        newest = [read_claim(self._client, name) for name in names if name.epoch == names[-1].epoch]
        latest, ended = self._find_latest(state)
        known = state.log if state is not None else ""
        log = self._identity.choose_log(newest[-1] if newest else None, latest, known)
        self._takeover.look(names)
        if state is not None and state.closed and state.claim is not None:
            require_claim(self._client, claims.parse(state.claim))  # claims stay: without it, this is another replica
        for top in newest:
            if top.owner != owner and not self._takeover.allows(top.name):
                why = "its claim is the newest and not this daemon's"
                if self._takeover.asked:
                    why = "its claim came after this start with --takeover, which ends only the claim that it met"
                raise ForeignClaimError(self._client.url, top.owner, top.host, top.generation, why)
        if state is None or state.tried != self._fencing:
            self._try_store()
        epoch = (names[-1].epoch if names else FIRST_EPOCH - 1) + 1
        if latest is not None and latest[0].epoch >= epoch:
            raise StoreError("list", CLAIMS, f"does not show the claim of epoch {latest[0].epoch}, which is there")
        claim, base = self._make_claim(owner, log, epoch, latest, reason, start_file, forked)
        claim, base, salvaged, lost = self._go_round_holes(claim, base, state)
        finished = self.backlog_sealer.files.find(start_file, self._unfit) if self.backlog_sealer is not None else []
        claim = replace(claim, first=base + len(finished))
        state = ReplicaState(
            owner=owner,
            log=log,
            claim=claims.encode(claim).decode(),
            folder_inode=_folder_inode(self._source.folder),
            base=base,
            tried=self._fencing.value,
            epoch=epoch - 1,
            salvaged=salvaged,
            lost=lost,
            ended=ended,
            place=SourcePosition(base, finished[0] if finished else start_file, sequence=self._source.first_sequence()),
        )
        self._folder.save(state)
        return self._settle(state, reason, start_file, forked=forked)

    # --- steps

    def _go_round_holes(
        self, claim: Claim, base: int, state: ReplicaState | None
    ) -> tuple[Claim, int, int | None, str]:
        """Adapt a claim to what the replica lost before the log's first log segment. Return the claim and its base.

        The log does not hold the lost log segments any more. A generation that continued them could not be restored, so
        this one diverges, and begins with what is whole after the last hole. If nothing is lost, returns the arguments.
        Also returns the index of the first salvaged log segment, and what was lost for good.
        """
        lost = state.lost if state is not None else ""
        if claim.relation is not Relation.CONTINUES or claim.predecessor is None or base == 0:
            return claim, base, None, lost
        name = generation(claim.predecessor)
        first_here = base - claim.shift  # by the predecessor's indexes
        is_own = state is not None and state.claim is not None and claims.parse(state.claim).generation == name
        for _ in range(LISTINGS):
            known = find_known(self._client, name, self.damaged)
            hole = find_hole(self._client, known, state if is_own else None, first_here)
            if hole is None:
                return claim, base, None, lost
            read_claim_of(self._client, name, claim)  # a replica that is away for a moment shows a hole, too
        kept = count_kept(known, first_here) if self.backlog_sealer is not None else 0
        why = f"the replica lost log segments up to index {hole} of generation {name}, which the log no longer holds"
        extra = fields("objects-unrecoverable", log=self._source.folder, replica=self._client.url, reason=why)
        _logger.error(
            "%s: %s: a default restore begins after them; to restore what is whole before them, use --generation %s",
            self._client.url,
            why,
            name,
            extra=extra,
        )
        return replace(claim, relation=Relation.DIVERGED, reason=why, shift=0), kept, first_here - kept, why

    def _find_latest(self, state: ReplicaState | None) -> tuple[tuple[Claim, GenerationEnd] | None, OwnEnd | None]:
        """Return the generation that a reader would read now: a new one continues it, or diverges from it. Also return
        where the owner's own generation ended, if the replica no longer shows that."""
        ended = state.ended if state is not None else None
        try:
            return self._look_up_latest(ended), ended
        except (CorruptObjectError, UnknownVersionError):
            if state is None or ended is not None:
                raise
            ended = find_own_end(self._source, self._client, self._clock, state)
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

    def _read_tip(self, ended: OwnEnd | None, claim: Claim) -> GenerationEnd:
        """Return how far a generation has come, from the replica, or from the state for the one that ``ended``
        describes."""
        if ended is not None and is_end_of(ended, claim):
            return read_own_tip(self._client, claim, ended)
        return find_tip(self._client, claim)

    def _settle(
        self, state: ReplicaState, reason: str | None = None, begin_file: str = "", *, forked: bool = False
    ) -> ReplicaState:
        """Create the claim, close what is below, seal, and write the first snapshot. Skips steps that are done.

        The other arguments are for ``begin``, if the claim was made from a listing that lacked one of our claims."""
        opened, self._opened = self._opened, None
        self._unsettled = state
        if opened is None or opened.state != state:
            try:
                opened = self._open(state)
            except _OwnClaimError:
                return self.begin(replace(state, claim=None), reason, begin_file, forked=forked)
            except _LaterPredecessorError:
                self._unsettled = None
                return self.begin(state, reason, begin_file, forked=forked)
        claim, predecessor = opened.claim, opened.predecessor
        diverged = claim.relation is Relation.DIVERGED
        start_file = state.place.file if diverged else ""
        try:
            self._require_kept(opened)
            entries, place = seal_first(self.backlog_sealer, opened)
            self._require_kept(opened)  # sealing may take long
        except InProgressError:
            self._opened = opened
            raise
        except _OutrunError:
            self._unsettled = None
            return self.begin(state, "the log does not hold the end that the predecessor came to")
        except NotSealableError as error:
            self._unsettled, self._unfit = None, error.file
            return self.begin(state, claim.reason, start_file, forked=diverged)
        except SealedConflictError as error:
            self._unsettled = None
            return self.begin(state, claim.reason or error.reason, start_file, forked=diverged)
        end = str(predecessor.slot) if predecessor is not None else None
        require_newest(self._client, claim)
        digest = write_first_snapshot(self._client, claim, entries, end)
        require_newest(self._client, claim)  # a newer claim may have come before the snapshot
        self.on_snapshot(claim, entries)
        archive = write_state(ArchiveState(claim.generation, snapshot=claim.first, boot=self._folder.boot))
        state = replace(state, closed=True, digest=digest, last=None, place=place, archive=archive, epoch=claim.epoch)
        state = replace(state, promised=self._find_promised(opened), ended=None)
        self._folder.save(state)
        self._unsettled = None
        self._report(claim)
        return state

    def _open(self, state: ReplicaState) -> OpenedGeneration:
        """Create the claim and close all generations below it."""
        assert state.claim is not None
        claim = claims.parse(state.claim)
        if claim.epoch > FIRST_EPOCH:  # only the first claim makes the replica
            self._require_replica(claim.epoch - 1)
        try:
            create_claim(self._client, claim)
        except LostRaceError:
            self._unsettled = None
            self._folder.save(replace(state, claim=None))
            if read_claim(self._client, claim.name).owner != claim.owner:
                raise
            self._epoch_met = claim.epoch
            raise _OwnClaimError from None
        self._takeover.spend()
        self._keep_to_root(self._look_at_root(), claim.key)
        names = self._client.claims()
        if claim.is_isolated and any(name.epoch > claim.epoch for name in names):  # no refused put showed the newer one
            raise SucceededError(self._client.url, claim.generation, read_claim(self._client, names[-1]))
        below = newest_claims(self._client, [name for name in names if name.epoch < claim.epoch])
        tips = close_below(self._client, claim, below, self._clock, partial(self._read_tip, state.ended))
        self._require_predecessor(claim, tips)
        wanted = self.backlog_sealer is not None and claim.first > 0 and claim.predecessor is not None
        below_it = generation(claim.predecessor) if wanted and claim.predecessor is not None else None
        known = find_known(self._client, below_it, self.damaged).entries
        is_told = self._source.format.self_numbered or state.place.sequence is not None
        number = None if is_told or self.backlog_sealer is None else find_number(self._client, claim, state.base)
        return OpenedGeneration(state, claim, self._predecessor_tip(claim, tips, state.ended), known, number)

    def _report_lost(self, why: str) -> None:
        log, replica = self._source.folder, self._client.url
        extra = fields("objects-lost", log=log, replica=replica, reason=why)
        _logger.error("%s: %s; a new generation begins in %s", log, why, replica, extra=extra)

    def _require_replica(self, epoch: int) -> None:
        """Raise ReplicaUnavailableError if there is no claim of ``epoch``; else the current root becomes ours."""
        root = self._look_at_root()
        names = self._client.claims(epoch)
        require_epoch(self._client, names, epoch)
        self._keep_to_root(root, claim_key(*names[0]))

    def _look_at_root(self) -> Root:
        return self._root.look_at_root() if self._root is not None else None

    def _keep_to_root(self, root: Root, anchor: str) -> None:
        if self._root is not None:
            self._root.keep_to_root(root, anchor)

    def _report(self, claim: Claim) -> None:
        log, replica, name = self._source.folder, self._client.url, claim.generation
        extra = fields("generation-begins", log=log, replica=replica, generation=name, reason=claim.reason)
        _logger.info("%s: generation %s begins (%s)", replica, name, _describe(claim), extra=extra)

    def _predecessor_tip(
        self, claim: Claim, tips: dict[str, GenerationEnd], ended: OwnEnd | None
    ) -> GenerationEnd | None:
        if claim.predecessor is None:
            return None
        tip = tips.get(claim.predecessor)
        if tip is None:
            tip = self._read_tip(ended, read_claim_of(self._client, generation(claim.predecessor), claim))
        return tip

    def _require_predecessor(self, claim: Claim, tips: dict[str, GenerationEnd]) -> None:
        """Raise _LaterPredecessorError if the claim leaves out what was shipped below since it was made: a generation
        that began since, or what its predecessor shipped while the log was truncated."""
        if claim.is_isolated:
            return
        passed = [name for name, tip in tips.items() if name > (claim.predecessor or "") and _holds_any(tip)]
        if passed and find_latest(self._client).generation != claim.predecessor:
            raise _LaterPredecessorError
        tip = tips.get(claim.predecessor or "")
        if claim.reason != NOT_HELD or tip is None or str(tip.slot) == claim.predecessor_end:
            return
        if self._identity.find_shift(tip) is not None:
            raise _LaterPredecessorError

    def _require_kept(self, opened: OpenedGeneration) -> None:
        """Raise _OutrunError if the log does not hold the predecessor's end."""
        claim, predecessor = opened.claim, opened.predecessor
        if predecessor is None or claim.relation is not Relation.CONTINUES or not _holds_any(predecessor):
            return
        if self._identity.find_shift(predecessor) != claim.shift - opened.state.base:
            raise _OutrunError

    def _find_promised(self, opened: OpenedGeneration) -> ShippedEnd | None:
        """Return where a continued predecessor ended, if the first snapshot does not reach that far."""
        claim, predecessor = opened.claim, opened.predecessor
        if predecessor is None or claim.relation is not Relation.CONTINUES:
            return None
        promised = self._identity.find_end(predecessor)
        return promised if promised is not None and promised.index + claim.shift >= claim.first else None

    def _make_claim(
        self,
        owner: str,
        log: str,
        epoch: int,
        latest: tuple[Claim, GenerationEnd] | None,
        reason: str | None,
        start_file: str,
        forked: bool,
    ) -> tuple[Claim, int]:
        """Return the claim (without the log segments that are to be sealed), and the index of the log's first log
        segment.

        If the log continues the predecessor, indexes do, too, so that log segments that the source has dropped keep
        theirs.
        """
        claim = Claim(
            log=log,
            format=self._source.format.name,
            owner=owner,
            host=self._host,
            generation=new_generation(epoch, self._random.getrandbits(32)),
            first=0,
            relation=Relation.FIRST,
            time=self._clock.now(),
            fencing=self._fencing,
        )
        if latest is None:
            return claim, 0
        predecessor, tip = latest
        claim = replace(claim, predecessor=predecessor.generation, predecessor_end=str(tip.slot))
        shift = None if start_file or forked else self._identity.find_shift(tip)
        if shift is not None and shift > 0 and not self._source.format.self_numbered:
            return replace(claim, relation=Relation.DIVERGED, reason=RENUMBERED), 0
        if shift is not None:
            base = max(0, -shift)
            return replace(claim, relation=Relation.CONTINUES, shift=shift + base), base
        reason = reason or NOT_HELD
        return replace(claim, relation=Relation.DIVERGED, reason=reason), 0


def _holds_any(tip: GenerationEnd) -> bool:
    """Whether a generation holds anything of its log."""
    return tip.last is not None or tip.sealed is not None


def _folder_inode(folder: str) -> int:
    try:
        return os.stat(folder).st_ino
    except OSError as error:
        raise SourceMissingError(folder, f"cannot be opened: {error.strerror}") from error


def _describe(claim: Claim) -> str:
    if claim.relation is Relation.DIVERGED:
        relation = f"diverged from {claim.predecessor}: {claim.reason}"
    else:
        relation = f"continues {claim.predecessor}" if claim.predecessor else "the first"
    return f"{relation}; fencing {claim.fencing}"


def _do_nothing() -> None: ...


def _do_nothing_with(_claim: Claim, _entries: Sequence[SnapshotEntry]) -> None: ...
