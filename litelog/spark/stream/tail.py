"""Follows the end of one log in a stream's driver: finds new objects, and the one name that comes next.

It lists objects at the start, and when it is far behind. At the end of the log it polls the next name, with one GET of
a header each time.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import deque
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice, zip_longest
from typing import TYPE_CHECKING

from litelog.errors import (
    ConfigError,
    CorruptionError,
    DivergedError,
    LitelogError,
    NotFoundError,
    PrunedError,
    ReplicaGapError,
    StoreError,
)
from litelog.events import fields
from litelog.objects.claim import open_claimed_format
from litelog.objects.position import ClaimName, Position, epoch_of
from litelog.reading.follower import (
    LOOK_SECONDS,
    ContentsFound,
    DataLost,
    GenerationFollows,
    Look,
    ReplicaFollower,
    SegmentFound,
)
from litelog.reading.generations import read_claim
from litelog.reading.sealed_reader import open_sealed
from litelog.reading.search import HeaderReader, find_header, read_header
from litelog.reading.successors import find_shift
from litelog.reading.wal_cursor import describe_sealed
from litelog.spark.scan.partitions import COMPRESSION_RATIO
from litelog.spark.scan.task import open_log_format
from litelog.spark.stream.backlog import first_with_bytes, measure
from litelog.spark.stream.fork import find_fork
from litelog.spark.stream.start import find_sequence
from litelog.spark.stream.steps import MoveStep, SealedStep, WalStep, behind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from litelog.objects.chain import ChainState
    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation
    from litelog.objects.sealed_segment import SealedFooter
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalHeader
    from litelog.reading.contents import BaseSnapshot, GenerationContents
    from litelog.reading.follower import Event
    from litelog.spark.stream.backlog import StreamBacklog
    from litelog.spark.stream.batching import Budget
    from litelog.spark.stream.steps import LogOffset, StreamStep
    from litelog.stores.replica_client import ReplicaClient, WalSegmentInfo

    _Follower = ReplicaFollower[WalHeader]

_logger = logging.getLogger(__name__)

HEADERS_IN_A_ROW = 8
"""After this many next names in a row that exist, the rest is listed."""

LISTED_AT_ONCE = 20_000
"""Names that are listed at a time. This bounds the number of steps that are known ahead."""

COUNTED_AT_ONCE = 64
"""Headers that are read together for the number of records in WAL segments."""

PARALLELISM = 16
"""Concurrent requests for headers."""


class StreamTail:
    """Follows one log from an offset. For one thread at a time."""

    def __init__(
        self, name: str, client: ReplicaClient, at: LogOffset, *, lossy: bool, clock: Callable[[], float]
    ) -> None:
        """``lossy``: continue after lost data, with a warning. ``clock``: monotonic seconds."""
        self.name = name
        self.head = at
        """The offset after all steps."""
        self.steps: deque[StreamStep] = deque()
        self.taken: deque[StreamStep] = deque()
        """The steps that ``take`` returned last."""
        self.claims: dict[Generation, Claim] = {}
        self._client, self._lossy, self._clock = client, lossy, clock
        self._follower: _Follower | None = None
        """Follows the replica from ``head`` on; None until the first look, and after ``head`` was moved back."""
        self._headers = HeaderReader(client, PARALLELISM)
        self._opened: tuple[SnapshotEntry, SealedFooter] | None = None
        self._learned = clock()
        """The earliest time at which the first of the steps was found."""

    def seek(self, at: LogOffset) -> None:
        """Move to ``at``, and forget everything before it."""
        while self.taken and self.taken[0].start < at.position:
            self.taken.popleft()
        if not self.taken:
            while self.steps and self.steps[0].start < at.position:
                self.steps.popleft()
        following = self.taken or self.steps
        is_old = bool(self.steps) and self._clock() - self._learned >= LOOK_SECONDS
        if not is_old and (following[0].start if following else self.head.position) == at.position:
            self.steps.extendleft(reversed(self.taken))
            self.taken.clear()
            return
        self._forget(at)

    def _forget(self, at: LogOffset) -> None:
        self.steps.clear()
        self.taken.clear()
        self.head, self._follower = at, None

    def take(self, at: LogOffset, chosen: Sequence[StreamStep]) -> LogOffset:
        """Take the first steps, which are ``chosen``, beginning at ``at``. Returns the offset after them."""
        if not chosen:
            return at
        read = list(chosen)
        last = read[-1]
        if isinstance(last, WalStep) and not last.is_read:
            try:
                header = read_header(self._client, last.segment)
            except ReplicaGapError:  # removed since it was listed: another listing shows what happened
                self._forget(at)
                return at
            read[-1] = replace(last, stop=header.next_slot, sequence=header.next, is_read=True)
        for _ in read:
            full = self.steps.popleft()
        self.taken.extend(read)
        for step in read:
            at = behind(at, step)
        if isinstance(full, SealedStep) and read[-1].stop != full.stop:
            self.steps.appendleft(full.after(read[-1]))
        elif read[-1].stop != full.stop:  # a gap follows, which the names hid
            self.steps.clear()
            self.head, self._follower = at, None
        return at

    def count(self, step: WalStep) -> WalStep:
        """The step of a WAL segment, with the number of its records. Costs a GET, unless its header was read lately."""
        same = (
            number for number, one in enumerate(self.steps) if isinstance(one, WalStep) and one.segment == step.segment
        )
        at = next(same, 0)
        ahead = [one.segment for one in islice(self.steps, at, at + COUNTED_AT_ONCE) if isinstance(one, WalStep)]
        try:
            return replace(step, records=self._headers(ahead)[0].records)
        except ReplicaGapError:
            return step  # removed since it was listed: ``take`` finds that

    def cut(self, step: SealedStep, budget: Budget) -> SealedStep | None:
        """The first runs of frames of a sealed segment that the budget allows; None if it allows none.

        Reads the footer. If that is damaged or gone, the whole segment is taken, and the tasks find what replaces it.
        """
        try:
            frames = self._footer(step.entry).frames
        except (CorruptionError, NotFoundError):
            return None if budget.taken else step
        end = step.entry.length if step.stop.index > step.start.index else step.stop.offset
        stop = raw = records = 0
        following: int | None = None
        for run in frames.runs(frames.for_offsets(step.start.offset, end)):
            reached = min(frames.content_range(run).stop, end)
            here, held = reached - step.start.offset, records + frames.records[run.start]
            if (stop or budget.taken) and not budget.holds(here, held):
                following = frames.firsts[run.start]
                break
            stop, raw, records = reached, here, held
        if stop >= end:
            return replace(step, records=records)
        if not stop:
            return None
        place = Position(step.start.generation, step.start.index, stop)
        return replace(step, stop=place, raw=raw, sequence=following, records=records)

    def _footer(self, entry: SnapshotEntry) -> SealedFooter:
        """The footer of a sealed segment. Keeps that of the last one, since the next batch continues in it."""
        if self._opened is None or self._opened[0] != entry:
            self._opened = entry, open_sealed(self._client, entry).footer
        return self._opened[1]

    @property
    def is_backlog_unread(self) -> bool:
        """Whether only the name is known of the first WAL segment that no batch has taken."""
        first = first_with_bytes(self.steps)
        return isinstance(first, WalStep) and first.shipped is None

    def read_backlog(self) -> None:
        """Read when the first WAL segment was shipped that no batch has taken. Costs a GET, which may fail."""
        first = first_with_bytes(self.steps)
        if first is None or not isinstance(first, WalStep):
            return
        with suppress(CorruptionError, ReplicaGapError, StoreError):  # the batch that reads it raises the error
            self.steps[self.steps.index(first)] = replace(
                first, shipped=read_header(self._client, first.segment).shipped
            )

    def backlog(self) -> StreamBacklog:
        """The bytes that were found and that no batch has taken."""
        first = first_with_bytes(self.steps)
        known = self._opened is not None and isinstance(first, SealedStep) and self._opened[0] == first.entry
        return measure(self.steps, self._opened[1] if known and self._opened is not None else None)

    def advance(self, look: Look = Look.SLOT) -> bool:
        """Look for new objects once. Returns whether there were any. ``look``: how far to look at least if not."""
        before, follower = self.head, self._follower or self._follow()
        for _ in range(HEADERS_IN_A_ROW):
            event = follower.poll(look)
            if event is None:
                break
            self._take_event(follower, event)
            if self.head != before and not isinstance(event, SegmentFound):
                break
        else:
            self._add_next_listed(follower)
        return self.head != before

    def _follow(self) -> _Follower:
        read = partial(find_header, self._client)
        self._follower = ReplicaFollower(self._client, self.claim, read, self.head.position, monotonic=self._clock)
        return self._follower

    def _take_event(self, follower: _Follower, event: Event[WalHeader]) -> None:
        self._follower = None  # after an error, another listing finds the current state
        match event:
            case SegmentFound(header):
                self._note(follower, header, follower.last)
            case ContentsFound(contents):
                self._enter(follower, contents)
            case GenerationFollows(claim):
                self._change(follower, claim)
            case DataLost(error, left, successor):
                self._lose(error)
                self._go_on_after_loss(follower, left, successor)
        self._follower = follower

    def _go_on_after_loss(self, follower: _Follower, left: Position | None, successor: Claim | None) -> None:
        if left is not None:
            if left > self.head.position:
                self._move(left)
            follower.enter(follower.claim, self.head.position)
        elif successor is not None:
            self._change(follower, successor)

    @property
    def claim(self) -> Claim:
        """The claim of the generation that it follows."""
        name = self.head.position.generation
        if name not in self.claims:
            self.claims[name] = self._read_claim(self.head.position)
        return self.claims[name]

    def _read_claim(self, at: Position) -> Claim:
        for name in (ClaimName(epoch_of(at.generation)), ClaimName(epoch_of(at.generation), at.generation)):
            try:
                claim = read_claim(self._client, name)
            except NotFoundError:
                continue
            if claim.generation == at.generation:
                return claim
        raise ConfigError(
            f"log {self.name}: the stream's checkpoint is at {at}, and {self._client.url} has no claim for that: "
            "the checkpoint belongs to another replica; give each new stream its own checkpointLocation"
        )

    def _enter(self, follower: _Follower, contents: GenerationContents) -> None:
        """Add the listed objects from ``head`` on."""
        base, at = contents.base, self.head.position
        if at.index < base.first.index:
            self._lose(PrunedError(str(at)))
            self._move(base.first)
            at = base.first
        if at.index < base.start.index:
            self._add_sealed(base)
        self._enter_wal(follower, contents)

    def _add_sealed(self, base: BaseSnapshot) -> None:
        at, follows = self.head.position, None
        for entry in base.entries:
            if entry.index >= at.index:
                start = Position(at.generation, entry.index, at.offset if entry.index == at.index else 0)
                stop = Position(at.generation, entry.index + 1, 0)
                raw, records = max(0, entry.length - start.offset), None if start.offset else entry.records
                self._add(SealedStep(start, stop, raw, entry.next, records, entry=entry, follows=follows))
            follows = follows if entry.next is None else entry.next

    def _enter_wal(self, follower: _Follower, contents: GenerationContents) -> None:
        base, at, infos = contents.base, self.head.position, contents.wal
        number = max(0, bisect_right([info.position for info in infos], at) - 1)
        before = infos[number - 1].position if number else None
        if number < len(infos) and infos[number].position < at:  # it may end after, at, or before the head
            self._note(follower, read_header(self._client, infos[number].position), before)
            if follower.is_ended:
                return
            number += 1
        elif number < len(infos) and infos[number].position == at:
            follower.stand_at(at, before)
        else:
            follower.stand_at(base.start)
        self._add_listed(follower, infos[number:], base)
        is_at_hole = follower.slot is not None and follower.slot <= at
        if self.head.position != at or number >= len(infos) or not is_at_hole or follower.skip(contents):
            return
        found = infos[number].position
        self._lose(contents.gap or ReplicaGapError(str(follower.slot), str(found)))
        self._move(found)
        follower.stand_at(found)

    def _add_next_listed(self, follower: _Follower) -> None:
        """After HEADERS_IN_A_ROW: add the WAL segments from the slot on by a listing, unless the generation ended."""
        if follower.slot is not None and not follower.is_ended:
            listed = self._client.wal_segments(follower.slot.generation, follower.slot)
            self._add_listed(follower, [*islice(listed, LISTED_AT_ONCE)])

    def _add_listed(
        self, follower: _Follower, infos: Sequence[WalSegmentInfo], base: BaseSnapshot | None = None
    ) -> None:
        """Add listed WAL segments from the slot on, up to the first gap. Uses names only, except for the last one."""
        for info, after in zip_longest(infos, infos[1:]):
            here = info.position
            if here != follower.slot:
                return
            link = base.link() if base is not None and here == base.start else None
            if after is None or not _may_follow(here, after.position):
                self._note(follower, read_header(self._client, here), follower.last, link)
                return
            same = after.position.index == here.index
            raw = after.position.offset - here.offset if same else COMPRESSION_RATIO * info.size
            self._add_wal(here, after.position, raw, None, follower.last, link)
            follower.stand_at(after.position, here)

    def _note(
        self,
        follower: _Follower,
        header: WalHeader,
        before: Position | None,
        link: ChainState | None = None,
    ) -> None:
        """Step past a WAL segment whose header was read."""
        if header.successor is None:
            raw = header.length
            if header.sealed is not None:
                raw = max(0, describe_sealed(self._client, header).length - header.offset)
            self._add_wal(header.position, header.next_slot, raw, header.next, before, link, shipped=header.shipped)
        follower.pass_segment(header)

    def _add_wal(
        self,
        here: Position,
        stop: Position,
        raw: int,
        sequence: int | None,
        before: Position | None,
        link: ChainState | None,
        *,
        shipped: int | None = None,
    ) -> None:
        """Add a WAL segment. ``shipped``: when it was shipped, if its header was read."""
        start = max(self.head.position, here)
        if stop > start:
            rest = max(0, raw - (start.offset - here.offset)) if raw and start.index == here.index else raw
            is_read = shipped is not None
            found = WalStep(start, stop, rest, sequence, segment=here, is_read=is_read, before=before, link=link)
            self._add(replace(found, shipped=shipped))

    def _add(self, step: StreamStep) -> None:
        if not self.steps:
            self._learned = self._clock()
        self.steps.append(step)
        self.head = behind(self.head, step)

    def _move(self, stop: Position) -> None:
        self._add(MoveStep(self.head.position, stop))

    def _change(self, follower: _Follower, successor: Claim) -> None:
        """Continue at the same place in a generation that continues this one."""
        claim, at = follower.claim, self.head.position
        self.claims[successor.generation] = successor
        try:
            shift = find_shift(self._client, claim, successor, at)
        except DivergedError as error:
            step = self._fork(claim, successor, error)
        except PrunedError:
            step = self._move_to_sequence(successor)
        else:
            if at.index + shift < 0:
                self._lose(PrunedError(str(at)))
            stop = Position(successor.generation, max(0, at.index + shift), at.offset)
            log_format = open_claimed_format(claim, lambda name: open_log_format(name, None))
            renumbers = not log_format.self_numbered  # the format counts records from the first one it reads
            step = MoveStep(at, stop, renumbers=renumbers)
        self._add(step)
        follower.enter(successor, step.stop)

    def _fork(self, claim: Claim, successor: Claim, error: DivergedError) -> MoveStep:
        """The move to the place where the history of ``successor`` forks from what the stream has read.

        Reads the records of both from the last log segment on that they have in common.
        """
        head = self.head
        fork = find_fork(self._client, claim, successor, head.sequence)
        self._lose(DivergedError(error.path, f"{error.reason}; {fork}"))
        first = fork.sequence if head.sequence is None or fork.sequence is None else min(fork.sequence, head.sequence)
        stop = find_sequence(self._client, successor, first)
        return MoveStep(head.position, stop, sequence=first, is_fork=True)

    def _move_to_sequence(self, successor: Claim) -> MoveStep:
        """The move to the next record, in a generation in which the log segments after ``head`` were merged. Raises
        PrunedError if the next sequence is not known."""
        at, sequence = self.head.position, self.head.sequence
        if sequence is None:
            raise PrunedError(str(at))
        stop = find_sequence(self._client, successor, sequence)
        return MoveStep(at, stop, sequence=sequence, is_fork=True, is_merge=True)

    def _lose(self, error: LitelogError) -> None:
        """Raise an error that reports data loss, or only log it if the stream may lose data."""
        error.add_note(f"log {self.name}; failOnDataLoss=false continues at the first record that is left")
        if not self._lossy:
            raise error
        message = "%s: %s; continuing with the data that is left because of failOnDataLoss=false"
        _logger.warning(message, self.name, error, extra=fields("data-lost", log=self.name))


def _may_follow(here: Position, after: Position) -> bool:
    """Whether two WAL segments may be adjacent, judging by their names."""
    if after.index == here.index:
        return True
    return (after.index, after.offset) == (here.index + 1, 0)
