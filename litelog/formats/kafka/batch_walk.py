"""The walk over Kafka's record batches: where whole ones lie in a buffer, and what follows the last one.

Offsets may jump: compaction removes records, and followers of a compacted topic receive it with the gaps. They never
go back. Specified in litelog/formats/README.md#kafka.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np

from litelog.codec.checksum import crc32c
from litelog.dataclass import dataclass
from litelog.errors import WrongFormatError
from litelog.formats.commit_tail import check_tail
from litelog.formats.frame_chain import find_frames
from litelog.formats.kafka.batch_header import (
    APPEND_TIME,
    CHECKED_FROM,
    CHECKSUM_AT,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    LENGTH_AT,
    LENGTH_END,
    MAGIC,
    MAGIC_AT,
    MAX_MILLISECONDS,
    MAX_OFFSET,
    MAX_SEGMENT_OFFSETS,
    MIN_LENGTH,
    NO_EPOCH,
    RecordBatch,
    RecordBatches,
)
from litelog.formats.log_format import MAX_COMMIT_BYTES, Damage, Expectation, Tail
from litelog.native import walks
from litelog.native.batch_rows import BatchTotals, take_batches
from litelog.native.layouts import Checksum, FrameLayout

if TYPE_CHECKING:
    import numpy.typing as npt

    from litelog.native.batch_rows import TakenBatches

    Bools = npt.NDArray[np.bool_]

MAX_LENGTH = MAX_COMMIT_BYTES - LENGTH_END
SEARCH_CHUNK_BYTES = 1 << 20  # temporary arrays stay small
SEARCH_LIMIT_BYTES = 1 << 30
"""How many bytes a search may checksum. Hostile bytes can hold a plausible header at every byte."""

_MOST_STATED = (1 << 31) - 1
_LAYOUT = FrameLayout(
    length_at=LENGTH_AT,
    is_big_endian=True,
    other_bytes=LENGTH_END,
    fewest_bytes=HEADER_BYTES,
    most_bytes=LENGTH_END + _MOST_STATED,
    checksum=Checksum.CRC32C,
    checked_from=CHECKED_FROM,
    checksum_at=CHECKSUM_AT,
)

_OLD_CHECKED_FROM = 16
_OLD_CHECKSUM = struct.Struct(">I")


@dataclass(slots=True)
class BatchWalk:
    """Whole batches. Places are in the buffer."""

    data: memoryview
    bounds: npt.NDArray[np.int64]
    """Where each batch begins, and where the last one ends."""
    totals: BatchTotals
    rows: TakenBatches | None = None
    """The rows of their records, and maybe of more; None if they were not asked for, or not taken."""
    tail: Tail = Tail.NOTHING
    damage: Damage | None = None
    wanted: int = 0

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def end(self) -> int:
        """Where the last batch ends."""
        return int(self.bounds[-1])

    @property
    def batches(self) -> RecordBatches:
        """The headers, which are read now."""
        return RecordBatches.read(self.data, self.bounds[:-1])


def walk(
    name: str,
    data: memoryview,
    offset: int,
    expect: Expectation,
    limit: int = MAX_OFFSET,
    *,
    with_rows: bool = False,
) -> BatchWalk:
    """Walk over ``data``, which starts at byte ``offset`` of log segment ``name``, where a batch begins.

    Args:
        name: The log segment, for errors.
        data: A piece of it.
        offset: Where ``data`` starts in it, in bytes.
        expect: The lowest offset and epoch that the first batch may have.
        limit: The highest Kafka offset that the log segment may hold.
        with_rows: Take the rows of records in the same pass, if that can be done.

    Returns:
        The batches whose header and checksum are right, up to the first that is not.

    Raises:
        CorruptCommitError: A bad batch is followed by a good one.
        SequenceGapError: A whole batch has a lower offset than may follow the batch before it.
        WrongFormatError: The bytes are message sets of version 0 or 1.
    """
    found = _find_whole(data, expect, limit, with_rows=with_rows)
    position = found.end
    _refuse_old(name, data[position:])
    following = Expectation(found.totals.next if len(found) else expect.sequence, found.totals.epoch)
    rest = check_tail(_Frame(limit), name, data, offset, position, following, _checksums)
    found.tail, found.damage, found.wanted = rest.tail, rest.damage, rest.wanted
    return found


def _find_whole(data: memoryview, expect: Expectation, limit: int, *, with_rows: bool) -> BatchWalk:
    """The batches at the front of ``data`` that are there as a whole, with a right checksum, and follow each other."""
    taken = take_batches(data, _LAYOUT, (expect.sequence or 0, limit, expect.epoch), with_rows=with_rows)
    if taken is not None and taken.totals is not None:
        bounds, totals = taken.bounds, taken.totals
    else:
        bounds = find_frames(data, 0, _LAYOUT) if taken is None else taken.bounds
        batches = RecordBatches.read(data, bounds[:-1])
        good = _are_plausible(batches, expect, limit)
        if not good.all():
            count = int(good.argmin())
            batches, bounds = batches.take(slice(0, count)), bounds[: count + 1]
        totals = _add_up(batches, expect)
    rows = taken if taken is not None and taken.taken >= len(bounds) - 1 else None
    return BatchWalk(data, bounds, totals, rows if with_rows else None)


def _add_up(batches: RecordBatches, expect: Expectation) -> BatchTotals:
    """What the headers say together."""
    if not len(batches):
        return BatchTotals(expect.sequence or 0, expect.epoch, 0, 0, -1, has_older=False)
    records = batches.get("records")
    filled = batches if (records > 0).all() else batches.take(records > 0)
    times = np.clip(filled.get("highest_time"), -MAX_MILLISECONDS, MAX_MILLISECONDS)
    one_time = filled.have(APPEND_TIME) | ((filled.get("records") == 1) & ~filled.have(DELETE_HORIZON))
    return BatchTotals(
        next=int(batches.last[-1]) + 1,
        epoch=max(expect.epoch, int(batches.get("epoch").max())),
        records=int(np.maximum(records, 1).sum()),
        earliest=int(times.min()) if len(times) else 0,
        latest=int(times.max()) if len(times) else -1,
        has_older=not one_time.all(),
    )


def _are_plausible(batches: RecordBatches, expect: Expectation, limit: int) -> Bools:
    """As ``_is_plausible``, for batches that follow each other: which of them may be next after those before."""
    bases, deltas, epochs, last = (batches.get("base"), batches.get("last_delta"), batches.get("epoch"), batches.last)
    records = batches.get("records")
    good: Bools = (batches.get("magic") == MAGIC) & (batches.get("length") <= MAX_LENGTH)
    good &= (bases >= (expect.sequence or 0)) & (deltas >= 0) & (deltas <= limit - bases)
    good &= (records >= 0) & (records <= deltas + 1)
    good[1:] &= bases[1:] > last[:-1]
    newest = np.maximum.accumulate(np.concatenate([[expect.epoch], epochs]))[:-1]
    good &= (epochs >= newest) | (epochs == NO_EPOCH)
    return good


def find_batch(data: memoryview, start: int, expect: Expectation, exact: int | None = None) -> int | None:
    """Find the place of a good batch from ``start`` on whose offset may follow.

    ``exact``: only a batch that certainly continues the log, and does not lie in a record. It has that offset. Or it
    has a higher offset, and the bytes end with it, or another batch follows it.
    """
    stop = len(data) - HEADER_BYTES + 1
    lowest = expect.sequence or 0
    limit = MAX_OFFSET if expect.sequence is None else min(lowest + MAX_SEGMENT_OFFSETS, MAX_OFFSET)
    budget = SEARCH_LIMIT_BYTES
    for begin in range(start, stop, SEARCH_CHUNK_BYTES):
        for at in _select_plausible(data, begin, min(begin + SEARCH_CHUNK_BYTES, stop)):
            batch = RecordBatch.read(data, at)
            if not _is_plausible(batch, lowest if exact is None else exact, expect.epoch, limit):
                continue
            total = batch.length + LENGTH_END
            if exact is not None and batch.base != exact and not _is_chained(data, at + total, batch, limit):
                continue
            budget -= total
            # Over the limit, a batch counts as found: a person sees that error, but a tail would be cut off silently.
            if budget < 0 or crc32c(data[at + CHECKED_FROM : at + total]) == batch.checksum:
                return at
    return None


def _is_plausible(batch: RecordBatch, lowest: int, epoch: int, limit: int) -> bool:
    """Whether a header's fields are those of a batch that may be next."""
    return (
        batch.magic == MAGIC
        and MIN_LENGTH <= batch.length <= MAX_LENGTH
        and batch.base >= lowest
        and 0 <= batch.last_delta <= limit - batch.base
        and 0 <= batch.records <= batch.last_delta + 1
        and (batch.epoch >= epoch or batch.epoch == NO_EPOCH)
    )


def _is_chained(data: memoryview, end: int, batch: RecordBatch, limit: int) -> bool:
    """Whether the bytes end at ``end``, where ``batch`` does, or a batch begins there that continues it."""
    if len(data) - end < HEADER_BYTES:
        return end == len(data)
    return _is_plausible(RecordBatch.read(data, end), batch.next, batch.epoch, limit)


def _select_plausible(data: memoryview, begin: int, end: int) -> list[int]:
    """The places from ``begin`` to ``end`` at which a batch may begin, by its magic, length, offset and counts."""
    known = walks.find_headers(data, begin, end)
    if known is not None:
        return known
    bytes_ = np.frombuffer(data, np.uint8)
    places = np.flatnonzero(bytes_[begin + MAGIC_AT : end + MAGIC_AT] == MAGIC) + begin
    places = places[bytes_[places] < 0x80]
    halves = np.ndarray((len(data) - 3,), ">i4", data, strides=(1,))
    lengths = halves[places + 8].astype(np.int64)
    places = places[(lengths >= MIN_LENGTH) & (lengths + LENGTH_END <= len(data) - places)]
    last, counts = halves[places + 23].astype(np.int64), halves[places + 57]
    places = places[(last >= 0) & (counts >= 0) & (counts <= last + 1)]
    found: list[int] = places.tolist()
    return found


def _refuse_old(name: str, data: memoryview) -> None:
    """Raise WrongFormatError if ``data`` begins with a message of version 0 or 1, as its checksum shows."""
    if len(data) > MAGIC_AT and data[MAGIC_AT] in {0, 1}:
        total = LENGTH_END + int.from_bytes(data[8:LENGTH_END], "big", signed=True)
        if _OLD_CHECKED_FROM < total <= len(data):
            (stated,) = _OLD_CHECKSUM.unpack_from(data, LENGTH_END)
            if zlib.crc32(data[_OLD_CHECKED_FROM:total]) == stated:
                old = f"it holds messages of version {data[MAGIC_AT]}, as before Kafka 0.11"
                raise WrongFormatError(name, "kafka", f"{old}; only record batches (version 2) are read")


def _checksums(data: memoryview, position: int, total: int) -> tuple[int, int]:
    """The checksum of a batch, and the checksum that its header states."""
    return crc32c(data[position + CHECKED_FROM : position + total]), RecordBatch.read(data, position).checksum


@dataclass(frozen=True, slots=True)
class _Frame:
    """How the tail of a piece is checked."""

    limit: int
    min_commit_bytes: int = HEADER_BYTES
    prefix_bytes: int = HEADER_BYTES

    def measure(self, data: memoryview, position: int) -> tuple[int, int, int]:
        batch = RecordBatch.read(data, position)
        return batch.base, batch.next, batch.length + LENGTH_END

    def find_fault(self, data: memoryview, offset: int, position: int, expect: Expectation) -> Damage | None:
        head = bytes(data[position : position + HEADER_BYTES])
        known = len(head)
        batch = RecordBatch._make(HEADER.unpack(head.ljust(HEADER_BYTES, b"\0")))
        lowest = expect.sequence or 0
        if known == HEADER_BYTES and _is_plausible(batch, lowest, expect.epoch, self.limit):
            return None
        highest = int.from_bytes(head[:8].ljust(8, b"\xff"), "big", signed=True)  # that it may become with its rest
        spare, records = self.limit - batch.base, batch.records
        follows = batch.epoch >= expect.epoch or batch.epoch == NO_EPOCH
        checks: tuple[tuple[int, str, object, object, bool], ...] = (
            (1, "sequence", f"{lowest} or above", highest, highest >= lowest),
            (8, "sequence", f"up to {self.limit}", batch.base, batch.base <= self.limit),
            (12, "length", f"{MIN_LENGTH} to {MAX_LENGTH}", batch.length, MIN_LENGTH <= batch.length <= MAX_LENGTH),
            (16, "epoch", f"{expect.epoch} or higher", batch.epoch, follows),
            (17, "magic", MAGIC, batch.magic, batch.magic == MAGIC),
            (27, "last offset delta", f"0 to {spare}", batch.last_delta, 0 <= batch.last_delta <= spare),
            (61, "number of records", f"0 to {batch.last_delta + 1}", records, 0 <= records <= batch.last_delta + 1),
        )
        for needed, what, wanted, actual, good in checks:
            if known >= needed and not good:
                return Damage(offset + position, what, wanted, actual)
        return None

    def find_commit(self, data: memoryview, position: int, expect: Expectation, exact: int | None = None) -> int | None:
        return find_batch(data, position + 1, expect, exact)
