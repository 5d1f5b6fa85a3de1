"""What tasks write: log segments of one partition, sealed, under keys that no other attempt of any task has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from litelog.codec.checksum import crc32c
from litelog.errors import ExistsError
from litelog.formats import Expectation
from litelog.formats.litelog import LitelogFormat, SegmentHeader, segment_name
from litelog.formats.litelog.encoding import CHECKSUM_BYTES
from litelog.objects.position import generation
from litelog.objects.sealed_encoding import FinishedSegment, Sealing
from litelog.objects.snapshot_entries import SnapshotEntry, make_entry
from litelog.spark.sink.record_encoding import COMMIT_BYTES, encode_batch

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Executor

    from litelog.stores.replica_client import ReplicaClient
    from litelog.system.clock import Clock

SEGMENTS_OF_TASK = 1 << 20
"""How many sealed segments one attempt of a task may write: what lies between the indexes of two."""


@dataclass(frozen=True, slots=True)
class Carrier:
    """The generation that carries what tasks write until a later one names it, and what all log segments say."""

    log: str
    owner: str
    generation: str
    epoch: int
    """Of the commits: the log's newest one, where it is continued."""
    time: int
    """Microseconds since 1970: for records without a timestamp, and when the log segments were begun."""


class SegmentWriter:
    """Writes the records of one attempt of a task. Memory: one log segment and a commit."""

    def __init__(
        self, client: ReplicaClient, carrier: Carrier, first: int, attempt: int, segment_bytes: int, executor: Executor
    ) -> None:
        """``first``: the first record's sequence. ``attempt``: a number that no other attempt of any task has."""
        self._client = client
        self._carrier = carrier
        self._next = first
        self._index = attempt * SEGMENTS_OF_TASK
        self._segment_bytes = segment_bytes
        self._executor = executor
        self._held = bytearray()
        self._held_first = first
        self.entries: list[SnapshotEntry] = []
        """Of what is durable; their indexes are those of the sealed segments."""

    def write(self, batches: Iterable[Any], clock: Clock) -> int:
        """Write all of it; how many records that were. ValueError for a record that cannot be written; StoreError."""
        started = self._next
        for batch in batches:
            for commit, records in encode_batch(
                batch, self._next, self._carrier.epoch, self._carrier.time, min(COMMIT_BYTES, self._segment_bytes)
            ):
                if self._held and len(self._held) + len(commit) > self._segment_bytes:
                    self._seal(clock)
                if not self._held:
                    self._begin()
                self._held += commit
                self._next += records
        if self._held:
            self._seal(clock)
        return self._next - started

    def _begin(self) -> None:
        self._held_first = self._next
        self._held += SegmentHeader(UUID(self._carrier.log), self._next, self._carrier.time).encode()

    def _seal(self, clock: Clock) -> None:
        file = segment_name(self._held_first)
        entry = put_sealed(self._client, self._carrier, self._index, file, bytes(self._held), clock, self._executor)
        self.entries.append(entry)
        self._index += 1
        self._held = bytearray()


def put_sealed(
    client: ReplicaClient,
    carrier: Carrier,
    index: int,
    file: str,
    data: bytes,
    clock: Clock,
    executor: Executor | None = None,
) -> SnapshotEntry:
    """Put a log segment of the litelog format as a sealed segment of the carrier's generation; its entry. StoreError.

    The key must be the caller's alone: one that is taken is its own put, whose answer was lost.
    """
    held = memoryview(data)
    segment = FinishedSegment(
        log=carrier.log,
        format=LitelogFormat.name,
        generation=carrier.generation,
        owner=carrier.owner,
        index=index,
        file=file,
        length=len(data),
        crc=None,
        previous="",
        shipped=clock.now(),
    )

    def read(offset: int, length: int) -> bytes:
        return bytes(held[offset : offset + length])

    sealing = Sealing(segment, read, LitelogFormat(), executor)
    try:
        client.write_sealed_segment(generation(carrier.generation), index, sealing)
    except ExistsError:
        for _ in sealing:
            pass
    return make_entry(sealing.footer, sealing.size)


def renumbered(name: str, data: bytes, first: int) -> bytes:
    """A log segment's bytes with its records numbered from ``first`` on."""
    header = SegmentHeader.decode(name, data)
    moved = bytearray(data)
    head = SegmentHeader(header.log_id, first, header.created).encode()
    moved[: len(head)] = head
    for commit in LitelogFormat().commits(name, memoryview(data), 0, Expectation()):
        moved[commit.start : commit.start + 8] = (commit.first - header.first_sequence + first).to_bytes(8, "little")
        with memoryview(moved) as view:
            checksum = crc32c(view[commit.start : commit.end - CHECKSUM_BYTES])
        moved[commit.end - CHECKSUM_BYTES : commit.end] = checksum.to_bytes(CHECKSUM_BYTES, "little")
    return bytes(moved)
