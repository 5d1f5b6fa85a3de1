"""Sealing: makes a sealed segment from a finished log segment, piece by piece. Bytes in, the object's bytes out.

It reads a window of the log segment, finds its whole commits, and turns them into a frame. It reads the next window
while frames are compressed. So memory holds a few windows, no matter how long the log segment is.
"""

from __future__ import annotations

from collections import deque
from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

from litelog.codec.checksum import combine
from litelog.codec.frame_codecs import Compression
from litelog.codec.joint_sha256 import joint_sha256
from litelog.codec.lz4_frames import FRAME_BYTES, MAX_FRAME_BYTES, content_checksum
from litelog.dataclass import dataclass
from litelog.errors import CorruptCommitError, DivergedError, SourceError
from litelog.formats import Expectation, FinishedTail, Tail
from litelog.formats.capabilities import max_commit_bytes, scan_front
from litelog.formats.commit_tail import is_zero
from litelog.objects.frame_table import FrameTable, SealedFrame, ShipTimes
from litelog.objects.sealed_segment import SealedFooter, encode_footer
from litelog.system.buffers import AHEAD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor, Future

    from typing_extensions import Buffer

    from litelog.codec.frame_codecs import FrameCodec
    from litelog.formats import LogFormat, Scan
    from litelog.native.lz4_frame import MadeFrame
    from litelog.objects.claim import Claim

Read: TypeAlias = "Callable[[int, int], bytes]"
"""``read(offset, length)``: bytes of the log segment, fewer only at its end."""

MOST_AHEAD = 4
"""Frames that are compressed or queued, in addition to the one being taken: two for each of two processors. There are
fewer if the process has no room for more (``AHEAD``)."""


@dataclass(frozen=True, slots=True)
class FinishedSegment:
    """A log segment to seal, and what is known about it beforehand."""

    claim: Claim
    """The claim of the generation that the sealed segment belongs to."""
    index: int
    file: str
    length: int
    """Bytes to seal. If ``crc`` is None, the length of the file: the format decides where its commits end."""
    shipped: int
    """Microseconds since 1970: the ship time of bytes that ``marks`` do not cover."""
    crc: int | None = None
    """CRC-32C of those bytes, as the ``final`` states it; None if nothing of it was shipped."""
    previous: str = ""
    """As in SealedFooter."""
    marks: ShipTimes = field(default_factory=lambda: ShipTimes((), ()))
    """Ship times of the WAL segments that it replaces."""
    expect: Expectation = field(default_factory=Expectation)
    """Required of its first commit."""
    path: str = ""
    """Its name in errors: its folder and ``file``; if empty, ``file`` alone."""


class Sealing:
    """The body of a sealed segment, to be put. Each iteration makes it again, with the same bytes.

    Iterating raises what ``read`` raises. It raises CorruptCommitError or SequenceGapError if the log segment does not
    hold whole commits that follow each other, and DivergedError if it is shorter than promised or has another CRC-32C.
    It raises ConfigError if the compression needs a package that is missing. All errors come before the footer, so that
    no complete object is put.
    """

    def __init__(
        self,
        segment: FinishedSegment,
        read: Read,
        log_format: LogFormat,
        executor: Executor | None = None,
        *,
        compression: Compression = Compression.LZ4,
        frame_bytes: int = FRAME_BYTES,
        may_hand_over: Callable[[], bool] = lambda: True,
    ) -> None:
        """``executor`` compresses frames concurrently, while ``may_hand_over()`` is true; otherwise, and without one,
        the iterating thread does.

        ``frame_bytes``: the approximate content of a frame, uncompressed; for tests, for which a MiB is too much.
        """
        self.segment = segment
        self._read = read
        self._format = log_format
        self._executor = executor
        self._compression = compression
        self._frame_bytes = frame_bytes
        self._may_hand_over = may_hand_over
        self._footer: SealedFooter | None = None
        self._size = 0

    @property
    def footer(self) -> SealedFooter:
        """The footer of the finished object. Raises ValueError before the body was iterated to its end."""
        if self._footer is None:
            raise ValueError("the body was not iterated to its end")
        return self._footer

    @property
    def size(self) -> int:
        """The size of the finished object in bytes."""
        return self._size

    def __iter__(self) -> Iterator[Buffer]:
        self._footer = None
        table = _Table(self.segment, self._compression.codec)
        waiting: deque[_Waiting] = deque()
        try:
            for cut in self._cuts():
                room = 2 * len(cut.data)  # compressed, it may take as much again
                if self._executor is None or not self._may_hand_over() or not AHEAD.try_take(room):
                    room = 0
                waiting.append(self._start(cut, room))
                table.take(cut)
                if len(waiting) > MOST_AHEAD:
                    yield table.add(waiting.popleft())
                while waiting and not room:
                    yield table.add(waiting.popleft())
            while waiting:
                yield table.add(waiting.popleft())
        finally:
            for frame in waiting:
                frame.making.cancel()
                AHEAD.give_back(frame.room)
        footer = table.footer()
        last = encode_footer(footer)
        self._footer, self._size = footer, footer.data_bytes + len(last)
        yield last

    def _start(self, cut: _Cut, room: int) -> _Waiting:
        """Begin to compress a frame, for which ``room`` was taken; without room, compress it."""
        try:
            return _Waiting(cut, self._compress(cut) if room else _Made(self._compression.compress(cut.data)), room)
        except BaseException:
            AHEAD.give_back(room)
            raise

    def _compress(self, cut: _Cut) -> Future[MadeFrame]:
        assert self._executor is not None
        return self._executor.submit(self._compression.compress, cut.data)

    def _cuts(self) -> Iterator[_Cut]:
        """The log segment's bytes in order, one piece per frame."""
        offset, expect = 0, self.segment.expect
        while offset < self.segment.length:
            data, scan = self._window(offset, expect)
            end = scan.end if scan.end > offset else self._check_end(data, scan)
            if end == offset:
                return
            yield from _cut_run(data[: end - offset], scan, expect, self._frame_bytes)
            offset, expect = end, scan.expectation

    def _window(self, offset: int, expect: Expectation) -> tuple[memoryview, Scan]:
        """Bytes from ``offset`` on, with at least one whole commit if there is one, and their scan."""
        left = self.segment.length - offset
        wanted, most = min(self._frame_bytes, left), max_commit_bytes(self._format) + MAX_FRAME_BYTES
        while True:
            data = self._read_at(offset, wanted)
            if len(data) < wanted:
                reason = f"was cut from {self.segment.length} bytes to {offset + len(data)}"
                raise DivergedError(self._path, reason)
            scan = scan_front(self._format, data, offset, expect) if len(data) < left else None
            if scan is not None:
                return data, scan  # the next window begins with what follows these commits
            scan = self._format.scan(self._path, data, offset, expect)
            wanted = min(left, max(2 * wanted, scan.wanted), most)
            if scan.end > offset or wanted <= len(data) or self._is_spare(data, scan):
                return data, scan

    def _check_end(self, data: memoryview, scan: Scan) -> int:
        """Where the log segment ends: after ``data``, in which no commit ends, or before it. Raises CorruptCommitError
        if the format leaves no such bytes."""
        tail, promised = self._format.finished_tail, self.segment.crc is not None
        if self._is_spare(data, scan) or (tail is FinishedTail.PREFIX and not promised):
            return scan.start
        is_data = tail is FinishedTail.SHIP and (promised or scan.damage is None)
        if is_data and scan.start + len(data) == self.segment.length:
            return self.segment.length
        damage = scan.damage
        if damage is None:
            raise CorruptCommitError(self._path, scan.start, "commit", "whole, in a finished log segment", "cut off")
        raise CorruptCommitError(self._path, damage.offset, damage.what, damage.expected, damage.actual)

    def _is_spare(self, data: memoryview, scan: Scan) -> bool:
        """Whether ``data`` holds nothing that was promised, only preallocated zeros to the end of the file, or the log
        segment's header alone."""
        if self.segment.crc is not None or scan.end > scan.start:
            return False
        places = range(scan.start + len(data), self.segment.length, FRAME_BYTES)
        return scan.tail is Tail.NOTHING or (
            scan.tail is Tail.ZEROS and all(is_zero(self._read_at(at, FRAME_BYTES)) for at in places)
        )

    def _read_at(self, offset: int, length: int) -> memoryview:
        try:
            return memoryview(self._read(offset, length))
        except OSError as error:
            raise SourceError(f"{self._path}: cannot be read at {offset}: {error.strerror or error}") from error

    @property
    def _path(self) -> str:
        return self.segment.path or self.segment.file


@dataclass(frozen=True, slots=True)
class _Cut:
    """The content of one frame."""

    data: memoryview
    first: int
    records: int
    lowest: int | None
    highest: int | None
    next: int | None
    """The sequence that follows its whole run."""
    inner: bool
    """Whether it ends inside a commit."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A frame that is being compressed, and the room that was taken for it, in bytes: 0 if there was none."""

    cut: _Cut
    making: Future[MadeFrame] | _Made
    room: int


@dataclass(frozen=True, slots=True)
class _Made:
    """A frame that is compressed, as the future that would have it."""

    frame: MadeFrame

    def result(self) -> MadeFrame:
        return self.frame

    def cancel(self) -> None:
        """Do nothing."""


def _cut_run(run: memoryview, scan: Scan, expect: Expectation, frame_bytes: int) -> Iterator[_Cut]:
    """Yield one frame, or several if one cannot hold the run; the first one describes the whole run."""
    first = scan.first if scan.first is not None else expect.sequence or 0
    following = scan.next if scan.next is not None else first
    whole = len(run) <= frame_bytes * (MAX_FRAME_BYTES // FRAME_BYTES)
    pieces = [run] if whole else [run[at : at + frame_bytes] for at in range(0, len(run), frame_bytes)]
    last = len(pieces) - 1
    yield _Cut(pieces[0], first, scan.records, scan.lowest, scan.highest, scan.next, inner=last > 0)
    for number, piece in enumerate(pieces[1:], 1):
        yield _Cut(piece, following, 0, None, None, scan.next, inner=number < last)


class _Table:
    """Collects the footer's columns."""

    def __init__(self, segment: FinishedSegment, codec: FrameCodec) -> None:
        self._segment = segment
        self._codec = codec
        self._sha = joint_sha256()
        self._crc = self._length = self._size = 0
        self._next: int | None = segment.expect.sequence
        self._frames: list[SealedFrame] = []
        self._inner: list[int] = []

    def take(self, cut: _Cut) -> None:
        """Hash the next piece, while it is compressed."""
        self._sha.update(cut.data)
        self._next = cut.next

    def add(self, waiting: _Waiting) -> Buffer:
        """Enter the next frame, and return its bytes. Its room is given back."""
        try:
            frame = waiting.making.result()
        finally:
            AHEAD.give_back(waiting.room)
        cut, body = waiting.cut, memoryview(frame.body)
        if cut.inner:
            self._inner.append(len(self._frames))
        checksums = (frame.crc, content_checksum(body), frame.stored)
        facts = (cut.first, cut.records, cut.lowest, cut.highest, *checksums)
        self._frames.append(SealedFrame(self._size, len(body), self._length, len(cut.data), *facts))
        self._crc = combine(self._crc, frame.crc, len(cut.data))
        self._size += len(body)
        self._length += len(cut.data)
        return body

    def footer(self) -> SealedFooter:
        """The footer, once all pieces are taken and added. DivergedError if the bytes are not the promised ones."""
        segment, claim, frames = self._segment, self._segment.claim, self._frames
        if segment.crc not in (None, self._crc):
            reason = f"its bytes are not those that were shipped: CRC-32C is {self._crc:#010x}, not {segment.crc:#010x}"
            raise DivergedError(segment.path or segment.file, reason)
        lowests = [frame.lowest for frame in frames if frame.lowest is not None]
        highests = [frame.highest for frame in frames if frame.highest is not None]
        records = sum(frame.records for frame in frames)
        return SealedFooter(
            log=claim.log,
            format=claim.format,
            generation=claim.generation,
            owner=claim.owner,
            index=segment.index,
            file=segment.file,
            length=self._length,
            first=frames[0].first if records else None,
            next=self._next,
            records=records,
            lowest=min(lowests, default=None),
            highest=max(highests, default=None),
            crc=self._crc,
            digest=self._sha.hexdigest(),
            previous=segment.previous,
            marks=segment.marks.through(self._length, segment.shipped),
            frames=FrameTable.of(frames, self._inner),
            codec=self._codec,
        )
