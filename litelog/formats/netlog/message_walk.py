"""The walk over NetLog's messages: where whole ones lie in a buffer, how many records each holds, and what follows.

A message has no sequence, and its checksum does not cover its length and codec. So after damage, only checksums show
whether a good message follows. Specified in litelog/formats/README.md#netlog.
"""

from __future__ import annotations

import zlib
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np

from litelog.dataclass import dataclass
from litelog.errors import CorruptCommitError
from litelog.formats.commit_tail import is_zero
from litelog.formats.frame_chain import find_frames
from litelog.formats.log_format import MAX_SEQUENCE, Damage, Tail
from litelog.formats.netlog.messages import (
    LAST_CODEC,
    LAYOUT,
    MAX_PAYLOAD_BYTES,
    MESSAGE,
    MESSAGE_BYTES,
    SET,
    find_suspects,
    is_set,
    split_set,
    unpack_set,
)
from litelog.native import walks

if TYPE_CHECKING:
    import numpy.typing as npt

    from litelog.native.walks import TakenMessages

    Int64s = npt.NDArray[np.int64]

SEARCH_CHUNK_BYTES = 1 << 20  # temporary arrays stay small
SEARCH_LIMIT_BYTES = 1 << 30
"""How many bytes a search may checksum. Hostile bytes can hold a plausible header at every byte."""


@dataclass(frozen=True, slots=True)
class MessageSet:
    """A set: its messages, decompressed, and where their payloads lie in them."""

    content: memoryview
    starts: Int64s
    lengths: Int64s
    packed: bool
    """Whether it was compressed, so that ``content`` is a separate buffer."""


@dataclass(slots=True)
class MessageRun:
    """Whole messages, by their places in the buffer. ``end`` is a place in the buffer, too."""

    positions: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    sets: dict[int, MessageSet] = field(default_factory=dict)
    """The sets among them, by their numbers, which ascend."""
    taken: TakenMessages | None = None
    """The records of the messages, if the compiled library read all of them. Then ``sets`` is empty."""
    end: int = 0
    tail: Tail = Tail.NOTHING
    damage: Damage | None = None
    wanted: int = 0

    @property
    def records(self) -> int:
        """How many sequences they take."""
        if self.taken is not None:
            return int(self.taken.records_after[-1]) if len(self.positions) else 0
        return len(self.positions) + sum(len(found.starts) - 1 for found in self.sets.values())

    @property
    def counts(self) -> Int64s:
        """How many records each message holds."""
        if self.taken is not None:
            return np.diff(self.taken.records_after, prepend=0)
        counts = np.ones(len(self.positions), np.int64)
        if self.sets:
            counts[list(self.sets)] = [len(each.starts) for each in self.sets.values()]
        return counts


def walk(name: str, data: memoryview, offset: int, start: int, *, with_values: bool = False) -> MessageRun:
    """Walk from ``start``, where a message begins in ``data``, which starts at byte ``offset`` of log segment ``name``.

    ``with_values``: copy the records in the same pass, if that can be done.
    Raises CorruptCommitError: a bad message is followed by a good one, or a set does not hold what its checksum covers.
    """
    taken = walks.take_messages(data, start, LAYOUT, copies=with_values)
    if taken is not None and taken.is_complete:
        found = MessageRun(taken.bounds[:-1], taken=taken, end=int(taken.bounds[-1]))
        suspects = taken.suspects
    else:
        found = _open_messages(name, data, offset, find_frames(data, start, LAYOUT) if taken is None else taken.bounds)
        ends = np.append(found.positions[1:], found.end) if len(found.positions) else found.positions
        suspects = find_suspects(data, found.positions + MESSAGE_BYTES, ends) if taken is None else taken.suspects
    _refuse_hidden_sets(found, name, data, offset, suspects)
    _check_tail(found, name, data, offset)
    return found


def _open_messages(name: str, data: memoryview, offset: int, bounds: Int64s) -> MessageRun:
    """The messages within ``bounds``, up to the first with an unknown codec, with their sets."""
    codecs = np.frombuffer(data, np.uint8)[bounds[:-1]]
    count = len(codecs) if not len(codecs) or codecs.max() <= LAST_CODEC else int((codecs > LAST_CODEC).argmax())
    found = MessageRun(bounds[:count], end=int(bounds[count]))
    for number in np.flatnonzero(codecs[:count]).tolist():
        position, end = int(bounds[number]), int(bounds[number + 1])
        payload = data[position + MESSAGE_BYTES : end]
        found.sets[number] = _open_set(name, offset + position, int(codecs[number]), payload)
    return found


def _open_set(name: str, place: int, codec: int, payload: memoryview) -> MessageSet:
    try:
        content = unpack_set(codec, payload)
        return MessageSet(content, *split_set(content), packed=codec != SET)
    except ValueError as error:
        raise CorruptCommitError(name, place, "set of messages", "whole", str(error)) from None


def _refuse_hidden_sets(found: MessageRun, name: str, data: memoryview, offset: int, suspects: Int64s) -> None:
    """Raise CorruptCommitError for the first plain message whose payload is a set: see ``is_set``.

    ``suspects``: the numbers of the messages to look at.
    """
    bounds = np.append(found.positions, found.end)
    for number in suspects.tolist():
        at, end = int(bounds[number]), int(bounds[number + 1])
        if number not in found.sets and is_set(data[at + MESSAGE_BYTES : end]):
            raise CorruptCommitError(name, offset + at, "codec", "that of a set", data[at])


def _check_tail(found: MessageRun, name: str, data: memoryview, offset: int) -> None:
    """Find what the bytes after the whole messages are. Raises CorruptCommitError."""
    at, left = found.end, len(data) - found.end
    if not left:
        return
    if is_zero(data[at:]):
        found.tail = Tail.ZEROS
        return
    place = offset + at
    if left < MESSAGE_BYTES:
        good = data[at] <= LAST_CODEC
        found.tail = Tail.INCOMPLETE if good else Tail.DAMAGED
        found.wanted = MESSAGE_BYTES if good else 0
        found.damage = Damage(place, "length", f"at least {MESSAGE_BYTES}", left)
        if not good:
            found.damage = Damage(place, "codec", f"0 to {LAST_CODEC}", data[at])
        return
    codec, stored, length = MESSAGE.unpack_from(data, at)
    possible = 0 < length <= MAX_PAYLOAD_BYTES
    whole = possible and length <= left - MESSAGE_BYTES
    actual = zlib.crc32(data[at + MESSAGE_BYTES : at + MESSAGE_BYTES + length]) if whole else None
    if codec > LAST_CODEC:
        found.damage = Damage(place, "codec", f"0 to {LAST_CODEC}", codec)
    elif not possible:
        found.damage = Damage(place, "length", f"1 to {MAX_PAYLOAD_BYTES}", length)
    elif not whole:
        found.damage = Damage(place, "length", f"up to the {left - MESSAGE_BYTES} bytes there", length)
    else:
        found.damage = Damage(place, "checksum", f"{actual:08x}", f"{stored:08x}")
    ends = _find_end(data, at, stored)
    if ends is not None:
        # The checksum holds for another length, and a message begins there: the length is damaged.
        raise CorruptCommitError(name, place, "length", ends - at - MESSAGE_BYTES, length)
    if codec <= LAST_CODEC and possible and not whole:
        found.tail, found.wanted = Tail.INCOMPLETE, MESSAGE_BYTES + length
        return
    behind = at + MESSAGE_BYTES + length if whole else at + 1
    if actual == stored or find_message(data, behind) is not None:
        raise CorruptCommitError(name, place, found.damage.what, found.damage.expected, found.damage.actual)
    found.tail = Tail.DAMAGED
    found.wanted = MESSAGE_BYTES + length if whole and codec <= LAST_CODEC else 0


def _find_end(data: memoryview, at: int, stored: int) -> int | None:
    """The end of the message at ``at`` if its length is wrong: the place up to which its checksum holds, where a good
    message follows."""
    value, done, budget = 0, at + MESSAGE_BYTES, SEARCH_LIMIT_BYTES
    for place, length in _plausible(data, at + MESSAGE_BYTES + 1):
        if place - at > MAX_PAYLOAD_BYTES:
            break
        value = zlib.crc32(data[done:place], value)
        done = place
        if value == stored:
            budget -= length
            if budget < 0 or _is_good(data, place, length):
                return place
    return None


def find_following(data: memoryview, at: int) -> int | None:
    """Find the good message that follows the damaged one at ``at``; None if there is none. Messages within a damaged
    set do not count if its length or its checksum shows where it ends."""
    if len(data) - at >= MESSAGE_BYTES:
        stored, length = _stated(data, at)
        end = at + MESSAGE_BYTES + length
        if length and end == len(data):
            return None
        if length and end + MESSAGE_BYTES < len(data):
            codec, _, following = MESSAGE.unpack_from(data, end)
            whole = 0 < following <= min(len(data) - end - MESSAGE_BYTES, MAX_PAYLOAD_BYTES)
            if codec <= LAST_CODEC and whole and _is_good(data, end, following):
                return end
        if (ends := _find_end(data, at, stored)) is not None:
            return ends
    return find_message(data, at + 1)


def _stated(data: memoryview, at: int) -> tuple[int, int]:
    """The checksum and the length that the header at ``at`` states."""
    _, stored, length = MESSAGE.unpack_from(data, at)
    return int(stored), int(length)


def find_message(data: memoryview, start: int) -> int | None:
    """Find the place of a good message from ``start`` on; None if there is none."""
    budget = SEARCH_LIMIT_BYTES
    for place, length in _plausible(data, start):
        budget -= length
        # Over the limit, a message counts as found: a person sees that error, but a tail would be cut off silently.
        if budget < 0 or _is_good(data, place, length):
            return place
    return None


def _is_good(data: memoryview, place: int, length: int) -> bool:
    at = place + MESSAGE_BYTES
    stored = int.from_bytes(data[place + 1 : place + 5], "big")
    return zlib.crc32(data[at : at + length]) == stored


def _plausible(data: memoryview, start: int) -> list[tuple[int, int]]:
    """(place, length) from ``start`` on wherever a message may begin that is there as a whole, and is not empty."""
    found: list[tuple[int, int]] = []
    array, stop = np.frombuffer(data, np.uint8), len(data) - MESSAGE_BYTES
    if stop <= start:
        return found
    known = walks.find_message_heads(data, start, MAX_PAYLOAD_BYTES)
    if known is not None:
        return known
    lengths = np.ndarray((len(data) - 3,), ">u4", data, strides=(1,))
    for begin in range(start, stop, SEARCH_CHUNK_BYTES):
        places = np.flatnonzero(array[begin : min(begin + SEARCH_CHUNK_BYTES, stop)] <= LAST_CODEC) + begin
        stated = lengths[places + 5].astype(np.int64)
        good = (stated > 0) & (stated <= np.minimum(len(data) - MESSAGE_BYTES - places, MAX_PAYLOAD_BYTES))
        found += zip(places[good].tolist(), stated[good].tolist(), strict=True)
    return found


def check_sequences(name: str, offset: int, first: int, found: MessageRun) -> None:
    """Raise CorruptCommitError if the sequences after ``first`` do not fit into columns."""
    after = first + found.records
    if len(found.positions) and after > MAX_SEQUENCE:
        place = offset + int(found.positions[-1])
        raise CorruptCommitError(name, place, "sequence after it", f"up to {MAX_SEQUENCE}", after)
