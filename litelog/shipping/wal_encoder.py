"""Encodes WAL segments: reads runs of a log and compresses them, one ahead of the requested run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from litelog.codec.lz4_frames import compress_frame, compress_frames, cut_frames
from litelog.dataclass import dataclass
from litelog.errors import LitelogError, SourceSyncError
from litelog.formats import MAX_COMMIT_BYTES
from litelog.objects import wal_segment
from litelog.objects.wal_segment import WalHeader
from litelog.system.buffers import RUNS, Portion, Share

if TYPE_CHECKING:
    from concurrent.futures import Future

    from litelog.log.follower import Follower
    from litelog.log.source_position import CommitRun, SourcePosition
    from litelog.objects.claim import Claim
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.shipping.context import ReplicaContext

CONCURRENT_BYTES = 4 << 20
"""Shorter runs are compressed in the calling thread: on a busy machine it may finish before another thread starts."""

LEAST_BYTES = 256 << 10
"""How much is read of a log where the process has no room for more (``RUNS``)."""


@dataclass(frozen=True, slots=True)
class EncodedWalSegment:
    """A WAL segment that is ready to be put. A retry sends the same bytes. The log's own bytes are released."""

    start: SourcePosition
    after: SourcePosition
    """The position at which the next run starts."""
    header: WalHeader
    body: list[bytes]
    digest: str
    more: bool
    """Whether bytes followed it when it was read."""
    sealed: SnapshotEntry | None = None
    """The sealed segment that it stands for, if any."""
    share: Share | None = None
    """Its room, until ``release``; None: it is too small to count."""

    def release(self) -> None:
        """Give back its room. Idempotent."""
        if self.share is not None:
            self.share.give_back()

    @property
    def end(self) -> int:
        """The offset in its log segment before which the replica holds every byte once it is durable."""
        return self.header.end if self.sealed is None else self.sealed.length

    @property
    def size(self) -> int:
        """The size of the object in bytes."""
        return sum(map(len, self.body))


@dataclass(frozen=True, slots=True)
class _Read:
    """A run whose frames are being compressed."""

    run: CommitRun
    frames: list[Future[bytes]] | list[bytes]
    share: Share

    def wait(self) -> list[bytes]:
        return [frame if isinstance(frame, bytes) else frame.result() for frame in self.frames]


class WalEncoder:
    """Makes a generation's WAL segments from the runs of a log. Used by one thread at a time.

    If runs are large, the next one is read while threads compress. At most two are in memory, and after a
    commit of more than MAX_COMMIT_BYTES one. All encoders of a process share the room for them (``RUNS``).
    """

    def __init__(self, context: ReplicaContext, claim: Claim, follower: Follower) -> None:
        self._follower = follower
        self._claim = claim
        self._compressing = context.workers.compressing
        self._clock = context.clock
        self._limit = context.settings.max_segment_bytes
        self._portion = Portion(RUNS)
        self._ahead: _Read | None = None
        self._failure: LitelogError | None = None

    @property
    def pending_bytes(self) -> int:
        """How many bytes of the log were read ahead."""
        return len(self._ahead.run.data) if self._ahead is not None else 0

    def next(self, previous: str, shipped: int) -> EncodedWalSegment | None:
        """Return the next WAL segment; None if the log has nothing new. Raises what the follower raises.

        ``previous``: the digest of the object before it; ``shipped``: when that one was shipped, in microseconds since
        1970.
        """
        read = self._ahead or self._read()
        self._ahead = None
        if read is None:
            return None
        length = len(read.run.data)
        if read.run.more and length <= MAX_COMMIT_BYTES and self.is_bulk(length, final=read.run.final):
            self._read_ahead()
        try:
            encoded = self._encode(read, previous, shipped)
        except BaseException:
            read.share.give_back()
            raise
        del read  # releases the log's bytes before their frames are joined
        return encoded if encoded.size < CONCURRENT_BYTES // 4 else _join(encoded)

    def _encode(self, read: _Read, previous: str, shipped: int) -> EncodedWalSegment:
        run = read.run
        header = make_header(self._claim, run, previous, max(self._clock.now(), shipped))
        body = wal_segment.assemble(header, read.wait())
        read.share.resize(sum(map(len, body)))
        return EncodedWalSegment(
            run.start, run.after, header, body, wal_segment.digest(body), run.more, share=read.share
        )

    def may_read_on(self) -> bool:
        """Whether the next run is read already, or there is room for a large one."""
        return self._ahead is not None or self._portion.has_room(_room_for(self._limit))

    @property
    def failed(self) -> bool:
        """Whether ``next`` will raise once the run that was read ahead is taken."""
        return self._failure is not None and self._ahead is None

    def postpone(self, error: LitelogError) -> None:
        """Make the next call of ``next`` raise ``error``."""
        self._failure = error

    def is_bulk(self, length: int, *, final: bool) -> bool:
        """Whether enough data probably follows a run that reading ahead saves time: the run is long, or it is its log
        segment's last run (whose length says nothing)."""
        return final or length >= self._limit // 2

    def rewind(self, place: SourcePosition) -> None:
        """Continue at ``place``, and read again what was read ahead. Raises a pending fsync failure: the kernel reports
        it only once."""
        failure, self._failure = self._failure, None
        self.close()
        self._follower.rewind(place)
        if isinstance(failure, SourceSyncError):
            raise failure

    def close(self) -> None:
        """Release what was read ahead. Idempotent."""
        if self._ahead is not None:
            self._ahead.share.give_back()
            self._ahead = None

    def _read(self) -> _Read | None:
        """Read the next run: a smaller one, if there is no room for a large one."""
        limit = self._limit
        while (share := self._portion.try_take(_room_for(limit))) is None:
            if limit <= LEAST_BYTES:
                share = self._portion.take_anyway(_room_for(limit))
                break
            limit = max(LEAST_BYTES, limit // 2)
        return self._read_into(share, limit)

    def _read_into(self, share: Share, limit: int) -> _Read | None:
        """Read the next run, for which room is taken. It is given back if there is no run."""
        read = None
        try:
            read = self._find(share, limit)
        finally:
            if read is None:
                share.give_back()
        return read

    def _find(self, share: Share, limit: int) -> _Read | None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        run = self._follower.next_run(limit)
        if run is None:
            return None
        share.resize(_room_for(len(run.data)))
        if len(run.data) < CONCURRENT_BYTES:
            return _Read(run, compress_frames(run.data), share)
        return _Read(run, [self._compressing.submit(compress_frame, piece) for piece in cut_frames(run.data)], share)

    def _read_ahead(self) -> None:
        """Read the next run, if there is room. Keep an error for the call of ``next`` that comes to it."""
        share = self._portion.try_take(_room_for(self._limit))
        if share is None:
            return
        try:
            self._ahead = self._read_into(share, self._limit)
        except LitelogError as error:
            self._failure = error


def _join(encoded: EncodedWalSegment) -> EncodedWalSegment:
    """The same in one buffer: a client that sends one would join the buffers, and both would be in memory."""
    return replace(encoded, body=[b"".join(encoded.body)])


def _room_for(length: int) -> int:
    """The bytes that a run takes while it is compressed, usually to less than half."""
    return length + length // 2


def make_header(claim: Claim, run: CommitRun, previous: str, shipped: int) -> WalHeader:
    """Return the header of the WAL segment that holds a run.

    Args:
        claim: The claim of its generation.
        run: The run.
        previous: The digest of the object before it in the generation.
        shipped: When it is shipped, in microseconds since 1970.
    """
    start = run.start
    header = WalHeader.of(claim, start.index, start.offset, run.scan, previous=previous, shipped=shipped)
    return replace(
        header,
        length=len(run.data),
        file=start.file,
        next=run.end.sequence,
        crc=run.crc,
        crc_total=run.end.crc_total,
        final=run.final,
        check_start=run.end.check_start if run.end.check_digest else None,
        check_digest=run.end.check_digest or None,
    )
