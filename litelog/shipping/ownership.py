"""How an owner gets its generation: it resumes the one it has, or claims a new one and closes all below it.

An owner goes from stage to stage, as litelog/shipping/README.md#stages-of-an-owner says (``stages``).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from litelog.errors import ForeignClaimError, StoreError
from litelog.events import fields
from litelog.log.side_files import read_side_files
from litelog.log.source_position import SourcePosition
from litelog.objects.claim import Claim, Relation
from litelog.objects.layout import CLAIMS, Fencing, claim_key, snapshot_key
from litelog.objects.position import Position, new_generation
from litelog.reading.generations import read_claim, read_claim_of
from litelog.shipping.archive_state import ArchiveState, resume_archive
from litelog.shipping.claim_encryption import PlainClaims
from litelog.shipping.claiming import (
    LostRaceError,
    SucceededError,
    create_claim,
    require_claim,
    require_epoch,
    require_fencing,
    require_newest,
)
from litelog.shipping.events import SnapshotWritten
from litelog.shipping.finished_segments import NotSealableError
from litelog.shipping.initial_snapshot import (
    SnapshotConflictError,
    find_known,
    find_number,
    seal_first,
    write_first_snapshot,
)
from litelog.shipping.log_identity import LogIdentity
from litelog.shipping.predecessor import Predecessors
from litelog.shipping.proof import OwnershipProof, describe_lost
from litelog.shipping.sealer import SealedConflictError
from litelog.shipping.source_truncation import ReplicatedNotes
from litelog.shipping.stages import (
    BacklogSealed,
    Cause,
    ClaimChosen,
    ClaimCreated,
    ClaimDue,
    ClosedBelow,
    GenerationBegun,
    Stage,
)
from litelog.shipping.state import Claimed, Running, Unclaimed
from litelog.shipping.takeover import Takeover
from litelog.stores.object_store import Rootless

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from litelog.objects.position import ClaimName
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.shipping.backlog import BacklogSealer
    from litelog.shipping.claim_encryption import EncryptedClaims
    from litelog.shipping.context import ReplicaContext
    from litelog.shipping.state import ReplicaState, StateFolder
    from litelog.stores.object_store import Rooted

_logger = logging.getLogger(__name__)

FIRST_EPOCH = 1


class Owner:
    """One daemon's ownership of one replica. Every step can be repeated after a crash or a failed request."""

    def __init__(  # noqa: PLR0913
        self,
        context: ReplicaContext,
        folder: StateFolder,
        *,
        random: Random,
        host: str,
        takeover: Takeover | None = None,
        backlog_sealer: BacklogSealer | None = None,
        fencing: Fencing = Fencing.REQUIRED,
        try_store: Callable[[], None] | None = None,
        root: Rooted | None = None,
        encryption: PlainClaims | EncryptedClaims | None = None,
    ) -> None:
        """``context`` has a client that retries. ``try_store`` is called before the first claim that this state folder
        records. It raises UnfitStoreError if the store cannot do what the fencing needs, or StoreError. None: the store
        is known to do it. ``root``: the store, if its root may go away and come back as another one. ``encryption``:
        how claims say whether a generation is encrypted; None: no generation is."""
        self._source = context.source
        self._client = context.client
        self._folder = folder
        self._clock = context.clock
        self._random = random
        self._host = host
        self._takeover = takeover or Takeover()
        self.backlog_sealer = backlog_sealer
        """Seals finished log segments; None: none are sealed before their WAL segments."""
        self._identity = LogIdentity(context, random)
        self._predecessors = Predecessors(context, self._identity)
        self._fencing = fencing
        self._try_store = try_store or _do_nothing
        self._root = root or Rootless()
        self._encryption = encryption or PlainClaims()
        self.notes = ReplicatedNotes(folder.path, context.source.folder)
        """The log segments that the replica holds sealed and named by a durable snapshot."""
        self.proof = OwnershipProof(context, self._identity, self._root)
        """Shows whether a generation is still this owner's, and whole."""
        self._unfit = ""
        """A log segment that looked finished and could not be sealed."""
        self._epoch_met = FIRST_EPOCH - 1
        """The newest epoch of which this owner found its own claim, which no listing had shown."""
        self._chosen: ClaimChosen | None = None
        """The stage at which the next call continues after a failure: the steps after the choice of a claim are
        repeated."""
        self._sealing: ClosedBelow | None = None
        """The stage at which the next call continues if nothing failed: finished log segments are being sealed."""
        self.damaged: frozenset[str] = frozenset()
        """The keys of damaged sealed segments: no later generation relies on them."""

    def resume(self) -> GenerationBegun | None:
        """Continue the generation that the state folder names, if it is still ours; else begin a new one.

        Valid state costs three requests. Returns None while finished log segments are being sealed: call it again.

        Raises:
            FencedError: Another owner has taken over.
            SourceMissingError: The log does not exist.
            NotCreateOnlyError: The store cannot fence, but must.
            OtherLogError: The configuration now names another format.
        """
        require_fencing(self._client, self._fencing)
        if self._takeover.needs_look:
            self._takeover.look(self._client.claims())
        return self._advance(self._find_stage(self._folder.load()))

    def begin(
        self, state: ReplicaState | None, reason: str | None, start_file: str = "", *, forked: bool = False
    ) -> GenerationBegun | None:
        """Claim a new generation, which ships the log from ``start_file`` (empty: its first log segment) on.

        ``reason``: why the last generation cannot continue. If the log still holds all of that one, the new one
        continues it, unless the log's history ``forked``. Returns None while finished log segments are being sealed.
        Then, and after a failure, call it again: it finishes what it began.
        """
        return self._advance(ClaimDue(state, Cause(reason, start_file, forked)))

    def _find_stage(self, state: ReplicaState | None) -> Stage:
        """Return the stage that the saved state names, if the replica confirms it."""
        if state is None or isinstance(state, Unclaimed) or state.claim.fencing is not self._fencing:
            return ClaimDue(state)
        claim = state.claim
        self._identity.require_format(claim)
        change = self._encryption.find_change(claim)
        if change is not None:
            return ClaimDue(state, Cause(change))
        file = state.place.file or state.place.finished
        if file and self._source.format.segment_order(file) is None:
            return ClaimDue(state, Cause(f"{file} is no longer a log segment by the configuration's pattern"))
        inode = self._source.folder_inode()
        try:
            if isinstance(state, Claimed):
                require_newest(self._client, claim, put=False)
                return ClaimChosen(replace(state, folder_inode=inode), is_loaded=True)
            state, stale = self._confirm(state)
        except SucceededError as error:
            rolled_back = error.owner == state.owner
            if not (rolled_back or self._takeover.is_open):
                raise
            return ClaimDue(state, Cause("the saved state is older than the replica" if rolled_back else None))
        self._takeover.spend()
        if inode != state.folder_inode:
            stale = "the log's folder was restored or replaced"
        return GenerationBegun(state) if stale is None else ClaimDue(state, Cause(stale))

    def _confirm(self, state: Running) -> tuple[Running, str | None]:
        """Prove ownership of a generation that was begun. Return the state from which it continues, and why it cannot,
        if the replica lost acknowledged objects."""
        kept = resume_archive(state.archive, state.claim.generation, self._folder.boot, self._clock.monotonic())
        lost = self.proof.find_lost(state, kept.snapshot)
        if lost and (ahead := self.proof.find_ahead(state)) is not None:  # the newest snapshot may cover what is gone
            state, lost = ahead, self.proof.find_lost(ahead, kept.snapshot)
        if not lost:
            return state, None
        why, log, replica = describe_lost(lost), self._source.folder, self._client.url
        extra = fields("objects-lost", log=log, replica=replica, reason=why)
        _logger.error("%s: %s; a new generation begins in %s", log, why, replica, extra=extra)
        return state, why

    def _advance(self, stage: Stage) -> GenerationBegun | None:
        """Take the steps from ``stage`` on until a generation has begun; None if the next one has to wait."""
        stage = self._continue_from(stage)
        while not isinstance(stage, GenerationBegun):
            after = self._step(stage)
            if after is stage:
                return None
            stage = after
        self._chosen = None
        return stage

    def _continue_from(self, stage: Stage) -> Stage:
        """Return the stage that an earlier call came to, if ``stage`` is not beyond it."""
        sealing, self._sealing = self._sealing, None
        if isinstance(stage, ClaimDue) and self._chosen is not None:
            stage = replace(self._chosen, cause=stage.cause)
        if isinstance(stage, ClaimChosen) and sealing is not None and sealing.state == stage.state:
            return sealing
        return stage

    def _step(self, stage: Stage) -> Stage:
        """Take the step that follows ``stage``. Return the stage after it; ``stage`` itself if that is not done yet."""
        match stage:
            case ClaimDue():
                return self._choose_claim(stage)
            case ClaimChosen():
                return self._create_claim(stage)
            case ClaimCreated():
                return self._close_below(stage)
            case ClosedBelow():
                return self._seal_backlog(stage)
            case BacklogSealed():
                return self._write_first_snapshot(stage)
            case GenerationBegun():
                return stage

    def _choose_claim(self, stage: ClaimDue) -> ClaimChosen:
        """Look which claims there are and what the log continues. Save the claim that follows from that."""
        self._chosen = None
        state, cause = stage.state, stage.cause
        owner = state.owner if state is not None else f"{self._random.getrandbits(128):032x}"
        names = self._list_claims(max(self._epoch_met, state.epoch if state is not None else 0))
        newest = [read_claim(self._client, name) for name in names if name.epoch == names[-1].epoch]
        latest, ended = self._predecessors.find_latest(state)
        log = self._identity.choose_log(newest[-1] if newest else None, latest, state.log if state is not None else "")
        self._takeover.look(names)
        if isinstance(state, Running):
            require_claim(self._client, state.claim)  # claims stay: without it, this is another replica
        self._require_authority(owner, newest)
        if state is None or state.tried != self._fencing:
            self._try_store()
        epoch = (names[-1].epoch if names else FIRST_EPOCH - 1) + 1
        if latest is not None and latest[0].epoch >= epoch:
            raise StoreError("list", CLAIMS, f"does not show the claim of epoch {latest[0].epoch}, which is there")
        found = self._predecessors.relate(self._make_claim(owner, log, epoch), latest, cause)
        seals = self.backlog_sealer is not None
        predecessor = latest[0] if latest is not None else None
        found = self._predecessors.avoid_holes(found, predecessor, state, self.damaged, seals=seals)
        finished = self.backlog_sealer.files.find(cause.start_file, self._unfit) if self.backlog_sealer else []
        claim = replace(found.claim, first=found.base + len(finished))
        shared = self._predecessors.find_shared(found, predecessor, cause.start_file, len(finished))
        if shared is not None:
            claim = replace(claim, shared_end=Position(claim.generation, shared.index, shared.end))
        claim = self._encryption.complete(claim, newest)
        start_file = finished[0] if finished else cause.start_file
        claimed = Claimed(
            claim=claim,
            folder_inode=self._source.folder_inode(),
            base=found.base,
            tried=self._fencing.value,
            epoch=epoch - 1,
            salvaged=found.salvaged,
            promised=shared,
            lost=found.lost,
            ended=ended,
            place=SourcePosition(found.base, start_file, sequence=self._source.first_sequence()),
        )
        self._folder.save(claimed)
        return ClaimChosen(claimed, cause)

    def _create_claim(self, stage: ClaimChosen) -> ClaimCreated | ClaimDue:
        """Create the claim. If an earlier claim of this owner stands there, which no listing showed, choose again."""
        self._chosen = stage
        state, claim = stage.state, stage.claim
        if claim.epoch > FIRST_EPOCH:  # only the first claim makes the replica
            self._list_claims(claim.epoch - 1, since=claim.epoch - 1)
        try:
            create_claim(self._client, claim)
        except LostRaceError:
            self._chosen, unclaimed = None, state.unclaimed()
            self._folder.save(unclaimed)
            if read_claim(self._client, claim.name).owner == claim.owner:
                self._epoch_met = claim.epoch
                return ClaimDue(unclaimed, stage.cause)
            if stage.is_loaded and self._takeover.is_open:  # the run that chose it did not put it in time
                return ClaimDue(unclaimed)
            raise
        self._takeover.spend()
        self._root.keep_to_root(self._root.look_at_root(), claim.key)
        return ClaimCreated(state, stage.cause)

    def _close_below(self, stage: ClaimCreated) -> ClosedBelow | ClaimDue:
        """Close all generations below. If readers take another one by now than the claim names, choose again."""
        state, claim = stage.state, stage.claim
        names = self._client.claims()
        if claim.is_isolated and any(name.epoch > claim.epoch for name in names):  # no refused put showed the newer one
            raise SucceededError(self._client.url, claim.generation, read_claim(self._client, names[-1]))
        tips = self._predecessors.close(claim, names, state.ended)
        if not self._predecessors.is_current(claim, tips, stage.cause):
            return ClaimDue(state, stage.cause)
        known: Sequence[SnapshotEntry] = ()
        number = None
        if self.backlog_sealer is not None and claim.first > 0 and claim.predecessor is not None:
            predecessor = read_claim_of(self._client, claim.predecessor, claim)
            known = find_known(self._client, predecessor, self.damaged).entries
        if self.backlog_sealer is not None and not self._source.format.self_numbered and state.place.sequence is None:
            number = find_number(self._client, claim, state.base)
        return ClosedBelow(state, self._predecessors.find_tip(claim, tips, state.ended), known, number)

    def _seal_backlog(self, stage: ClosedBelow) -> BacklogSealed | ClosedBelow | ClaimDue:
        """Seal the finished log segments; ``stage`` itself while that runs. If the log does not fit the claim any more,
        choose again."""
        state, claim = stage.state, stage.claim
        diverged = claim.relation is Relation.DIVERGED
        again = Cause(claim.reason, state.place.file if diverged else "", diverged)
        unheld = Cause("the log does not hold the end that the predecessor came to")
        outrun = ClaimDue(state, again if diverged else unheld)
        if not self._predecessors.is_end_held(stage):  # also before: what would be sealed for nothing may be large
            return outrun
        try:
            sealed = seal_first(self.backlog_sealer, stage)
        except NotSealableError as error:
            self._unfit = error.file
            return ClaimDue(state, again)
        except SealedConflictError as error:
            return ClaimDue(state, replace(again, reason=claim.reason or error.reason))
        if sealed is None:
            self._sealing = stage
            return stage
        return sealed if self._predecessors.is_end_held(stage) else outrun  # sealing may take long

    def _write_first_snapshot(self, stage: BacklogSealed) -> GenerationBegun | ClaimDue:
        """Look for a newer claim, write the first snapshot, and look again. Then the generation has begun. If an
        earlier try put another first snapshot, choose a claim after this one."""
        closed, state = stage.closed, stage.closed.state
        claim, predecessor = closed.claim, closed.predecessor
        end = predecessor.slot if predecessor is not None else None
        require_newest(self._client, claim)
        try:
            side_files = read_side_files(self._source.folder, self._source.format)
            digest = write_first_snapshot(self._client, claim, stage.entries, end, side_files)
        except SnapshotConflictError:
            return ClaimDue(state, Cause("the first snapshot names something else"))
        require_newest(self._client, claim)  # a newer claim may have come before the snapshot
        self.notes.begin(claim.generation)
        replicated = bool(stage.entries) and self.notes.note_segments(claim.generation, stage.entries)
        running = Running(
            claim=claim,
            place=stage.place,
            digest=digest,
            base=state.base,
            folder_inode=state.folder_inode,
            promised=self._predecessors.find_promised(closed),
            archive=ArchiveState(claim.generation, snapshot=claim.first, boot=self._folder.boot),
            epoch=claim.epoch,
            tried=state.tried,
            lost=state.lost,
            salvaged=state.salvaged,
        )
        self._folder.save(running)
        self._report(claim)
        first = stage.entries[0].index if stage.entries else claim.first
        key = snapshot_key(claim.generation, claim.first)
        written = SnapshotWritten(self._source.folder, self._client.url, key, first, claim.first)
        return GenerationBegun(running, written, replicated)

    def _make_claim(self, owner: str, log: str, epoch: int) -> Claim:
        """Return a claim of a generation that follows none, and holds nothing yet."""
        return Claim(
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

    def _require_authority(self, owner: str, newest: Sequence[Claim]) -> None:
        """Raise ForeignClaimError for a newest claim of another owner, unless a takeover may end it. Of isolated
        owners with claims of one epoch, the owner whose claim's name sorts last continues: if each gave way to the
        others, no owner would be left."""
        own = next((top.name for top in reversed(newest) if top.owner == owner), None)
        for top in newest:
            if top.owner != owner and (own is None or own < top.name) and not self._takeover.allows(top.name):
                why = "its claim is the newest and not this daemon's"
                if self._takeover.requested:
                    why = "its claim came after this start with --takeover, which ends only the claim that was there"
                raise ForeignClaimError(self._client.url, top.owner, top.host, top.generation, why)

    def _list_claims(self, epoch: int, since: int = 0) -> Sequence[ClaimName]:
        """Return the claims from epoch ``since`` on. Raise ReplicaUnavailableError if there is none of ``epoch`` or
        above; else later puts go only to the root that holds them."""
        root = self._root.look_at_root()
        names = self._client.claims(since)
        require_epoch(self._client, names, epoch)
        if names:
            self._root.keep_to_root(root, claim_key(*names[-1]))
        return names

    def _report(self, claim: Claim) -> None:
        log, replica, name = self._source.folder, self._client.url, claim.generation
        extra = fields("generation-begins", log=log, replica=replica, generation=name, reason=claim.reason)
        _logger.info("%s: generation %s begins (%s)", replica, name, _describe(claim), extra=extra)


def _describe(claim: Claim) -> str:
    if claim.relation is Relation.DIVERGED:
        relation = f"diverged from {claim.predecessor}: {claim.reason}"
    else:
        relation = f"continues {claim.predecessor}" if claim.predecessor else "the first"
    return f"{relation}; fencing {claim.fencing}"


def _do_nothing() -> None: ...
