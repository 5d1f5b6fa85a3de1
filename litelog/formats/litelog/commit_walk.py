"""The walk over commits of litelog's own format: where whole ones lie in a buffer, and what follows the last one.

Specified in litelog/formats/README.md#damage.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from litelog.codec.checksum import crc32c
from litelog.dataclass import dataclass
from litelog.errors import CorruptCommitError
from litelog.formats.commit_tail import RESIDUE, check_tail
from litelog.formats.litelog.encoding import (
    BLOCK_BYTES,
    CHECKSUM_BYTES,
    FIXED_BYTES,
    FRAME_BYTES,
    HEADER,
    LAYOUT,
    MIN_COMMIT_BYTES,
    PREFIX_BYTES,
)
from litelog.formats.log_format import MAX_COMMIT_BYTES, MAX_SEQUENCE, Damage, Expectation, Tail
from litelog.native.commit_rows import find_commits, take_commits
from litelog.native.layouts import Checksum, FrameLayout

if TYPE_CHECKING:
    import numpy as np

    from litelog.native.commit_rows import CommitBodies, FoundCommits

SEARCH_CHUNK_WORDS = 1 << 17  # 1 MiB: temporary arrays stay in the processor's cache
FEW_BYTES = 4 << 10
"""The checksums of commits in fewer bytes are computed one by one."""

PLAIN_SEARCH_BYTES = 1 << 20
"""A search for one sequence in up to so many bytes needs no arrays. Hostile bytes take it a tenth of a second."""

SEARCH_LIMIT_BYTES = 1 << 30
"""How many bytes a search may checksum. Hostile bytes can hold a plausible header in every word, each of a commit of
megabytes."""

_LAYOUT = FrameLayout(
    length_at=PREFIX_BYTES - 4,
    is_big_endian=False,
    other_bytes=FRAME_BYTES,
    fewest_bytes=MIN_COMMIT_BYTES,
    most_bytes=MAX_COMMIT_BYTES,
    checksum=Checksum.CRC32C,
    checked_from=0,
    checksum_at=-CHECKSUM_BYTES,
)


@dataclass(frozen=True, slots=True)
class Walk:
    """Whole commits, by their places in the buffer. ``end`` is a place in the buffer, too."""

    positions: list[int]
    end: int
    next: int | None
    epoch: int
    tail: Tail
    damage: Damage | None = None
    wanted: int = 0
    times: tuple[int, int] | None = None
    """The lowest and the highest time of a record, if the compiled library has checked the columns of all commits."""
    bodies: CommitBodies | None = None
    """The records of the commits, if they were asked for, and the compiled library is sure of all of them."""


def walk_front(data: memoryview, expect: Expectation) -> Walk | None:
    """The commits at the front of ``data``, if all of them are plainly right, also in their columns; what follows them
    is not looked at. None if there are none, or without the compiled library."""
    found = find_commits(data, 0, expect.sequence, expect.epoch, MAX_COMMIT_BYTES)
    if found is None:
        return None
    return Walk(found.positions, found.end, found.next, found.epoch, Tail.NOTHING, times=found.times)


def walk_checked(name: str, data: memoryview, offset: int, start: int, expect: Expectation) -> Walk:
    """As ``walk``, and check the columns in the same pass, if that can be done."""
    found = None
    if len(data) - start >= FEW_BYTES:
        found = find_commits(data, start, expect.sequence, expect.epoch, MAX_COMMIT_BYTES)
    return _walk_after(name, data, offset, start, expect, found)


def walk_bodies(name: str, data: memoryview, offset: int, start: int, expect: Expectation) -> Walk:
    """As ``walk_checked``, and read the records in the same pass, if that can be done."""
    taken = None
    if len(data) - start >= FEW_BYTES:
        taken = take_commits(data, start, expect.sequence, expect.epoch, MAX_COMMIT_BYTES)
    if taken is None:
        return _walk_after(name, data, offset, start, expect, None)
    walked = _walk_after(name, data, offset, start, expect, taken.run)
    return walked if walked.times is None else replace(walked, bodies=taken.bodies)


def _walk_after(
    name: str, data: memoryview, offset: int, start: int, expect: Expectation, found: FoundCommits | None
) -> Walk:
    """The walk from ``start``, if the library has ``found`` these commits there. Where it stops, the bytes are looked
    at here: a commit that it leaves counts with those before it, whose columns are then checked again with it."""
    if found is None:
        return _walk(name, data, offset, start, expect, start)
    rest = _walk(name, data, offset, found.end, Expectation(found.next, found.epoch), found.end)
    if rest.positions:
        return _walk(name, data, offset, start, expect, found.end)
    return replace(rest, positions=found.positions, times=found.times)


def walk(name: str, data: memoryview, offset: int, start: int, expect: Expectation) -> Walk:
    """Walk from ``start``, where a commit begins in ``data``, which starts at byte ``offset`` of log segment ``name``.

    Checks every header and checksum. ``Bodies`` checks the columns inside.
    """
    return _walk(name, data, offset, start, expect, _check_frames(data, start))


def _walk(name: str, data: memoryview, offset: int, start: int, expect: Expectation, checked_end: int) -> Walk:
    """As ``walk``. Up to ``checked_end``, commits that their lengths show have the right checksums."""
    size, position, expected, newest = len(data), start, expect.sequence, expect.epoch
    if expected is None and size - position >= MIN_COMMIT_BYTES:
        expected = HEADER.unpack_from(data, position)[0]
    positions: list[int] = []
    found, unpack, checksum, fixed_bytes = positions.append, HEADER.unpack_from, crc32c, FIXED_BYTES
    while (left := size - position) >= MIN_COMMIT_BYTES:
        first, epoch, count, length, layout, flags, value_bytes, _ = unpack(data, position)
        total = length + FRAME_BYTES
        if first != expected or epoch < newest or not count or layout != LAYOUT or flags > 3:
            break
        if total > left or total & 7 or total > MAX_COMMIT_BYTES:
            break
        spare = length - BLOCK_BYTES - count * fixed_bytes[flags] - value_bytes
        if spare < 0 or (spare > 7 and not flags & 1):
            break
        end = position + total
        if end > checked_end and checksum(data[position:end]) != RESIDUE:
            break
        found(position)
        expected += count
        newest = epoch
        position = end
    if positions and expected is not None and expected > MAX_SEQUENCE:
        raise CorruptCommitError(name, offset + positions[-1], "sequence after it", f"up to {MAX_SEQUENCE}", expected)
    if not positions:
        expected = expect.sequence
    rest = check_tail(_FRAME, name, data, offset, position, Expectation(expected, newest))
    return Walk(positions, position, expected, newest, rest.tail, rest.damage, rest.wanted)


def _check_frames(data: memoryview, start: int) -> int:
    """Up to where the compiled library finds commits with the right checksums, by their lengths, from ``start`` on. For
    little data it is not asked."""
    if len(data) - start < FEW_BYTES:
        return start
    from litelog.native import walks  # noqa: PLC0415 - a daemon starts without NumPy

    bounds = walks.find_frames(data, start, _LAYOUT)
    return start if bounds is None else int(bounds[-1])


def find_commit(data: memoryview, position: int, expect: Expectation, exact: int | None = None) -> int | None:
    """Find the start of a good commit after ``position`` whose sequence may follow; ``exact``: only that sequence.

    The bytes between hold at most one record per 4 bytes, which bounds the sequences that may follow.
    """
    if exact is not None and len(data) - position <= PLAIN_SEARCH_BYTES:
        aligned = position - position % 8
        found = _find_exact(data[aligned:], exact, expect.epoch)
        return None if found is None else aligned + found
    import numpy as np  # noqa: PLC0415 - a daemon starts without it

    words = np.frombuffer(data, "<u8", count=len(data) // 8)
    stop = (len(data) - MIN_COMMIT_BYTES) // 8 + 1
    budget = SEARCH_LIMIT_BYTES
    for start in range(position // 8 + 1, stop, SEARCH_CHUNK_WORDS):
        chunk = words[start : min(start + SEARCH_CHUNK_WORDS, stop)]
        if exact is not None:
            hits = chunk == np.uint64(exact)
        elif expect.sequence is not None:
            reach = ((start + len(chunk)) * 8 - position) // FIXED_BYTES[0]
            hits = chunk - np.uint64(expect.sequence + 1) < np.uint64(reach)  # below it wraps to a large number
        else:
            hits = chunk <= np.uint64(MAX_SEQUENCE)
        candidates = np.flatnonzero(hits) + start
        if not len(candidates):
            continue
        for at, total in _select_plausible(words, candidates, len(data), expect.epoch):
            budget -= total
            # Over the limit, a commit counts as found: a person sees an error, and a tail would be cut off silently.
            if budget < 0 or crc32c(data[at : at + total]) == RESIDUE:
                return at
    return None


def _find_exact(data: memoryview, exact: int, epoch: int) -> int | None:
    """As ``find_commit`` after the first 8 bytes of little data, for one sequence and without NumPy: a daemon that has
    read the beginning of a commit looks for the next one in it."""
    content, wanted, budget = bytes(data), exact.to_bytes(8, "little"), SEARCH_LIMIT_BYTES
    stop = max(0, len(content) - MIN_COMMIT_BYTES + 8)
    at = content.find(wanted, 8, stop)
    while at >= 0:
        if not at % 8:
            _, newest, count, length, layout, flags, *_ = HEADER.unpack_from(content, at)
            total = length + FRAME_BYTES
            is_plausible = (
                count > 0
                and length >= BLOCK_BYTES + count * FIXED_BYTES[0]
                and layout == LAYOUT
                and flags <= 3
                and total % 8 == 0
                and total <= min(len(content) - at, MAX_COMMIT_BYTES)
                and newest >= epoch
            )
            budget -= total if is_plausible else 0
            if is_plausible and (budget < 0 or crc32c(data[at : at + total]) == RESIDUE):
                return at
        at = content.find(wanted, at + 1, stop)
    return None


def _select_plausible(words: np.ndarray, candidates: np.ndarray, size: int, epoch: int) -> list[tuple[int, int]]:
    """(place, bytes) of the candidates, given in words, whose headers may be a commit's within ``size`` bytes."""
    import numpy as np  # noqa: PLC0415 - as above

    packed = words[candidates + 2]  # n, body length, layout, flags
    count = (packed & np.uint64(0xFFFF)).astype(np.int64)
    length = (packed >> np.uint64(16) & np.uint64(0xFFFF_FFFF)).astype(np.int64)
    layout, flags = packed >> np.uint64(48) & np.uint64(0xFF), packed >> np.uint64(56)
    total = length + FRAME_BYTES
    good = (count > 0) & (length >= BLOCK_BYTES + count * FIXED_BYTES[0]) & (layout == LAYOUT) & (flags <= 3)
    good &= (total % 8 == 0) & (total <= np.minimum(size - candidates * 8, MAX_COMMIT_BYTES))
    good &= words[candidates + 1] >= np.uint64(epoch)
    return list(zip((candidates[good] * 8).tolist(), total[good].tolist(), strict=True))


class _Frame:
    """How the tail of a piece is checked."""

    min_commit_bytes = MIN_COMMIT_BYTES
    prefix_bytes = PREFIX_BYTES

    def measure(self, data: memoryview, position: int) -> tuple[int, int, int]:
        head = bytes(data[position : position + HEADER.size]).ljust(HEADER.size, b"\0")
        first, _, count, length, *_ = HEADER.unpack(head)
        return first, first + count, length + FRAME_BYTES

    def find_fault(self, data: memoryview, offset: int, position: int, expect: Expectation) -> Damage | None:
        """The first fault in the header at ``position``, in as much of the header as exists; None if there is none."""
        head = bytes(data[position : position + HEADER.size])
        known = len(head)
        first, epoch, count, length, layout, flags, value_bytes, _ = HEADER.unpack(head.ljust(HEADER.size, b"\0"))
        total = length + FRAME_BYTES
        spare = length - BLOCK_BYTES - count * FIXED_BYTES[flags & 3]
        expected = first if expect.sequence is None else expect.sequence
        limit = f"a multiple of 8, up to {MAX_COMMIT_BYTES}"
        # The bytes of the sequence that exist must fit, even if not all eight do.
        follows = head[:8] == expected.to_bytes(8, "little")[:known]
        checks: tuple[tuple[int, str, object, object, bool], ...] = (
            (1, "sequence", expected, first, follows),
            (16, "epoch", f"{expect.epoch} or higher", epoch, epoch >= expect.epoch),
            (22, "number of records", "at least 1", count, count > 0),
            (22, "sequence after it", f"up to {MAX_SEQUENCE}", first + count, first + count <= MAX_SEQUENCE),
            (22, "length", limit, total, total % 8 == 0 and total <= MAX_COMMIT_BYTES),
            (23, "layout", LAYOUT, layout, layout == LAYOUT),
            (24, "flags", "0 to 3", flags, flags <= 3),
            (24, "length", f"room for {count} records", total, spare >= 0),
            (32, "bytes of values", f"up to {spare}", value_bytes, value_bytes <= spare),
            (32, "padding", "0 to 7 bytes", spare - value_bytes, spare - value_bytes <= 7 or bool(flags & 1)),
        )
        for needed, what, wanted, actual, good in checks:
            if known >= needed and not good:
                return Damage(offset + position, what, wanted, actual)
        return None

    def find_commit(self, data: memoryview, position: int, expect: Expectation, exact: int | None = None) -> int | None:
        return find_commit(data, position, expect, exact)


_FRAME = _Frame()
