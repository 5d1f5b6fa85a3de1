"""The format of NetLog's topics, and the names of their files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from litelog.errors import CorruptCommitError, SequenceGapError
from litelog.formats.columns import Columns
from litelog.formats.commit_tail import is_zero
from litelog.formats.log_format import Commit, Damage, Expectation, FinishedTail, Scan, Tail
from litelog.formats.netlog.index_file import first_number, index_rows
from litelog.formats.netlog.message_walk import MessageRun, check_sequences, find_following, find_message, walk
from litelog.formats.netlog.messages import (
    MESSAGE_BYTES,
    SEGMENT_HEADER,
    SEGMENT_HEADER_BYTES,
    VERSION,
    created,
)
from litelog.formats.numbered import NumberedFormat, NumberedNames

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

_SECOND = 1_000_000
_NAMES = NumberedNames("netlog", re.compile(r"([0-9]{20})\.data"), "an offset of 20 digits and .data")
SETTINGS = "settings.json"
"""The topic's settings, without which the server takes its defaults."""


class NetlogFormat(NumberedFormat):
    """A topic of NetLog. A set of messages is one commit with a record for each message, so sequences are dense.

    Messages have no numbers. The name of a log segment states the first one's.
    """

    name = "netlog"
    names = _NAMES
    finished_tail = FinishedTail.ERROR
    has_timestamps = False
    removed_by_owner = True
    counted = True

    def index_name(self, name: str) -> str | None:
        return None if _NAMES.sequence_of(name) is None else f"{name.removesuffix('.data')}.index"

    def write_index(self, name: str, head: bytes, commits: Iterable[Commit]) -> bytes:
        return index_rows(_NAMES.sequence_of(name) or 0, head, commits)

    def first_indexed(self, name: str, content: bytes, time: int) -> int | None:
        number = first_number(content, time // _SECOND)
        return None if number is None else (_NAMES.sequence_of(name) or 0) + number

    def side_files(self, names: Sequence[str]) -> list[str]:
        return [SETTINGS] if SETTINGS in names else []

    def scan(
        self,
        name: str,
        data: memoryview,
        offset: int,
        expect: Expectation,
        *,
        known: bool = False,  # noqa: ARG002  # only the sets themselves show how many messages they hold
    ) -> Scan:
        return _describe(offset, expect, *_walk_segment(name, data, offset, expect))

    def find_commit(self, data: memoryview, offset: int, start: int) -> int | None:
        return find_following(data, start) if offset or start else find_message(data, SEGMENT_HEADER_BYTES)

    def scan_columns(self, name: str, data: memoryview, offset: int, expect: Expectation) -> tuple[Scan, Columns]:
        """The results of ``scan`` and ``decode``, from one pass over the bytes."""
        first, found = _walk_segment(name, data, offset, expect, with_values=True)
        return _describe(offset, expect, first, found), _decode(data, first, found)

    def commits(self, name: str, data: memoryview, offset: int, expect: Expectation) -> list[Commit]:
        first, found = _walk_segment(name, data, offset, expect)
        counts = found.counts
        nexts = first + np.cumsum(counts)
        bounds = np.append(found.positions, found.end) + offset
        columns = (bounds[:-1], bounds[1:], nexts - counts, nexts)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [Commit(start, end, number, after, None, None) for start, end, number, after in rows]

    def decode(self, name: str, data: memoryview, offset: int, expect: Expectation) -> Columns:
        return _decode(data, *_walk_segment(name, data, offset, expect, with_values=True))


def _describe(offset: int, expect: Expectation, first: int, found: MessageRun) -> Scan:
    some = len(found.positions) > 0
    return Scan(
        start=offset,
        end=offset + found.end,
        commits=len(found.positions),
        records=found.records,
        first=first if some else None,
        next=first + found.records if some else expect.sequence,
        epoch=expect.epoch,
        lowest=None,
        highest=None,
        last_commit=offset + int(found.positions[-1]) if some else offset,
        tail=found.tail,
        damage=found.damage,
        wanted=found.wanted,
    )


def _decode(data: memoryview, first: int, found: MessageRun) -> Columns:
    if (taken := found.taken) is not None and taken.values is not None:
        starts, lengths = taken.places
        sequences, one_run = np.arange(first, first + len(starts), dtype=np.int64), np.zeros(1, np.int64)
        places = np.repeat(found.positions, found.counts) if taken.has_sets else found.positions + MESSAGE_BYTES
        return Columns(taken.values, sequences, None, None, None, starts, lengths, one_run, commit_starts=places)
    bounds = np.append(found.positions, found.end)
    starts, commit_starts = bounds[:-1] + MESSAGE_BYTES, None
    lengths = bounds[1:] - starts
    if found.sets:
        commit_starts = np.repeat(found.positions, found.counts)
        data, starts, lengths = _unfold(data, found, starts, lengths)
    sequences = np.arange(first, first + len(starts), dtype=np.int64)
    return Columns(data, sequences, None, None, None, starts, lengths, commit_starts=commit_starts)


def _unfold(data: memoryview, found: MessageRun, starts: Int64s, lengths: Int64s) -> tuple[memoryview, Int64s, Int64s]:
    """Replace the sets by their messages. Those of compressed sets lie after the bytes of the others."""
    packed = [each for each in found.sets.values() if each.packed]
    buffers = [] if len(packed) == len(found.positions) else [data]
    size = len(data) if buffers else 0
    all_starts, all_lengths, done = [], [], 0
    for number, each in found.sets.items():
        base = int(starts[number])
        if each.packed:
            buffers.append(each.content)
            base, size = size, size + len(each.content)
        all_starts += [starts[done:number], each.starts + base]
        all_lengths += [lengths[done:number], each.lengths]
        done = number + 1
    joined = buffers[0] if len(buffers) == 1 else memoryview(b"".join(buffers))
    return joined, np.concatenate([*all_starts, starts[done:]]), np.concatenate([*all_lengths, lengths[done:]])


def _walk_segment(
    name: str, data: memoryview, offset: int, expect: Expectation, *, with_values: bool = False
) -> tuple[int, MessageRun]:
    """The first sequence of a piece, and the walk over it; at offset 0 the header is checked first, and belongs to the
    run with the first message."""
    if offset:
        first = expect.sequence or 0
        found = walk(name, data, offset, 0, with_values=with_values)
    else:
        named = _NAMES.require_sequence(name)
        if expect.sequence is not None and expect.sequence != named and len(data):
            raise SequenceGapError(name, 0, expect.sequence, named)
        first = named
        found = _check_header(name, data) or walk(name, data, 0, SEGMENT_HEADER_BYTES, with_values=with_values)
        if not len(found.positions):
            found.wanted += found.end if found.wanted else 0
            found.end = 0
    check_sequences(name, offset, first, found)
    return first, found


def _check_header(name: str, data: memoryview) -> MessageRun | None:
    """None if ``data`` begins with a good header; an empty walk if the header is not there yet, or damaged.

    Raises CorruptCommitError for a damaged header that a good message follows.
    """
    head = bytes(data[:SEGMENT_HEADER_BYTES])
    if created(head) is not None:
        return None
    if is_zero(data):
        return MessageRun(tail=Tail.ZEROS if head else Tail.NOTHING)
    whole = SEGMENT_HEADER.pack(VERSION, SEGMENT_HEADER_BYTES, 0, bytes(10))
    if len(head) < SEGMENT_HEADER_BYTES and (head[:2], head[6:]) == (whole[: min(2, len(head))], whole[6 : len(head)]):
        damage = Damage(0, "length of the header", SEGMENT_HEADER_BYTES, len(head))
        return MessageRun(tail=Tail.INCOMPLETE, damage=damage, wanted=SEGMENT_HEADER_BYTES)
    damage = Damage(0, "segment header", whole[:2].hex(), head[:2].hex())
    if find_message(data, SEGMENT_HEADER_BYTES) is not None:
        raise CorruptCommitError(name, 0, damage.what, damage.expected, damage.actual)
    return MessageRun(tail=Tail.DAMAGED, damage=damage)
