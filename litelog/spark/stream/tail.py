"""Follows the end of one log in a stream's driver: which objects are new, and which single name comes next.

It lists objects at the start, and when it is far behind. At the end of the log it polls the next name, with one GET of
a header each time.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import deque
from dataclasses import replace
from itertools import islice, zip_longest
from typing import TYPE_CHECKING

from litelog.errors import ConfigError, DivergedError, LitelogError, NotFoundError, PrunedError, ReplicaGapError
from litelog.events import fields
from litelog.objects.position import ClaimName, Position, epoch_of, generation
from litelog.reading.contents import list_pieces
from litelog.reading.generations import read_claim
from litelog.reading.latest import find_latest
from litelog.reading.search import read_header
from litelog.reading.successors import find_begun, find_shift, find_successor, find_terminal
from litelog.reading.wal_cursor import describe_sealed
from litelog.spark.stream.start import find_sequence
from litelog.spark.stream.steps import StreamStep, behind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from litelog.objects.claim import Claim
    from litelog.objects.wal_segment import WalHeader
    from litelog.reading.contents import BaseSnapshot, GenerationContents
    from litelog.reading.wal_chain import ChainState
    from litelog.spark.stream.steps import LogOffset
    from litelog.stores.replica_client import ReplicaClient, WalSegmentInfo

_logger = logging.getLogger(__name__)

HEADERS_IN_A_ROW = 8
"""After this many next names in a row that exist, the rest is listed."""

LISTED_AT_ONCE = 20_000
"""Names listed at a time, which bounds what is known ahead."""

POLLS_PER_LOOK = 30
"""After this many polls without news it looks for the next epoch, with one GET."""

LOOK_SECONDS = 1800.0
"""After this many seconds without news it lists, to make sure that it stands at the end. Half of the grace of WAL
segments. Steps that no batch took for this long are looked up again."""

COMPRESSION_RATIO = 3
"""Assumed ratio of a WAL segment's content to its object's size, where names do not show the content's size."""


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
        self.claims: dict[str, Claim] = {}
        self._client, self._lossy, self._clock = client, lossy, clock
        self._slot = at.position
        self._last: Position | None = None
        self._entered = self._awaits = False
        self._polls, self._looked = 0, clock()
        self._learned = self._looked
        """The earliest time at which the first of the steps was found."""

    # --- taking steps for a batch

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
        self.head, self._slot, self._last, self._entered = at, at.position, None, False

    def take(self, at: LogOffset, chosen: Sequence[StreamStep]) -> LogOffset:
        """Take the first steps, which are ``chosen``, beginning at ``at``. Returns the offset after them."""
        if not chosen:
            return at
        read = list(chosen)
        last = read[-1]
        if last.segment is not None and not last.is_read:
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
        if read[-1].stop != full.stop:  # it was cut, or the names hid a gap after it
            self.steps.clear()
            self.head, self._slot, self._last, self._entered = at, at.position, None, False
        return at

    # --- finding new steps

    def advance(self) -> bool:
        """Look for new objects once. Returns whether there were any."""
        before = self.head
        if self._entered:
            self._poll()
        else:
            self._entered = True
            try:
                self._enter()
            except BaseException:
                self._entered = False
                raise
            self._looked = self._clock()
        if self.head == before:
            return self._look_around()
        self._polls, self._looked = 0, self._clock()
        return True

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

    def _enter(self) -> None:
        """Set the position to ``head``, from a listing."""
        pieces = list_pieces(self._client, self.claim)
        base, at = pieces.base, self.head.position
        self._awaits = base.snapshot is None
        if base.snapshot is None:
            self._slot, self._last = base.start, None
            if not self._skip(pieces) and pieces.gap is not None:
                raise pieces.gap
            return
        if at.index < base.first.index:
            self._lose(PrunedError(str(at)))
            self._move(base.first)
            at = base.first
        if at.index < base.start.index:
            self._add_sealed(base)
            self._slot, self._last = base.start, None
        self._enter_wal(pieces)

    def _skip(self, pieces: GenerationContents) -> bool:
        """Whether the generation ended and its successor has everything that this one no longer has."""
        terminal = find_terminal(self._client, pieces)
        if terminal is not None:
            self._go_on_in(terminal)
        return terminal is not None

    def _add_sealed(self, base: BaseSnapshot) -> None:
        at, follows = self.head.position, None
        for entry in base.entries:
            if entry.index >= at.index:
                start = Position(at.generation, entry.index, at.offset if entry.index == at.index else 0)
                stop = Position(at.generation, entry.index + 1, 0)
                self._add(StreamStep(start, stop, max(0, entry.length - start.offset), entry.next, entry, follows))
            follows = follows if entry.next is None else entry.next

    def _enter_wal(self, pieces: GenerationContents) -> None:
        base, at, infos = pieces.base, self.head.position, pieces.wal
        number = max(0, bisect_right([info.position for info in infos], at) - 1)
        before = infos[number - 1].position if number else None
        if number < len(infos) and infos[number].position < at:  # it may end after, at, or before the head
            if self._note(read_header(self._client, infos[number].position), before):
                return
            number += 1
        elif number < len(infos) and infos[number].position == at:
            self._slot, self._last = at, before
        else:
            self._slot, self._last = base.start, None
        self._add_listed(infos[number:], base)
        if self.head.position != at or number >= len(infos) or self._slot > at:
            return
        if self._skip(pieces):
            return
        found = infos[number].position
        self._lose(pieces.gap or ReplicaGapError(str(self._slot), str(found)))
        self._move(found)
        self._slot, self._last = found, None

    def _add_listed(self, infos: Sequence[WalSegmentInfo], base: BaseSnapshot | None = None) -> None:
        """Add listed WAL segments from the slot on, up to the first gap. Uses names only, except for the last one."""
        for info, after in zip_longest(infos, infos[1:]):
            here = info.position
            if here != self._slot:
                return
            link = base.link() if base is not None and here == base.start else None
            if after is None or not _may_follow(here, after.position):
                self._note(read_header(self._client, here), self._last, link)
                return
            same = after.position.index == here.index
            raw = after.position.offset - here.offset if same else COMPRESSION_RATIO * info.size
            self._add_wal(here, after.position, raw, None, self._last, link, is_read=False)

    def _poll(self) -> None:
        """Read the next names, one GET each; list them if there are many."""
        if self._awaits and self._has_begun():
            self._enter()
            return
        for _ in range(HEADERS_IN_A_ROW):
            try:
                header = read_header(self._client, self._slot)
            except ReplicaGapError:
                return
            moved = self._note(header, self._last)
            if moved:
                return
        self._add_listed([*islice(self._client.wal_segments(self._slot.generation, self._slot), LISTED_AT_ONCE)])

    def _has_begun(self) -> bool:
        """Whether the generation has its first snapshot, which the owner writes first. One GET until it exists."""
        claim = self.claim
        try:
            self._client.read_snapshot(generation(claim.generation), claim.first)
        except NotFoundError:
            return False
        return True

    def _note(self, header: WalHeader, before: Position | None, link: ChainState | None = None) -> bool:
        """Step past a WAL segment whose header was read. Returns whether it ended the generation."""
        if header.successor is not None:
            self._go_on_in(header)
            return True
        raw = header.length
        if header.sealed is not None:
            raw = max(0, describe_sealed(self._client, header).length - header.offset)
        self._add_wal(header.position, header.next_slot, raw, header.next, before, link, is_read=True)
        return False

    def _add_wal(
        self,
        here: Position,
        stop: Position,
        raw: int,
        sequence: int | None,
        before: Position | None,
        link: ChainState | None,
        *,
        is_read: bool,
    ) -> None:
        start = max(self.head.position, here)
        if stop > start:
            rest = max(0, raw - (start.offset - here.offset)) if raw and start.index == here.index else raw
            self._add(StreamStep(start, stop, rest, sequence, segment=here, is_read=is_read, before=before, link=link))
        self._slot, self._last = stop, here

    def _add(self, step: StreamStep) -> None:
        if not self.steps:
            self._learned = self._clock()
        self.steps.append(step)
        self.head = behind(self.head, step)

    def _move(self, stop: Position) -> None:
        self._add(StreamStep(self.head.position, stop, 0))

    # --- moving to the next generation

    def _go_on_in(self, terminal: WalHeader) -> None:
        """Continue after an ended generation once a successor has begun; wait until then."""
        successor = find_successor(self._client, self.claim, terminal, lists=self._polls % POLLS_PER_LOOK == 0)
        if successor is not None:
            self._change(successor)

    def _change(self, successor: Claim) -> None:
        """Continue at the same place in a generation that continues this one."""
        claim, at, is_fork = self.claim, self.head.position, False
        self.claims[successor.generation] = successor
        try:
            shift = find_shift(self._client, claim, successor, at)
        except DivergedError as error:
            self._lose(error)
            stop, is_fork = find_sequence(self._client, successor, self.head.sequence), True
        else:
            if at.index + shift < 0:
                self._lose(PrunedError(str(at)))
            stop = Position(generation(successor.generation), max(0, at.index + shift), at.offset)
        renumbers = claim.format != "litelog"  # other formats count records from the first one they read
        self._add(StreamStep(at, stop, 0, is_fork=is_fork, renumbers=renumbers))
        self._slot, self._last, self._entered = stop, None, False

    # --- no news

    def _look_around(self) -> bool:
        self._polls += 1
        if self._clock() - self._looked >= LOOK_SECONDS:
            self._entered, self._looked = False, self._clock()
            return self.advance()
        return self._polls % POLLS_PER_LOOK == 0 and self.leave()

    def leave(self) -> bool:
        """Leave the generation if a newer one follows. Returns whether one does. ``advance`` checks this at times."""
        return self._leave_isolated() if self.claim.is_isolated else self._look_for_successor()

    def _look_for_successor(self) -> bool:
        """Check whether a newer owner has begun, which first ends this generation."""
        successor = find_begun(self._client, self.claim)
        if successor is None:
            return False
        before = self.head
        self._poll()
        if self.head == before:
            self._enter()
        if self.head == before:
            self._lose(ReplicaGapError(str(self._slot), successor.key))
            self._change(successor)
        return True

    def _leave_isolated(self) -> bool:
        """Move to the latest generation: isolated owners' generations have no terminal. Costs a listing until then."""
        if self._client.claims(self.claim.epoch) == [self.claim.name]:
            return False
        newest = find_latest(self._client)
        if newest.generation == self.claim.generation:
            return False
        before = self.head
        self._poll()
        if self.head != before:
            return True
        self._change(newest)
        return True

    def _lose(self, error: LitelogError) -> None:
        """Raise an error that reports data loss; only log it if data may be lost."""
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
