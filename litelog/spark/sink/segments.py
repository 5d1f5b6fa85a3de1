"""Encodes Arrow record batches as commits of litelog's own format, and writes these as sealed segments, in tasks.

No loop runs per record. Each attempt of a task writes under its own keys.
"""

from __future__ import annotations

from collections import deque
from random import SystemRandom
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np

from litelog.codec.checksum import crc32c
from litelog.codec.frame_codecs import Compression
from litelog.dataclass import dataclass
from litelog.errors import ConfigError, ExistsError, StoreError
from litelog.formats import MAX_COMMIT_BYTES, Expectation
from litelog.formats.litelog import LitelogFormat, SegmentHeader, segment_name
from litelog.formats.litelog.encoding import CHECKSUM_BYTES, MAX_RECORDS, encode_columns
from litelog.objects.layout import sealed_key
from litelog.objects.sealed_encoding import FinishedSegment, Sealing
from litelog.objects.snapshot_entries import SnapshotEntry, make_entry
from litelog.shipping.sealer import read_sealed_footer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Executor

    from litelog.objects.claim import Claim
    from litelog.objects.sealed_encoding import Read
    from litelog.stores.replica_client import ReplicaClient
    from litelog.system.clock import Clock

SEGMENTS_OF_TASK = 1 << 20
"""How many sealed segments one attempt of a task may write: the distance between the first indexes of two attempts."""

ATTEMPTS = 1 << 22
"""How many attempts of tasks one write may have."""

WRITES = 1 << 21
"""Numbers of writes. Several that run at once may write into the same generation, each under a random number."""


def new_write() -> range:
    """The indexes of the sealed segments of a new write's tasks. No log segment has an index that high."""
    number, size = 1 + SystemRandom().randrange(WRITES - 1), ATTEMPTS * SEGMENTS_OF_TASK
    return range(number * size, (number + 1) * size)


@dataclass(frozen=True, slots=True)
class StagingGeneration:
    """Values common to all log segments of a write."""

    claim: Claim
    """The claim of the generation into which tasks write. A later generation names the objects."""
    epoch: int
    """Epoch of the commits: the newest one in the log, if it is continued."""
    time: int
    """Microseconds since 1970: the timestamp of records without one, and the creation time of log segments."""
    indexes: range
    """The indexes of the tasks' sealed segments in that generation."""
    compression: Compression = Compression.LZ4


class SegmentWriter:
    """Writes the records of one attempt of a task. Uses memory for one log segment and one commit."""

    def __init__(
        self,
        client: ReplicaClient,
        staging: StagingGeneration,
        first: int,
        attempt: int,
        segment_bytes: int,
        executor: Executor,
    ) -> None:
        """``first``: sequence of the first record. ``attempt``: a number unique among all attempts of all tasks."""
        self._client = client
        self._staging = staging
        self._next = first
        self._index = staging.indexes.start + attempt % ATTEMPTS * SEGMENTS_OF_TASK
        self._segment_bytes = segment_bytes
        self._executor = executor
        self._held = bytearray()
        self._held_first = first
        self.entries: list[SnapshotEntry] = []
        """Entries of durable log segments, with the indexes of the sealed segments."""

    def write(self, batches: Iterable[Any], clock: Clock) -> int:
        """Write all batches. Returns the number of records. Raises ValueError for an unfit record, and StoreError."""
        started = self._next
        for batch in batches:
            for commit, records in encode_batch(
                batch, self._next, self._staging.epoch, self._staging.time, min(COMMIT_BYTES, self._segment_bytes)
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
        self._held += SegmentHeader(UUID(self._staging.claim.log), self._next, self._staging.time).encode()

    def _seal(self, clock: Clock) -> None:
        file = segment_name(self._held_first)
        staging = self._staging
        entry = put_sealed(
            self._client,
            staging.claim,
            self._index,
            file,
            bytes(self._held),
            clock,
            self._executor,
            compression=staging.compression,
        )
        self.entries.append(entry)
        self._index += 1
        self._held = bytearray()


def put_sealed(
    client: ReplicaClient,
    claim: Claim,
    index: int,
    file: str,
    data: bytes,
    clock: Clock,
    executor: Executor | None = None,
    *,
    compression: Compression = Compression.LZ4,
) -> SnapshotEntry:
    """Put a log segment of the litelog format as a sealed segment of the claim's generation. Returns its entry.

    If the key exists, it is the caller's own put, whose answer was lost. Raises StoreError, also if another write has
    drawn the same number and put other bytes there.
    """
    held = memoryview(data)

    def read(offset: int, length: int) -> bytes:
        return bytes(held[offset : offset + length])

    segment = FinishedSegment(claim, index, file, len(data), clock.now())
    return put_finished(client, segment, read, executor, compression=compression)


def put_finished(
    client: ReplicaClient,
    segment: FinishedSegment,
    read: Read,
    executor: Executor | None = None,
    *,
    compression: Compression = Compression.LZ4,
) -> SnapshotEntry:
    """As ``put_sealed``, for bytes that ``read`` returns as they are needed. Also raises what ``read`` raises."""
    sealing = Sealing(segment, read, LitelogFormat(), executor, compression=compression)
    try:
        client.write_sealed_segment(segment.claim.generation, segment.index, sealing)
    except ExistsError:
        deque(sealing, maxlen=0)
        name, index = segment.claim.generation, segment.index
        if read_sealed_footer(client, name, index)[0].digest != sealing.footer.digest:
            key = sealed_key(name, index)
            raise StoreError("put", key, "another write has put other bytes there", retryable=False) from None
    return make_entry(sealing.footer, sealing.size)


def renumbered(name: str, data: bytes, first: int) -> bytes:
    """A log segment's bytes, with its records numbered from ``first`` on."""
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


COMMIT_BYTES = 2 << 20
"""The most bytes in a commit, and in a frame of a sealed segment. A batch of Spark's (10,000 rows) with up to 200 bytes
a row is one commit, which can be read without a copy."""

TYPES = {
    "value": ("binary", "string"),
    "key": ("binary", "string", "void"),
    "timestamp": ("timestamp", "timestamp_ntz"),
}
"""The columns of a record, and their types as Spark writes them. ``value`` is required."""


def check_columns(schema: Any) -> None:
    """Raise ConfigError if a DataFrame with ``schema`` (a StructType) cannot be written as a log."""
    kinds = {str(field.name): str(field.dataType.simpleString()) for field in schema.fields}
    names = [str(field.name) for field in schema.fields]
    if "value" not in names:
        raise ConfigError("a log needs a column named value (binary or string), and may have key and timestamp")
    if foreign := [name for name in names if name not in TYPES]:
        what = "litelog assigns new sequences: drop it" if foreign[0] == "sequence" else "drop it, or put it into value"
        raise ConfigError(f"column {foreign[0]}: a record has value, key and timestamp; {what}")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"column {twice[0]} appears twice, as after a join: drop one of them")
    for name, kind in kinds.items():
        fit = TYPES[name]
        if kind.partition(" ")[0] not in fit:  # "string collate NAME" is a string, too
            like = f"{fit[0].upper()} or {fit[1].upper()}"
            raise ConfigError(f"column {name} is {kind.upper()}, not {like}: cast it in Spark")


def check_values(column: Any) -> None:
    """Raise ValueError if a value is null."""
    if column.null_count:
        raise ValueError("a value is null: a record without a value cannot be written; fill it, or drop the row")


def encode_batch(
    batch: Any, first: int, epoch: int, now: int, commit_bytes: int = COMMIT_BYTES
) -> Iterator[tuple[bytearray, int]]:
    """Encode all records of a pyarrow.RecordBatch, numbered from ``first`` on. Yields (commit, number of its records).

    A commit holds about ``commit_bytes``, and at least one record. ``now``, in microseconds since 1970, is the
    timestamp of records without one. Raises ValueError for a null or an oversized value.
    """
    import pyarrow  # noqa: PLC0415 - an extra

    named = dict(zip(batch.schema.names, batch.columns, strict=True))
    value_lengths, value_data = _binary(pyarrow, named["value"])
    check_values(named["value"])
    key_lengths, key_data = _binary(pyarrow, named["key"]) if "key" in named else (None, memoryview(b""))
    stamps = _stamps(pyarrow, named.get("timestamp"), now, len(batch))
    value_ends = np.concatenate([[0], np.cumsum(value_lengths)])
    key_ends = np.zeros_like(value_ends)
    if key_lengths is not None:
        np.cumsum(np.maximum(key_lengths, 0), out=key_ends[1:])
    start = 0
    for stop in _cuts(value_ends + key_ends, commit_bytes):
        part = slice(start, stop)
        keyed = key_lengths is not None and int(key_lengths[part].max()) >= 0
        try:
            commit = encode_columns(
                first + start,
                epoch,
                stamps[part],
                value_lengths[part],
                value_data[value_ends[start] : value_ends[stop]],
                key_lengths[part] if keyed and key_lengths is not None else None,
                key_data[key_ends[start] : key_ends[stop]] if keyed else b"",
            )
        except ValueError as error:
            raise ValueError(f"a record cannot be written: {error} (a commit holds up to {MAX_COMMIT_BYTES})") from None
        yield commit, stop - start
        start = stop


def _cuts(ends: Any, commit_bytes: int) -> Iterator[int]:
    """The records after which a commit ends."""
    start, count = 0, len(ends) - 1
    while start < count:
        wanted = int(np.searchsorted(ends, ends[start] + commit_bytes, side="right")) - 1
        start = min(max(wanted, start + 1), start + MAX_RECORDS, count)
        yield start


def _binary(pyarrow: Any, column: Any) -> tuple[Any, memoryview]:
    """(lengths, -1 for null; contiguous bytes) of a column of binary or text."""
    from pyarrow import compute  # noqa: PLC0415 - an extra

    column = column.cast(pyarrow.binary())
    nulls = None
    if column.null_count:
        nulls = compute.is_null(column).to_numpy(zero_copy_only=False)
        column = compute.fill_null(column, b"")
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    lengths = np.diff(ends)
    if nulls is not None:
        lengths[nulls] = -1
    held = memoryview(b"") if data is None else memoryview(data).cast("B")
    return lengths, held[int(ends[0]) : int(ends[-1])] if len(column) else memoryview(b"")


def _stamps(pyarrow: Any, column: Any, now: int, count: int) -> Any:
    from pyarrow import compute  # noqa: PLC0415 - an extra

    if column is None:
        return np.full(count, now, np.int64)
    found = column.cast(pyarrow.timestamp("us", column.type.tz)).cast(pyarrow.int64())
    return compute.fill_null(found, now).to_numpy(zero_copy_only=False)
