"""How an owner comes to its generation: it resumes the one it has, or claims a new one and closes what is below."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from litelog import claim as claims
from litelog import snapshot
from litelog.claim import Claim, Relation
from litelog.errors import (
    CorruptObjectError,
    ExistsError,
    ForeignClaimError,
    NothingToRestoreError,
    OtherLogError,
    SourceMissingError,
)
from litelog.event_fields import fields
from litelog.layout import Fencing
from litelog.log.identity import ShippedEnd, find_shift, read_log_id
from litelog.log.place import Place
from litelog.position import Position, generation, new_generation
from litelog.reading.checked_read import read_checked
from litelog.reading.generation_choice import find_latest
from litelog.reading.lineage import find_tip, newest_claims, read_claim, read_claim_of
from litelog.shipping.archive_state import ArchiveState, write_state
from litelog.shipping.fencing import (
    LostRaceError,
    SucceededError,
    close_below,
    create_claim,
    prove_ownership,
    require_fencing,
    require_newest,
)
from litelog.shipping.first_contact import Contacted, UnfitError
from litelog.shipping.replica_state import ReplicaState
from litelog.shipping.snapshots import find_snapshot
from litelog.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from litelog.clock import Clock
    from litelog.reading.lineage import Tip
    from litelog.replica_client import ReplicaClient
    from litelog.shipping.first_contact import FirstContact
    from litelog.shipping.pair import Source
    from litelog.shipping.replica_state import StateFolder
    from litelog.snapshot_entries import SnapshotEntry

_logger = logging.getLogger(__name__)

FIRST_EPOCH = 1


class _OutrunError(Exception):
    """The predecessor went on, or the log was rewound, since they were looked at: it does not hold that end."""


class Owner:
    """One daemon's standing with one replica. Every step can be done again after a crash or a failed request."""

    def __init__(  # noqa: PLR0913
        self,
        source: Source,
        client: ReplicaClient,
        folder: StateFolder,
        *,
        clock: Clock,
        random: Random,
        host: str,
        takeover: bool = False,
        contact: FirstContact | None = None,
        fencing: Fencing = Fencing.REQUIRED,
    ) -> None:
        self._source = source
        self._client = client
        self._folder = folder
        self._clock = clock
        self._random = random
        self._host = host
        self._takeover = takeover
        self._contact = contact
        self._unfit = ""
        self._fencing = fencing
        self._unsettled: ReplicaState | None = None

    def resume(self) -> ReplicaState:
        """Go on in the generation that the state folder names, if it is still ours; else begin a new one.

        Valid state costs two requests. Raises FencedError where another owner has taken over, SourceMissingError while
        there is no log, NotCreateOnlyError where the store cannot fence and has to.
        """
        require_fencing(self._client, self._fencing)
        state = self._folder.load()
        if state is None or state.claim is None or claims.parse(state.claim).fencing is not self._fencing:
            return self.begin(state, None)
        inode = _folder_inode(self._source.folder)
        try:
            if not state.closed:
                require_newest(self._client, claims.parse(state.claim))
                return self._settle(replace(state, folder_inode=inode))
            stale = None if self.prove(state) else "the replica no longer holds the last WAL segment that was shipped"
        except SucceededError as error:
            if error.owner == state.owner:  # the state folder was rolled back
                return self.begin(state, "the state that was kept is older than the replica")
            if not self._takeover:
                raise
            return self.begin(state, None)
        except LostRaceError:  # with a claim that a crash kept back
            if not self._takeover:
                raise
            return self.begin(state, None)
        if inode != state.folder_inode:
            stale = "the log's folder was restored or replaced"
        return state if stale is None else self.begin(state, stale)

    def prove(self, state: ReplicaState) -> bool:
        """Whether the generation is still ours, after a long time without a successful put."""
        assert state.claim is not None
        last = Position.parse(state.last) if state.last else None
        return prove_ownership(self._client, claims.parse(state.claim), last, state.digest)

    def look_for_newer(self, state: ReplicaState) -> None:
        """Raise SucceededError where a newer claim exists."""
        assert state.claim is not None
        require_newest(self._client, claims.parse(state.claim))

    def keeps(self, state: ReplicaState) -> bool:
        """Whether the log still holds what a generation that continues another has promised."""
        assert state.claim is not None
        assert state.promised is not None
        there = find_shift(self._source.folder, self._source.format, self._clock, state.promised)
        return there == claims.parse(state.claim).shift - state.base

    def begin(
        self, state: ReplicaState | None, reason: str | None, start_file: str = "", *, forked: bool = False
    ) -> ReplicaState:
        """Claim a new generation, which ships the log from ``start_file`` (its first log segment) on.

        ``reason`` says why the last one cannot go on. Where the log still holds all of that, it is continued, unless it
        is the log's history that ``forked``. To be called again after a failure: it finishes what it began.
        """
        if self._unsettled is not None:
            return self._settle(self._unsettled)
        owner = state.owner if state is not None else f"{self._random.getrandbits(128):032x}"
        names = self._client.claims()
        newest = [read_claim(self._client, name) for name in names if name.epoch == names[-1].epoch]
        latest = self._find_latest()
        log = self._choose_log(newest[-1] if newest else None, latest, known=state.log if state is not None else "")
        for top in newest:
            if top.owner != owner and not self._takeover:
                why = "its claim is the newest and not this daemon's"
                raise ForeignClaimError(self._client.url, top.owner, top.host, top.generation, why)
        epoch = (names[-1].epoch if names else FIRST_EPOCH - 1) + 1
        claim, base = self._make_claim(owner, log, epoch, latest, reason, start_file, forked)
        finished = self._contact.find_finished(start_file, self._unfit) if self._contact is not None else []
        claim = replace(claim, first=base + len(finished))
        state = ReplicaState(
            owner=owner,
            log=log,
            claim=claims.encode(claim).decode(),
            folder_inode=_folder_inode(self._source.folder),
            base=base,
            place=Place(base, finished[0] if finished else start_file),
        )
        self._folder.save(state)
        return self._settle(state)

    # --- steps

    def _find_latest(self) -> tuple[Claim, Tip] | None:
        """What a reader would read now: that is what a new generation continues, or diverges from."""
        try:
            claim = find_latest(self._client)
        except NothingToRestoreError:
            return None
        return claim, find_tip(self._client, claim)

    def _settle(self, state: ReplicaState) -> ReplicaState:
        """Create the claim, close what is below, write the first snapshot; whatever of it was done before."""
        assert state.claim is not None
        claim = claims.parse(state.claim)
        self._unsettled = state
        try:
            create_claim(self._client, claim)
        except LostRaceError:
            self._unsettled = None
            self._folder.save(replace(state, claim=None))
            raise
        names = self._client.claims()
        if claim.is_isolated and any(name.epoch > claim.epoch for name in names):  # no refusal said that it is late
            raise SucceededError(self._client.url, claim.generation, read_claim(self._client, names[-1]))
        below = newest_claims(self._client, [name for name in names if name.epoch < claim.epoch])
        tips = close_below(self._client, claim, below, self._clock)
        try:
            predecessor = self._predecessor_tip(claim, tips)
            self._require_kept(claim, state.base, predecessor)
            sealed = self._seal_first(claim, state)
            self._require_kept(claim, state.base, predecessor)  # sealing may take long
        except _OutrunError:
            self._unsettled = None
            return self.begin(state, "the log does not hold the end that the predecessor came to", forked=True)
        except UnfitError as error:
            self._unsettled, self._unfit = None, error.file
            diverged = claim.relation is Relation.DIVERGED
            return self.begin(state, claim.reason, state.place.file if diverged else "", forked=diverged)
        digest = self._write_snapshot(claim, sealed.entries, str(predecessor.slot) if predecessor is not None else None)
        continues = predecessor is not None and claim.relation is Relation.CONTINUES
        promised = _shipped_end(predecessor) if predecessor is not None and continues else None
        if promised is not None and promised.index + claim.shift < claim.first:
            promised = None  # the snapshot has reached it
        state = replace(state, place=sealed.place)
        archive = write_state(ArchiveState(claim.generation, snapshot=claim.first, boot=self._folder.boot))
        state = replace(state, closed=True, digest=digest, last=None, promised=promised, archive=archive)
        self._folder.save(state)
        self._unsettled = None
        self._tell(claim)
        return state

    def _tell(self, claim: Claim) -> None:
        log, replica, name = self._source.folder, self._client.url, claim.generation
        extra = fields("generation-begins", log=log, replica=replica, generation=name, reason=claim.reason)
        _logger.info("%s: generation %s begins (%s)", replica, name, _describe(claim), extra=extra)

    def _predecessor_tip(self, claim: Claim, tips: dict[str, Tip]) -> Tip | None:
        if claim.predecessor is None:
            return None
        tip = tips.get(claim.predecessor)
        if tip is None:
            tip = find_tip(self._client, read_claim_of(self._client, generation(claim.predecessor), claim))
        return tip

    def _require_kept(self, claim: Claim, base: int, predecessor: Tip | None) -> None:
        """Raise _OutrunError where the log does not hold the end that the predecessor came to."""
        if predecessor is None or claim.relation is not Relation.CONTINUES or _shipped_end(predecessor) is None:
            return
        if self._shift(predecessor) != claim.shift - base:
            raise _OutrunError

    def _seal_first(self, claim: Claim, state: ReplicaState) -> Contacted:
        """Seal what is finished before the claim's first index; the entries of the first snapshot.

        What the source has dropped comes first, as the predecessor's snapshot names it, if that reaches so far.
        """
        if self._contact is None:
            return Contacted((), state.place)
        known = self._find_known(claim) if claim.first > 0 else ()
        older: list[SnapshotEntry] = []
        if claim.relation is Relation.CONTINUES:
            mapped = (replace(entry, index=entry.index + claim.shift) for entry in known)
            older = [entry for entry in mapped if entry.index < state.base]
        if older and older[-1].index != state.base - 1:
            older = []
        if claim.first == state.base:
            return Contacted(tuple(older), state.place)
        contacted = self._contact.seal(claim, state.base, state.place.file, known)
        return replace(contacted, entries=(*older, *contacted.entries))

    def _find_known(self, claim: Claim) -> Sequence[SnapshotEntry]:
        """What the predecessor's newest snapshot names."""
        found = find_snapshot(self._client, generation(claim.predecessor)) if claim.predecessor is not None else None
        return found.segments if found is not None else ()

    def _write_snapshot(self, claim: Claim, segments: tuple[SnapshotEntry, ...], predecessor_end: str | None) -> str:
        first = Snapshot(
            log=claim.log,
            format=claim.format,
            generation=claim.generation,
            owner=claim.owner,
            first=segments[0].index if segments else claim.first,
            next=claim.first,
            created=max(claim.time, *(entry.shipped_last for entry in segments), 0),
            predecessor_end=predecessor_end,
            segments=segments,
        )
        body = snapshot.encode(first)
        name = generation(claim.generation)
        try:
            self._client.write_snapshot(name, claim.first, [body])
        except ExistsError:  # from an earlier try: the same in all but, after an upgrade, its compression
            return read_checked(lambda: self._client.read_snapshot(name, claim.first), partial(_own_digest, first))
        return snapshot.digest(body)

    def _make_claim(
        self,
        owner: str,
        log: str,
        epoch: int,
        latest: tuple[Claim, Tip] | None,
        reason: str | None,
        start_file: str,
        forked: bool,
    ) -> tuple[Claim, int]:
        """The claim, but for what goes up sealed; and the index of the log's first log segment.

        Indexes go on from the predecessor's where the log is continued, so that what the source has dropped keeps its.
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
        shift = None if start_file or forked else self._shift(tip)
        if shift is not None:
            base = max(0, -shift)
            return replace(claim, relation=Relation.CONTINUES, shift=shift + base), base
        reason = reason or "the log does not hold what the predecessor ended with"
        return replace(claim, relation=Relation.DIVERGED, reason=reason), 0

    def _shift(self, tip: Tip) -> int | None:
        """What to add to the predecessor's index, if the log holds all that it shipped; None if it does not."""
        shipped = _shipped_end(tip)
        if shipped is None:
            return 0
        return find_shift(self._source.folder, self._source.format, self._clock, shipped)

    # --- which log

    def _choose_log(self, top: Claim | None, latest: tuple[Claim, Tip] | None, known: str) -> str:
        """The log's id: its own, or else what the replica knows it by, or else what its other replicas know it by.

        OtherLogError where the replica is another log's.
        """
        here = self._log_id()
        if here is None and not self._source.format.has_log_id:
            here = known or None
        if top is None:
            return here or self._source.agree_on_id(UUID(int=self._random.getrandbits(128), version=4).hex)
        if top.format != self._source.format.name:
            raise OtherLogError(
                self._client.url, f"one of format {self._source.format.name}", f"of format {top.format}"
            )
        if here is None and latest is not None and self._shift(latest[1]) is None:
            raise OtherLogError(self._client.url, f"the one in {self._source.folder}", top.log)
        if here is not None and here != top.log:
            raise OtherLogError(self._client.url, here, top.log)
        if not self._source.format.has_log_id:
            self._source.agree_on_id(top.log)
        return top.log

    def _log_id(self) -> str | None:
        source = self._source
        found = read_log_id(source.folder, source.format, self._clock)
        if found is None and source.format.has_log_id:
            raise SourceMissingError(source.folder, "holds no log segment with a header yet")
        return found.hex if found is not None else None


def _own_digest(written: Snapshot, body: bytes) -> str:
    """The digest of a snapshot's bytes, if they are the one that was written."""
    if snapshot.decode(written.key, body) != written:
        raise CorruptObjectError(written.key, "the snapshot there is not the one that was written")
    return snapshot.digest(body)


def _shipped_end(tip: Tip) -> ShippedEnd | None:
    """Where in the log a generation ends; None if it holds nothing of it."""
    last, sealed = tip.last, tip.sealed
    if last is None and sealed is not None:
        return ShippedEnd(sealed.file, sealed.index, sealed.length, sealed.crc, None, None, final=True)
    if last is None:
        return None
    return ShippedEnd(last.file, last.index, last.end, last.crc_total, last.check_start, last.check_digest, last.final)


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
