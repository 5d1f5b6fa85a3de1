"""Follows a replica: through the WAL segments of a generation, past those that were sealed or pruned meanwhile, and
into the generations that continue it.

Each poll returns an event, or None if nothing has happened. The caller decides what an event means: it reads records,
appends to a copy, or plans the batches of a stream. This module alone has the rules for gaps, and for when to look
further than at the next name.

Specified in litelog/reading/README.md#following.
"""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum
from typing import TYPE_CHECKING, Generic, TypeVar

from litelog.dataclass import dataclass
from litelog.errors import CorruptObjectError, PrunedError, ReplicaGapError
from litelog.objects.layout import snapshot_key, wal_key
from litelog.reading.contents import list_pieces
from litelog.reading.generations import require_replica
from litelog.reading.search import find_header
from litelog.reading.successors import (
    find_begun,
    find_overtaking,
    find_successor,
    find_terminal,
    has_first_snapshot,
)
from litelog.system.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.errors import LitelogError
    from litelog.objects.claim import Claim
    from litelog.objects.position import Position
    from litelog.objects.wal_segment import WalHeader
    from litelog.reading.contents import GenerationContents
    from litelog.stores.replica_client import ReplicaClient

POLLS_PER_LOOK = 30
"""After this many polls without news, a follower looks for the next epoch, with one GET. In an ended generation it
lists the successors just as often."""

LOOK_SECONDS = 1800.0
"""After this many seconds without news, or while it lags, a follower checks that its place still exists, and lists the
objects after it. Half of the grace, which is the least time that WAL segments are kept."""

_Segment = TypeVar("_Segment")


class Look(IntEnum):
    """How far a follower looks if it finds nothing at its slot. Each value includes the ones before it."""

    SLOT = 0
    """No further than the slot."""
    EPOCH = 1
    """Also at the next epoch: whether a newer owner has begun."""
    PLACE = 2
    """Also at the objects around its place: whether it stands at the end, or at a hole."""


class LookClock:
    """Decides how far a follower looks if it finds nothing at its slot."""

    def __init__(self, monotonic: Callable[[], float], look_seconds: float) -> None:
        self._monotonic = monotonic
        self._look_seconds = look_seconds
        self._polls = 0
        self._news = self._head = monotonic()

    def note_news(self) -> None:
        """Note that the follower found something."""
        self._polls = 0
        self._news = self._monotonic()

    def note_nothing(self) -> Look:
        """Note that the follower found nothing at its slot. Returns the look that is due."""
        now, since = self._monotonic(), min(self._news, self._head)
        self._polls += 1
        self._head = now
        if now - since >= self._look_seconds:
            self._news = now
            return Look.PLACE
        return Look.EPOCH if self._polls % POLLS_PER_LOOK == 0 else Look.SLOT

    @property
    def is_epoch_due(self) -> bool:
        """Whether a look at epochs is due: the first time, and then after POLLS_PER_LOOK polls without news."""
        return self._polls % POLLS_PER_LOOK == 0


@dataclass(frozen=True, slots=True)
class SegmentFound(Generic[_Segment]):
    """The WAL segment at the slot, as the caller's function read it. ``pass_segment`` moves past it."""

    segment: _Segment


@dataclass(frozen=True, slots=True)
class ContentsFound:
    """The contents of a generation that the follower enters, or whose newest snapshot covers the slot, because the WAL
    segments there were sealed and deleted. The caller finds ``slot`` in the contents (None: its own start), and says
    with ``stand_at`` or ``skip`` where it continues. Until then, each poll finds the contents again."""

    contents: GenerationContents


@dataclass(frozen=True, slots=True)
class GenerationFollows:
    """The generation ended, or another owner overtook its isolated owner. The caller enters the next generation with
    ``enter``."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class DataLost:
    """Data was pruned, or an object is missing that must exist."""

    error: LitelogError
    left: Position | None = None
    """The start of the remaining data of the generation; None if nothing remains."""
    successor: Claim | None = None
    """The claim of a newer generation that has begun, if one is known."""


Event = SegmentFound[_Segment] | ContentsFound | GenerationFollows | DataLost


@dataclass(frozen=True, slots=True)
class _Entering:
    """The follower enters the generation: it has to find the contents."""

    contents: GenerationContents | None


@dataclass(frozen=True, slots=True)
class _NotBegun:
    """The follower waits for the first snapshot of the generation."""


@dataclass(frozen=True, slots=True)
class _Standing:
    """The follower waits for a WAL segment at the slot."""

    slot: Position


@dataclass(frozen=True, slots=True)
class _Ended:
    """The generation ended. The follower waits for the next one."""

    terminal: WalHeader


class ReplicaFollower(Generic[_Segment]):
    """Follows a replica from a place on. One thread. A call that raises StoreError may be repeated."""

    def __init__(
        self,
        client: ReplicaClient,
        claim: Claim,
        read: Callable[[Position], _Segment | None],
        place: Position | None = None,
        *,
        contents: GenerationContents | None = None,
        leaves_isolated: bool = True,
        look_seconds: float = LOOK_SECONDS,
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        """Make a follower. It makes no request yet.

        Args:
            client: The replica.
            claim: The generation to begin in.
            read: Reads the WAL segment at the position, or only its header; None if there is none, or none yet.
            place: Where to begin; None to leave that to the caller.
            contents: The generation's contents, if they were just listed.
            leaves_isolated: Whether to leave an isolated owner's generation once another one is the latest.
            look_seconds: After this many seconds without news, or while it lags, it makes sure that it stands at the
                end, and not at a hole.
            monotonic: Returns monotonic seconds. They include the time for which the machine is suspended, as
                retention continues elsewhere meanwhile.
        """
        self._client = client
        self._read = read
        self._leaves_isolated = leaves_isolated
        self._looks = LookClock(monotonic or SystemClock().monotonic, look_seconds)
        self.claim = claim
        """The claim of the generation that it follows."""
        self.slot = place
        """The position of the next WAL segment, or the place at which to enter. Everything before it was read."""
        self.last: Position | None = None
        """The last WAL segment before the slot, if it was read."""
        self._state: _Entering | _NotBegun | _Standing | _Ended = _Entering(contents)

    @property
    def is_ended(self) -> bool:
        """Whether the generation ended, and the follower waits for the next one."""
        return isinstance(self._state, _Ended)

    def enter(self, claim: Claim, place: Position | None) -> None:
        """Continue in a generation, at ``place``."""
        self.claim, self.slot, self.last, self._state = claim, place, None, _Entering(None)

    def stand_at(self, slot: Position, last: Position | None = None) -> None:
        """Continue at ``slot``. ``last``: the WAL segment before it, which must exist as long as nothing follows."""
        self.slot, self.last, self._state = slot, last, _Standing(slot)

    def pass_segment(self, header: WalHeader) -> None:
        """Continue after a WAL segment, or in the next generation after a terminal."""
        if header.successor is None:
            self.stand_at(header.next_slot, header.position)
        else:
            self.slot, self._state = header.position, _Ended(header)

    def skip(self, contents: GenerationContents) -> bool:
        """Leave a generation that retention pruned at the slot, if it ended: its successor has the rest. A GET.

        Returns whether it ended.
        """
        terminal = find_terminal(self._client, contents)
        if terminal is not None:
            self._state = _Ended(terminal)
        return terminal is not None

    def poll(self, look: Look = Look.SLOT) -> Event[_Segment] | None:
        """Return what comes next; None if there is nothing yet. Costs one GET in most cases.

        ``look``: how far to look at least, if there is nothing at the slot.

        Raises:
            ReplicaGapError: A claim or a first snapshot is missing.
            CorruptObjectError: An object is damaged, or states a place that another object contradicts.
            StoreError: A request failed, or the replica's root is away.
        """
        try:
            event = self._step(look)
            if event is None:
                event = self._look(max(look, self._looks.note_nothing()))
        except ReplicaGapError as gap:
            require_replica(self._client, gap)
            raise
        if isinstance(event, DataLost):
            require_replica(self._client, event.error)
        if event is not None:
            self._looks.note_news()
        return event

    def _step(self, look: Look) -> Event[_Segment] | None:
        match self._state:
            case _Entering(contents):
                return self._enter(contents)
            case _NotBegun():
                return self._enter(None) if has_first_snapshot(self._client, self.claim) else None
            case _Ended(terminal):
                return self._find_successor(terminal, lists=self._looks.is_epoch_due or look is not Look.SLOT)
            case _Standing(slot):
                return self._read_at(slot)

    def _look(self, look: Look) -> Event[_Segment] | None:
        match self._state:
            case _Standing(slot) if look is Look.PLACE:
                return self._check_place(slot)
            case _Standing(slot) if look is Look.EPOCH:
                return self._look_for_successor(slot)
            case _NotBegun() if look is not Look.SLOT:
                return self._enter(None)
        return None

    def _enter(self, contents: GenerationContents | None) -> Event[_Segment] | None:
        """Find the contents of the generation, which may have ended before it began, or may not have begun yet."""
        contents = contents or list_pieces(self._client, self.claim)
        self._state = _Entering(None)
        if contents.base.snapshot is not None:
            return ContentsFound(contents)
        if not contents.wal:
            require_replica(self._client)
            self._state = _NotBegun()
            return None
        if self.slot is None and contents.gap is not None:
            raise contents.gap
        if self.skip(contents):
            return self._step(Look.SLOT)
        raise contents.gap or ReplicaGapError(snapshot_key(contents.base.start.generation, self.claim.first))

    def _find_successor(self, terminal: WalHeader, *, lists: bool) -> GenerationFollows | None:
        successor = find_successor(
            self._client, self.claim, terminal, lists=lists, leaves_isolated=self._leaves_isolated
        )
        if successor is None and lists:
            require_replica(self._client)
        return None if successor is None else GenerationFollows(successor)

    def _read_at(self, slot: Position) -> SegmentFound[_Segment] | None:
        segment = self._read(slot)
        return None if segment is None else SegmentFound(segment)

    def _check_place(self, slot: Position) -> Event[_Segment] | None:
        """Tell the end from a hole: at the end nothing follows the last WAL segment, and that exists."""
        begin = slot if self.last is None else replace(self.last, offset=self.last.offset + 1)
        after = next(iter(self._client.wal_segments(slot.generation, begin)), None)
        is_last_there = self.last is None or find_header(self._client, self.last) is not None
        if after is not None and after.position < slot and self.last is not None and is_last_there:
            what = "place of the next WAL segment"
            raise CorruptObjectError(wal_key(self.last), what, after.position, slot)
        if after is None and is_last_there:
            if self.last is None:  # then nothing else has shown that the root is there
                require_replica(self._client)
            return self._look_for_successor(slot)
        found = self._read_at(slot)
        if found is not None:
            return found
        if not is_last_there:
            return self._explain(slot, PrunedError(str(self.last)))
        return self._explain(slot, ReplicaGapError(str(slot), None if after is None else str(after.position)))

    def _look_for_successor(self, slot: Position) -> Event[_Segment] | None:
        """Look at the next epoch: if its owner has begun, it has ended this generation first. One GET while there is
        none (one listing after an isolated claim)."""
        if self.claim.is_isolated:
            return self._leave_isolated(slot)
        successor = find_begun(self._client, self.claim)
        if successor is None:
            return None
        return self._read_at(slot) or self._explain(slot, ReplicaGapError(str(slot), successor.key), successor)

    def _leave_isolated(self, slot: Position) -> Event[_Segment] | None:
        """Continue in the latest generation, once that has changed: no owner ends the generation of an isolated owner.
        One listing while no other claim exists."""
        newest = find_overtaking(self._client, self.claim) if self._leaves_isolated else None
        if newest is None:
            return None
        return self._read_at(slot) or GenerationFollows(newest)

    def _explain(self, slot: Position, error: LitelogError, successor: Claim | None = None) -> Event[_Segment] | None:
        """Find out by a listing why the slot is empty although something follows it, or its own data was there."""
        contents = list_pieces(self._client, self.claim)
        base = contents.base
        if slot.index < base.first.index:
            return DataLost(PrunedError(str(slot)), base.first, successor)
        if slot.index < base.start.index:
            self._state = _Entering(None)
            return ContentsFound(contents)
        if self.skip(contents):
            return self._step(Look.SLOT)
        left = next((info.position for info in contents.wal if info.position > slot), None)
        return DataLost(error, left, successor)
