"""Messages of InfluxDB's broker: where whole ones lie in a buffer, and what follows the last one.

message, big-endian
 0  4  u32 FNV-1a of everything after it   4  2  u16 type   6  8  u64 topic   14  8  u64 index   22  4  u32 length
26  .  data

Indexes rise, and jump: one count serves all topics of a broker. Specified in litelog/formats/README.md#influxdb.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from litelog.codec.fnv import fnv1a
from litelog.dataclass import dataclass
from litelog.formats.commit_tail import check_tail
from litelog.formats.log_format import MAX_COMMIT_BYTES, MAX_SEQUENCE, Damage, Expectation, Tail

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

HEADER = struct.Struct(">IHQQI")
HEADER_BYTES = HEADER.size
CHECKED_FROM = 4
"""Where the bytes begin that the checksum covers."""

INDEX_AT = 14
LENGTH_AT = 22
INTERNAL = 0x8000
"""The bit of a type that marks a message of the broker itself."""

MAX_DATA_BYTES = MAX_COMMIT_BYTES - HEADER_BYTES

SEARCH_CHUNK_BYTES = 1 << 20  # temporary arrays stay small
SEARCH_LIMIT_BYTES = 1 << 28
"""How many bytes a search may checksum. Hostile bytes can hold a plausible header at every byte."""

_LENGTH = struct.Struct(">I")


@dataclass(slots=True)
class MessageColumns:
    """Whole messages, by their places in the buffer. All arrays have one length."""

    starts: Int64s
    ends: Int64s
    indexes: Int64s
    is_internal: npt.NDArray[np.bool_]
    end: int
    tail: Tail = Tail.NOTHING
    damage: Damage | None = None
    wanted: int = 0

    def __len__(self) -> int:
        return len(self.starts)


def walk(name: str, data: memoryview, offset: int, expect: Expectation) -> MessageColumns:
    """Walk over ``data``, which starts with a message at byte ``offset`` of log segment ``name``.

    Raises CorruptCommitError if a bad message is followed by a good one, and SequenceGapError if indexes do not rise.
    """
    starts, ends = _find_messages(data)
    indexes = _numbers(data, ">u8", starts + INDEX_AT)
    good = fnv1a(data, starts + CHECKED_FROM, ends) == _numbers(data, ">u4", starts)
    good &= indexes <= MAX_SEQUENCE
    if len(starts):
        known = indexes.astype(np.int64)
        good[1:] &= known[1:] > known[:-1]
        good[0] &= known[0] >= (expect.sequence or 0)
    count = len(starts) if good.all() else int(good.argmin())
    found = MessageColumns(
        starts[:count],
        ends[:count],
        indexes[:count].astype(np.int64),
        _numbers(data, ">u2", starts[:count] + CHECKED_FROM) >= INTERNAL,
        int(ends[count - 1]) if count else 0,
    )
    follows = int(found.indexes[-1]) + 1 if count else expect.sequence
    rest = check_tail(FRAME, name, data, offset, found.end, Expectation(follows, expect.epoch), _checksums)
    found.tail, found.damage, found.wanted = rest.tail, rest.damage, rest.wanted
    return found


def _find_messages(data: memoryview) -> tuple[Int64s, Int64s]:
    """Where messages begin and end, by their lengths alone, up to the first that is not there as a whole."""
    at, last = 0, len(data) - HEADER_BYTES
    bounds = [0]
    unpack, found = _LENGTH.unpack_from, bounds.append
    while at <= last:
        (length,) = unpack(data, at + LENGTH_AT)
        at += HEADER_BYTES + length
        if length > MAX_DATA_BYTES or at > len(data):
            break
        found(at)
    places = np.array(bounds, np.int64)
    return places[:-1], places[1:]


def _numbers(data: memoryview, kind: str, places: Int64s) -> npt.NDArray[np.uint64]:
    """The numbers at ``places``."""
    width = np.dtype(kind).itemsize
    if not len(places):
        return np.empty(0, np.uint64)
    return np.ndarray((len(data) - width + 1,), kind, data, strides=(1,))[places].astype(np.uint64)


def _checksums(data: memoryview, position: int, total: int) -> tuple[int, int]:
    """The checksum of the message at ``position``, and the checksum that it states."""
    run = np.array([position + CHECKED_FROM], np.int64), np.array([position + total], np.int64)
    return int(fnv1a(data, *run)[0]), int.from_bytes(data[position : position + CHECKED_FROM], "big")


class MessageFrame:
    """A message as a frame: see ``CommitFrame``."""

    min_commit_bytes = HEADER_BYTES
    prefix_bytes = HEADER_BYTES

    def measure(self, data: memoryview, position: int) -> tuple[int, int, int]:
        _, _, _, index, length = HEADER.unpack_from(data, position)
        return index, index + 1, HEADER_BYTES + length

    def find_fault(self, data: memoryview, offset: int, position: int, expect: Expectation) -> Damage | None:
        head = bytes(data[position : position + HEADER_BYTES])
        lowest = expect.sequence or 0
        index = int.from_bytes(head[INDEX_AT : INDEX_AT + 8].ljust(8, b"\xff"), "big")  # the highest that it may become
        if index < lowest or (len(head) >= INDEX_AT + 8 and index > MAX_SEQUENCE):
            return Damage(offset + position, "sequence", f"{lowest} to {MAX_SEQUENCE}", index)
        length = int.from_bytes(head[LENGTH_AT:], "big")
        if len(head) == HEADER_BYTES and length > MAX_DATA_BYTES:
            return Damage(offset + position, "length", f"up to {MAX_DATA_BYTES}", length)
        return None

    def find_commit(self, data: memoryview, position: int, expect: Expectation, exact: int | None = None) -> int | None:
        """Find a good message after ``position``. ``exact``: only a message that shows that the length of the message
        at ``position`` is damaged: if that message ends where the good one begins, its checksum holds."""
        for place in _find_good(data, position + 1, expect.sequence or 0):
            if exact is None or _ends_at(data, position, place):
                return place
        return None


FRAME = MessageFrame()


def _ends_at(data: memoryview, position: int, end: int) -> bool:
    """Whether the checksum of the message at ``position`` holds if it ends at ``end``."""
    length = end - position - HEADER_BYTES
    if length < 0:
        return False
    message = bytearray(data[position:end])
    _LENGTH.pack_into(message, LENGTH_AT, length)
    computed, stated = _checksums(memoryview(message), 0, len(message))
    return computed == stated


def _find_good(data: memoryview, start: int, lowest: int) -> Iterator[int]:
    """The places from ``start`` on of good messages whose index is ``lowest`` or above."""
    stop, budget = len(data) - HEADER_BYTES + 1, SEARCH_LIMIT_BYTES
    if stop <= start:
        return
    lengths = np.ndarray((len(data) - 3,), ">u4", data, strides=(1,))
    indexes = np.ndarray((len(data) - 7,), ">u8", data, strides=(1,))
    for begin in range(start, stop, SEARCH_CHUNK_BYTES):
        end = min(begin + SEARCH_CHUNK_BYTES, stop)
        stated = lengths[begin + LENGTH_AT : end + LENGTH_AT].astype(np.int64)
        room = len(data) - HEADER_BYTES - np.arange(begin, end)
        number = indexes[begin + INDEX_AT : end + INDEX_AT].astype(np.uint64)
        possible = (stated <= np.minimum(room, MAX_DATA_BYTES)) & (number >= max(1, lowest)) & (number <= MAX_SEQUENCE)
        places = np.flatnonzero(possible)
        ends = places + begin + HEADER_BYTES + stated[places]
        places += begin
        total = int((ends - places).sum())
        budget -= total
        if budget < 0:
            # A message counts as found: a person sees that error, but a tail would be cut off silently.
            yield int(places[0])
            return
        computed = fnv1a(data, places + CHECKED_FROM, ends) if len(places) else np.empty(0, np.uint32)
        yield from places[computed == _numbers(data, ">u4", places)].tolist()
