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

if TYPE_CHECKING:
    from concurrent.futures import Future

    from litelog.log.follower import Follower
    from litelog.log.source_position import CommitRun, SourcePosition
    from litelog.objects.claim import Claim
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.shipping.context import ReplicaContext

CONCURRENT_BYTES = 4 << 20
"""Shorter runs are compressed in the calling thread: on a busy machine it may finish before another thread starts."""


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

    def wait(self) -> list[bytes]:
        return [frame if isinstance(frame, bytes) else frame.result() for frame in self.frames]


class WalEncoder:
    """Makes a generation's WAL segments from the runs of a log. Used by one thread at a time.

    If runs are large, the next one is read while threads compress. At most two are in memory, and after a
    commit of more than MAX_COMMIT_BYTES one.
    """

    def __init__(self, context: ReplicaContext, claim: Claim, follower: Follower) -> None:
        self._follower = follower
        self._claim = claim
        self._compressing = context.workers.compressing
        self._clock = context.clock
        self._limit = context.settings.max_segment_bytes
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
        header = make_header(self._claim, read.run, previous, max(self._clock.now(), shipped))
        body = wal_segment.assemble(header, read.wait())
        return EncodedWalSegment(read.run.start, read.run.after, header, body, wal_segment.digest(body), read.run.more)

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
        failure, self._ahead, self._failure = self._failure, None, None
        self._follower.rewind(place)
        if isinstance(failure, SourceSyncError):
            raise failure

    def _read(self) -> _Read | None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        run = self._follower.next_run(self._limit)
        if run is None:
            return None
        if len(run.data) < CONCURRENT_BYTES:
            return _Read(run, compress_frames(run.data))
        return _Read(run, [self._compressing.submit(compress_frame, piece) for piece in cut_frames(run.data)])

    def _read_ahead(self) -> None:
        """Read the next run. Keep an error for the call of ``next`` that comes to it."""
        try:
            self._ahead = self._read()
        except LitelogError as error:
            self._failure = error


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
