"""WalFeed: the bytes of a served log for one reader, as a stream of WAL segments.

WAL segments that the buffer no longer holds are those of the replica, as it has them. If none of them begins at the
place, the bytes come from the log's folder, or from the replica's sealed segment. At the live end, each run of the
buffer is one WAL segment, which is compressed once for all readers. It is durable in the log's folder, and the replica
may not have it yet.

Specified in litelog/live/README.md#wal-segments.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import LitelogError, NotFoundError, PrunedError
from litelog.events import fields
from litelog.formats import FinishedTail
from litelog.live.buffer_news import PLACE_SECONDS, BufferNews, ForkedError
from litelog.live.encoding import piece_size
from litelog.live.mirror_check import require_before
from litelog.live.past_runs import PastRuns, end_of
from litelog.live.served_log import name_before
from litelog.log.source_position import make_run
from litelog.objects import wal_segment, wal_stream
from litelog.objects.layout import wal_key
from litelog.objects.position import Position
from litelog.objects.wal_segment import MAX_HEADER_BYTES
from litelog.objects.wal_stream import MirrorEnd
from litelog.shipping.wal_encoder import make_header
from litelog.stores.object_store import ByteRange

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from litelog.live.encoding import Piece
    from litelog.live.live_buffer import BufferView, LiveRun
    from litelog.live.served_log import LiveReader, ServedLog
    from litelog.log.source_position import CommitRun, SourcePosition
    from litelog.objects.claim import Claim
    from litelog.system.clock import Clock

_logger = logging.getLogger(__name__)

KIND, STORED_KIND = "wal", "stored wal"
"""Identify the encoded forms of a run: compressed, and as it is."""

UNSENT_BYTES = 256 << 10
"""A reader to which no more is unsent takes bytes faster than they are compressed: it gets them as they are."""

THREAD_BYTES = 32 << 10
"""A longer run is encoded in a thread."""

STATED_BYTES = 1 << 20
"""From this size on, the digest of a WAL segment of the replica is read from the next one, which states it."""


@dataclass(frozen=True, slots=True)
class WalRequest:
    """A reader's request."""

    position: Position
    """Where the first WAL segment begins: at a commit."""
    follow: bool = False
    """Continue with new WAL segments."""
    wait: float = 0.0
    """Without ``follow``: how many seconds to wait for the first WAL segment."""
    limit: int | None = None
    """End after about this many bytes."""
    mirror: str | None = None
    """The name of the mirror that asks, which is durable up to the position."""
    before: MirrorEnd = MirrorEnd()
    """What it has before the position."""

    @property
    def waits(self) -> bool:
        """Whether it waits for WAL segments that are not there yet."""
        return self.follow or self.wait > 0


class WalFraming:
    """The beginning and the end of a stream of WAL segments."""

    media_type = "application/octet-stream"

    def begin(self) -> bytes:
        return b""

    def keep_alive(self) -> bytes:
        return wal_stream.sign_of_life()

    def fail(self, error: Mapping[str, object]) -> bytes:
        return wal_stream.failure(error)

    def end(self) -> bytes:
        return wal_stream.end()


class WalFeed:
    """One reader's way through the bytes of a log. Its methods run in one event loop."""

    def __init__(
        self,
        served: ServedLog,
        request: WalRequest,
        reader: LiveReader,
        clock: Clock,
        unsent: Callable[[], int] | None = None,
    ) -> None:
        """``unsent``: how many bytes that were yielded the reader has not taken yet; None: it is not known, and all is
        compressed."""
        self._served = served
        self._request = request
        self._reader = reader
        self._clock = clock
        self._unsent = unsent
        self._place = request.position
        self._news = BufferNews(served, reader, wal_stream.sign_of_life())
        self._following: int | None = None
        """The sequence after the last piece."""
        self._wanted: str | None = None
        """The form in which the next run is encoded ahead."""
        self._known: SourcePosition | None = None
        """The place, as the last run of the buffer or WAL segment of the replica states it that was yielded."""
        self._past: PastRuns | None = None
        self._ahead: asyncio.Future[None] | None = None
        """Done once the next WAL segment of the replica was read."""
        self._ended = False
        """Whether the stream has ended. A thread may still read for it."""

    async def pieces(self) -> AsyncGenerator[Piece, None]:
        """Yield the WAL segments, each with its announcement, and signs of life.

        Raises:
            NotYetAvailableError: The daemon has not begun a generation of the log.
            PrunedError: No WAL segment of the replica begins at the position: restore from the replica.
            ForkedError: The log's history forked, or does not have the position.
            LitelogError: The replica cannot be read.
        """
        try:
            async for piece in self._pieces():
                yield piece
        finally:
            self._ended = True
            self._want(None)
            self._leave_past()

    async def _pieces(self) -> AsyncGenerator[Piece, None]:
        request, loop = self._request, asyncio.get_running_loop()
        with self._news as news:
            await news.require_begun()
            if request.before != MirrorEnd():
                await self._require_reached()
                await asyncio.to_thread(require_before, self._served, self._place, request.before, self._clock)
            if request.mirror is not None:
                await self._note_mirror(request.mirror, request.position)
            deadline = loop.time() + request.wait
            while request.limit is None or self._reader.sent_bytes < request.limit:
                news.clear()
                piece = await self._next_piece()
                if piece is not None:
                    yield piece
                    self._served.count(self._reader, piece_size(piece), self._following)
                    continue
                if not self._reader.sent_bytes and request.waits:
                    yield b""  # the answer begins before there is a WAL segment: its head takes no time then
                if request.follow:
                    if not await news.wait_for_life(self):
                        yield wal_stream.sign_of_life()
                elif self._reader.sent_bytes or not await news.wait(deadline - loop.time()):
                    return

    async def _note_mirror(self, name: str, position: Position) -> None:
        """Note that a mirror is durable up to ``position``."""
        served, now = self._served, self._clock.monotonic()
        served.mirrors.note(name, served.locate_mirror(position), now)
        if served.mirrors.is_due(name, position, now):
            await asyncio.to_thread(self._record_mirror, name, position, now)

    def _record_mirror(self, name: str, position: Position, now: float) -> None:
        """Record in which log segment a mirror is, for truncation. If that fails, the mirror is served nevertheless."""
        served = self._served
        try:
            file = served.find_file(position)
            if file is not None:
                served.mirrors.record(name, position, file, self._clock.now(), now)
        except (LitelogError, OSError) as error:
            if served.mirrors.fail_to_record(name, str(error)):
                extra = fields("mirror-not-recorded", log=served.log.source.folder)
                _logger.warning("%s: truncation may not wait for mirror %s", error, name, extra=extra)

    async def _next_piece(self) -> Piece | None:
        """The WAL segment at the place; None if there is none yet."""
        view, oldest, live = self._served.buffer.look_from(self._place)
        self._require_known(view)
        first = self._served.durable_end() if oldest is None else oldest.position
        if first is not None and self._place < first:
            if self._ahead is not None:
                await self._ahead
            file = "" if oldest is None else oldest.run.start.file
            piece = await asyncio.to_thread(partial(self._read_past, first, file, is_stored=self._is_stored()))
            is_next = self._past is None and self._place < first
            self._ahead = asyncio.ensure_future(asyncio.to_thread(self._read_ahead, self._place)) if is_next else None
            return piece
        if live is None:
            await self._require_reached()
            self._want(STORED_KIND if self._is_stored() else KIND)
            return None
        if live.position == self._place:
            self._require_joined(live)
            kind = STORED_KIND if self._is_stored() else KIND
            encode = partial(live.encoded, kind, partial(self._encode_whole, kind, live))
            is_quick = live.size <= THREAD_BYTES or live.find_encoded(kind) is not None
            piece = encode() if is_quick else await asyncio.to_thread(encode)
        else:
            rest = await asyncio.to_thread(self._cut, live.run)
            piece = await asyncio.to_thread(partial(self._encode, live.claim, rest, is_stored=self._is_stored()))
        self._place, self._following, self._known = live.after, live.next, live.run.after
        return piece

    def find_piece(self, run: LiveRun) -> Piece | None:
        """As ``NextRun`` has it."""
        is_next = run.position == self._place and self._past is None and self._request.limit is None
        return run.find_encoded(STORED_KIND if self._is_stored() else KIND) if is_next else None

    def pass_run(self, run: LiveRun, piece: Piece) -> None:
        """As ``NextRun`` has it."""
        self._place, self._following, self._known = run.after, run.next, run.run.after
        self._served.count(self._reader, piece_size(piece), run.next)

    def _want(self, kind: str | None) -> None:
        """Let the next run be encoded in a form; None: in no form."""
        before, self._wanted = self._wanted, kind
        if kind != before and before is not None:
            self._served.buffer.wanted.remove(before)
        if kind != before and kind is not None:
            self._served.buffer.wanted.add(kind, partial(self._encode_whole, kind))

    def _is_stored(self) -> bool:
        """Whether the next bytes are sent as they are, since the reader has taken those before."""
        return self._unsent is not None and self._unsent() <= UNSENT_BYTES

    def _read_past(self, first: Position, file: str, *, is_stored: bool) -> Piece:
        """The next WAL segment before ``first``, where the buffer begins, in log segment ``file``."""
        if self._past is None:
            with suppress(PrunedError):
                return self._read_object()
            self._past = self._open_past(first, file)
            if self._ended:
                self._leave_past()
                raise PrunedError(str(self._place))
        is_growing = self._place.index == first.index
        run = self._past.next_run(first.offset if is_growing else None)
        if run is None:
            self._leave_past()
            raise PrunedError(str(self._place))
        if run.final:
            self._leave_past()
        claim, after = self._claim(), run.after
        self._place = Position(claim.generation, after.index, after.offset)
        self._following = after.sequence
        return self._encode(claim, run, is_stored=is_stored)

    def _read_ahead(self, place: Position) -> None:
        """Let the next WAL segment be held already when the reader has got the one before it."""
        with suppress(LitelogError, OSError):
            self._served.objects.open(wal_key(place), None).close()

    def _open_past(self, first: Position, file: str) -> PastRuns:
        served, place = self._served, self._place
        source, name = served.log.source, None
        is_shipped = served.is_acknowledged(Position(place.generation, place.index + 1, 0))
        if file and (place.index == first.index or not is_shipped):
            with suppress(FileNotFoundError):  # the folder is gone, and the replica may have the name
                name = name_before(source.folder, source.format, file, first.index - place.index)
        known = self._known
        if known is not None and (not known.file or (known.index, known.offset) != (place.index, place.offset)):
            known = None
        return PastRuns(source, served.objects.history(self._claim(), source.format), place, name, known)

    def _claim(self) -> Claim:
        """The claim of the generation. Raises ForkedError if another one has begun."""
        found = self._served.log.find_start()
        if found is None or found[0].generation != self._place.generation:
            raise ForkedError(self._served.name, f"{self._place} is in a generation that has ended")
        return found[0]

    def _require_joined(self, live: LiveRun) -> None:
        """Raise ForkedError if the past that was sent is not that of the live run, which begins where it ended."""
        past, start = self._past, live.run.start
        self._leave_past()
        if past is not None and past.place.index == start.index and past.place.crc_total != start.crc_total:
            raise ForkedError(self._served.name, f"its bytes before {self._place} are not those that were shipped")

    def _leave_past(self) -> None:
        past, self._past = self._past, None
        if past is not None:
            past.close()

    def _require_known(self, view: BufferView) -> None:
        """Raise ForkedError unless ``view`` is of the history that was read, in the requested generation."""
        self._news.require_same(view)
        if view.generation != self._place.generation:
            reason = f"{self._place} is in another generation; the log continues in {view.generation}"
            raise ForkedError(self._served.name, reason)

    async def _require_reached(self) -> None:
        """Raise ForkedError if the log does not reach the place within PLACE_SECONDS. A buffer that has just begun may
        still be reading the folder."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PLACE_SECONDS
        while True:
            self._news.clear()
            self._require_known(self._served.buffer.view)
            end = self._served.durable_end()
            if end is not None and self._place <= end:
                return
            left = deadline - loop.time()
            if left <= 0:
                raise ForkedError(self._served.name, f"ends at {end}, before {self._place}")
            await self._news.wait(min(left, 1.0))

    def _read_object(self) -> Piece:
        """The replica's WAL segment at the place, as it is stored. Its reader checks it."""
        key = wal_key(self._place)
        try:
            with self._served.objects.open(key, None) as stream:
                body = stream.read()
        except NotFoundError as error:
            raise PrunedError(str(self._place)) from error
        header = wal_segment.decode_header(key, body)
        if header.sealed is not None or header.successor is not None:
            raise PrunedError(str(self._place))  # its bytes are in a sealed segment, or in another generation
        stated = self._find_digest(header.next_slot) if len(body) >= STATED_BYTES else None
        self._place, self._following, self._known = header.next_slot, header.next, end_of(header)
        return wal_stream.announced(header.position, [body], stated)

    def _find_digest(self, following: Position) -> str | None:
        """The digest that the WAL segment at ``following`` states of the one before it; None if it is not there."""
        key = wal_key(following)
        with suppress(NotFoundError), self._served.objects.open(key, ByteRange(0, MAX_HEADER_BYTES)) as stream:
            return wal_segment.decode_header(key, stream.read()).previous
        return None

    def _cut(self, run: CommitRun) -> CommitRun:
        """The part of a run from the place on. Raises ForkedError if no commit begins there."""
        log_format, start = self._served.log.source.format, run.start
        path = os.path.join(self._served.log.source.folder, start.file)
        at = self._place.offset - start.offset
        known = log_format.scan(path, run.data[:at], start.offset, start.expectation)
        if at > len(run.data) or known.end != self._place.offset:
            raise ForkedError(self._served.name, f"no commit begins at {self._place}")
        place, rest = make_run(start, run.data[:at], known, final=False).end, run.data[at:]
        if not rest:
            return make_run(place, rest, None, final=run.final)
        scan = log_format.scan(path, rest, place.offset, known.expectation)
        if run.final and log_format.finished_tail is FinishedTail.SHIP:
            scan = replace(scan, end=scan.start + len(rest))
        return make_run(place, rest, scan, final=run.final)

    def _encode_whole(self, kind: str, live: LiveRun) -> Piece:
        """A run of the buffer. Any thread may call it."""
        return self._encode(live.claim, live.run, is_stored=kind == STORED_KIND)

    def _encode(self, claim: Claim, run: CommitRun, *, is_stored: bool) -> Piece:
        """A run as a WAL segment, compressed or not. It names no object before it: it is not in the replica's chain."""
        header = make_header(claim, run, previous="", shipped=self._clock.now())
        body = wal_segment.encode_stored(header, run.data) if is_stored else wal_segment.encode(header, run.data)
        return wal_stream.announced(header.position, body)
