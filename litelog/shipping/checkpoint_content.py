"""Collects the content of a replica's next checkpoint: the log segments since the one before, and their digests.

Nothing is read that an earlier checkpoint states, except for the newest log segment: its digest is continued while the
daemon runs, and made again after a restart.
"""

from __future__ import annotations

import hashlib
from itertools import count, takewhile
from typing import TYPE_CHECKING

from litelog.codec.checksum import crc32c
from litelog.dataclass import dataclass
from litelog.errors import CorruptionError, NotFoundError, SourceError
from litelog.log.source import SegmentFolder
from litelog.objects.checkpoint import CheckpointSegment
from litelog.objects.claim import Relation
from litelog.reading.contents import find_snapshot
from litelog.reading.generations import read_claim_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from litelog.objects.checkpoint import Checkpoint
    from litelog.objects.claim import Claim
    from litelog.shipping.archive_state import ArchiveState, ShippedSegment
    from litelog.shipping.context import ReplicaContext
    from litelog.shipping.state import Running

READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class AcknowledgedSegment:
    """A log segment that is acknowledged up to ``length``."""

    index: int
    file: str
    length: int
    crc: int
    """CRC-32C of these bytes."""
    digest: str | None
    """Their SHA-256; None if it is made from the log."""


@dataclass(frozen=True, slots=True)
class NextContent:
    """The content of the next checkpoint. The log segments may be more than one checkpoint takes."""

    segments: Sequence[AcknowledgedSegment]
    reason: str | None
    """Why the history begins again; None if ``segments`` begin with the last log segment of the checkpoint before."""


class CheckpointContent:
    """Finds what the checkpoints of one log and replica state. Used by one thread at a time."""

    def __init__(self, context: ReplicaContext) -> None:
        source = context.source
        self._client = context.client
        self._folder = SegmentFolder(
            source.folder, source.format, context.clock, reports=False, failed_syncs=source.failed_syncs
        )
        self._place = source.folder
        self._newest = _RunningDigest("")
        self._own: dict[int, AcknowledgedSegment] = {}
        """By index: what this process sealed since the newest checkpoint. Unlike a snapshot, no other program can
        exchange it."""

    def note_sealed(self, segments: Iterable[ShippedSegment]) -> None:
        """Remember log segments that a snapshot is about to name, until a checkpoint states them. Any thread may call
        it."""
        self._own.update((each.index, _acknowledged(each)) for each in segments)

    def find(self, before: Checkpoint | None, state: Running, archive: ArchiveState) -> NextContent:
        """Find what the checkpoint after ``before`` states. At most a listing and a GET, and a GET for each generation
        that began since.

        Args:
            before: The newest checkpoint; None if there is none.
            state: What is acknowledged.
            archive: What is sealed, read after ``state``.

        Raises:
            StoreError, CorruptionError: The replica cannot be read.
        """
        if before is None:
            return NextContent(self._held(0, state, archive), None)
        reason = self._why_not_continued(before, state.claim)
        if reason is None:
            is_own = before.position.generation == state.claim.generation
            if is_own:
                for index in [index for index in self._own.copy() if index < before.position.index]:
                    del self._own[index]
            held = self._held(before.position.index if is_own else 0, state, archive)
            last = before.segments[-1]
            at = next((at for at, each in enumerate(held) if each.file == last.file), None)
            if at is not None and held[at].length >= last.length:
                return NextContent(held[at:], None)
            reason = f"the replica no longer holds {last.length} bytes of {last.file}"
        return NextContent(self._held(0, state, archive), reason)

    def state(self, held: AcknowledgedSegment) -> CheckpointSegment:
        """State a log segment. Reads it from the log if no sealed segment has it. Raises SourceError if the log does
        not hold these bytes any more."""
        if held.digest is not None:
            return CheckpointSegment(held.file, held.length, held.digest)
        running = self._newest
        if running.file != held.file or running.length > held.length:
            running = _RunningDigest(held.file)
        self._newest = _RunningDigest("")
        try:
            with self._folder.open(held.file) as opened:
                while running.length < held.length:
                    piece = opened.read(running.length, min(READ_BYTES, held.length - running.length))
                    if not piece:
                        break
                    running.add(piece)
        except FileNotFoundError:
            raise SourceError(f"{self._place}: {held.file} is gone: no checkpoint can state it yet") from None
        if (running.length, running.crc) != (held.length, held.crc):
            raise SourceError(f"{self._place}: {held.file} no longer holds the bytes that were shipped from it")
        self._newest = running
        return CheckpointSegment(held.file, held.length, running.digest())

    def _why_not_continued(self, before: Checkpoint, claim: Claim) -> str | None:
        """Why a generation does not continue the history of a checkpoint; None if it does."""
        wanted = before.position.generation
        while claim.generation != wanted:
            if claim.relation is not Relation.CONTINUES or claim.predecessor is None or claim.merges:
                return f"generation {claim.generation}: {claim.reason or 'does not continue ' + wanted}"
            try:
                claim = read_claim_of(self._client, claim.predecessor, claim)
            except (NotFoundError, CorruptionError) as error:
                return f"generation {claim.generation}: it cannot be shown that it continues {wanted}: {error}"
        return None

    def _held(self, since: int, state: Running, archive: ArchiveState) -> list[AcknowledgedSegment]:
        """The log segments from index ``since`` on that are acknowledged, up to the first unknown one."""
        found = {each.index: each for each in self._named(since, state, archive) if each.index < state.place.index}
        place = state.place
        if place.offset:
            found[place.index] = AcknowledgedSegment(place.index, place.file, place.offset, place.crc_total, None)
        first = max(since, min(found, default=since))
        if first > since >= (archive.snapshot or 0):
            raise SourceError(f"{self._place}: log segment {since} is not sealed yet: the next checkpoint waits for it")
        return [found[index] for index in takewhile(found.__contains__, count(first))]

    def _named(self, since: int, state: Running, archive: ArchiveState) -> Iterator[AcknowledgedSegment]:
        """Yield sealed and finished log segments from ``since`` on, those of this process last."""
        own = self._own.copy()
        if archive.snapshot is None or not all(index in own for index in range(since, archive.snapshot)):
            snapshot = find_snapshot(self._client, state.claim)
            for entry in snapshot.segments if snapshot is not None else ():
                yield AcknowledgedSegment(entry.index, entry.file, entry.length, entry.crc, entry.digest)
        yield from own.values()
        yield from map(_acknowledged, archive.finished)


def _acknowledged(shipped: ShippedSegment) -> AcknowledgedSegment:
    digest = None if shipped.sealed is None else shipped.sealed.digest
    return AcknowledgedSegment(shipped.index, shipped.file, shipped.length, shipped.crc, digest)


class _RunningDigest:
    """The digests of the beginning of a file, which is continued as the file grows."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.length = self.crc = 0
        self._sha = hashlib.sha256()

    def add(self, piece: bytes) -> None:
        self._sha.update(piece)
        self.crc = crc32c(piece, self.crc)
        self.length += len(piece)

    def digest(self) -> str:
        return self._sha.copy().hexdigest()
