"""The walk over SpacetimeDB's commits: where whole ones lie in a piece, which are repeated, and what follows them.

commit of version 1, little-endian; version 0 has no epoch
 0  8  u64 first transaction   8  8  u64 epoch   16  2  u16 n transactions   18  4  u32 length of the records
22  .  records                22+len  4  u32 CRC-32C of everything before it in the commit

Specified in litelog/formats/README.md#spacetimedb.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from litelog.codec.checksum import crc32c
from litelog.dataclass import dataclass
from litelog.errors import CorruptCommitError
from litelog.formats.columns import LONG_RUN_BYTES
from litelog.formats.commit_tail import CHECKSUM_BYTES, RESIDUE, TailCheck, check_tail
from litelog.formats.frame_chain import take_frames
from litelog.formats.log_format import MAX_COMMIT_BYTES, MAX_SEQUENCE, Damage, Expectation, Tail
from litelog.native.layouts import Checksum, Field, FrameLayout

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

_MOST_RECORDS = 0xFFFF  # n is a u16
_SEARCH_CHUNK_BYTES = 1 << 20  # temporary arrays stay in the processor's cache
_SEARCH_LIMIT_BYTES = 1 << 30
"""How many bytes a search may checksum. Hostile bytes can hold a plausible header at every place."""


@dataclass(frozen=True, slots=True)
class CommitlogWalk:
    """The whole commits at the front of a piece. Places are in the piece."""

    positions: Int64s
    """Where each commit begins."""
    firsts: Int64s
    """The first transaction of each commit."""
    counts: Int64s
    """How many transactions each commit holds."""
    epochs: Int64s
    """The epoch of each commit; 0 in version 0."""
    values: memoryview | None
    """The records of these commits, back to back, and maybe those of more; None if they were not copied."""
    places: Int64s
    """If they were, two rows: where those of each commit begin in ``values``, and how many bytes they are."""
    repeated: list[int]
    """The numbers of those commits that only repeat the one before."""
    end: int
    """Where the last one ends."""
    next: int | None
    checksum: int | None
    """The last commit's checksum; the expected one without a commit."""
    rest: TailCheck
    frame: VersionFrame

    @classmethod
    def none(
        cls, position: int, expect: Expectation, rest: TailCheck, frame: VersionFrame | None = None
    ) -> CommitlogWalk:
        """A walk without a commit, which ends at ``position``."""
        nothing = np.empty(0, np.int64)
        following = (position, expect.sequence, expect.checksum, rest, frame or FRAMES[-1])
        return cls(nothing, nothing, nothing, nothing, None, np.empty((2, 0), np.int64), [], *following)

    @property
    def records(self) -> int:
        """The number of commits that do not repeat another one."""
        return len(self.positions) - len(self.repeated)


@dataclass(frozen=True, slots=True)
class VersionFrame:
    """How commits of one version are framed."""

    version: int
    header: struct.Struct
    """First transaction, number of transactions, length of the records."""

    @property
    def prefix_bytes(self) -> int:
        return self.header.size

    @property
    def min_commit_bytes(self) -> int:
        """The size of a commit whose records are empty."""
        return self.header.size + CHECKSUM_BYTES

    @property
    def layout(self) -> FrameLayout:
        """Where a commit states its length and checksum."""
        size, header = self.min_commit_bytes, self.header.size
        stated = FrameLayout(header - 4, False, size, size, MAX_COMMIT_BYTES, Checksum.CRC32C, 0, -CHECKSUM_BYTES)
        return stated._replace(value_at=header, bytes_after_value=CHECKSUM_BYTES)

    @property
    def fields(self) -> tuple[Field, ...]:
        """First transaction, number of transactions, and the epoch if commits state one."""
        always = (Field(0, 8), Field(self.header.size - 6, 2))
        return (*always, Field(8, 8)) if self.version else always

    def unpack(self, data: memoryview | bytes, position: int) -> tuple[int, int, int]:
        """The header at ``position``: first transaction, number of transactions, and the whole size."""
        first, count, length = self.header.unpack_from(data, position)
        return first, count, length + self.header.size + CHECKSUM_BYTES

    def measure(self, data: memoryview, position: int) -> tuple[int, int, int]:
        first, count, total = self.unpack(data, position)
        return first, first + count, total

    def holds_commit(self, data: memoryview, position: int) -> bool:
        """Whether a whole commit with a right checksum begins at ``position``."""
        left = len(data) - position
        if left < self.min_commit_bytes:
            return False
        _, count, total = self.unpack(data, position)
        return count > 0 and total <= min(left, MAX_COMMIT_BYTES) and _is_whole(data, position, position + total)

    def find_fault(self, data: memoryview, offset: int, position: int, expect: Expectation) -> Damage | None:
        head = bytes(data[position : position + self.header.size])
        known = len(head)
        first, count, total = self.unpack(head.ljust(self.header.size, b"\0"), 0)
        expected, following = first if expect.sequence is None else expect.sequence, first + count
        # The bytes of the sequence that exist must fit, even if not all eight do.
        follows = head[:8] == expected.to_bytes(8, "little")[:known]
        counted = self.header.size - 4
        checks: tuple[tuple[int, str, object, object, bool], ...] = (
            (1, "sequence", expected, first, follows),
            (counted, "number of transactions", "at least 1", count, count > 0),
            (self.header.size, "length", f"up to {MAX_COMMIT_BYTES}", total, total <= MAX_COMMIT_BYTES),
            (self.header.size, "sequence after it", f"up to {MAX_SEQUENCE}", following, following <= MAX_SEQUENCE),
        )
        for needed, what, wanted, actual, good in checks:
            if known >= needed and not good:
                return Damage(offset + position, what, wanted, actual)
        return None

    def find_commit(self, data: memoryview, position: int, expect: Expectation, exact: int | None = None) -> int | None:
        """As ``CommitFrame.find_commit``. Commits may begin at any byte."""
        size, budget = len(data), _SEARCH_LIMIT_BYTES
        for start in range(position + 1, size - self.min_commit_bytes + 1, _SEARCH_CHUNK_BYTES):
            stop = min(start + _SEARCH_CHUNK_BYTES, size - self.min_commit_bytes + 1)
            reach = ((stop - position) // self.min_commit_bytes + 1) * _MOST_RECORDS
            lowest, highest = (0, MAX_SEQUENCE)
            if exact is not None:
                lowest = highest = exact
            elif expect.sequence is not None:
                lowest, highest = expect.sequence, expect.sequence + reach
            for at in _find_numbers(data, start, stop, lowest, highest):
                first, count, total = self.unpack(data, at)
                if not count or total > min(size - at, MAX_COMMIT_BYTES) or first + count > MAX_SEQUENCE:
                    continue
                budget -= total
                # Over the limit, a commit counts as found: a person sees that error, but a tail is cut off silently.
                if budget < 0 or _is_whole(data, at, at + total):
                    return at
        return None


FRAMES = (VersionFrame(0, struct.Struct("<QHI")), VersionFrame(1, struct.Struct("<Q8xHI")))


def walk(
    name: str,
    data: memoryview,
    offset: int,
    start: int,
    expect: Expectation,
    version: int | None = None,
    *,
    with_values: bool = False,
) -> CommitlogWalk:
    """Walk from ``start``, where a commit begins in ``data``, which starts at byte ``offset`` of log segment ``name``.

    ``version``: of the log segment; None if its header is not in ``data``: then the first commit shows it.
    ``with_values``: copy the records in the same pass, if that can be done, and if the first commit is not a long one.
    """
    frames = FRAMES[::-1] if version is None else (FRAMES[version],)
    frame = next((each for each in frames if each.holds_commit(data, start)), None)
    if frame is None:
        return CommitlogWalk.none(start, expect, _check(frames, name, data, offset, start, expect))
    copies = with_values and frame.measure(data, start)[2] < LONG_RUN_BYTES
    bounds, fields, values, places = take_frames(data, start, frame.layout, frame.fields, copies=copies)
    firsts, counts = fields[0].view(np.uint64), fields[1].view(np.uint64)
    expected = int(firsts[0]) if expect.sequence is None else expect.sequence
    taken, expected = _follow(firsts, counts, expected)
    repeated: list[int] = []
    for number, (first, count) in enumerate(zip(firsts[taken:].tolist(), counts[taken:].tolist(), strict=True), taken):
        if first > expected or not count:
            break
        if first < expected:
            before = _stored_checksum(data, int(bounds[number])) if number else expect.checksum
            checksums = (before, _stored_checksum(data, int(bounds[number + 1])))
            _check_repeated(name, offset + int(bounds[number]), (first, first + count), expected, checksums)
            repeated.append(number)
        else:
            expected = first + count
        taken = number + 1
    if expected > MAX_SEQUENCE:
        place = offset + int(bounds[taken - 1])
        raise CorruptCommitError(name, place, "sequence after it", f"up to {MAX_SEQUENCE}", expected)
    position = int(bounds[taken])
    checksum = _stored_checksum(data, position) if taken else expect.checksum
    following = replace(expect, sequence=expected, checksum=checksum)
    rest = _check((frame,), name, data, offset, position, following)
    numbers = fields[:, :taken]
    return CommitlogWalk(
        positions=bounds[:taken],
        firsts=numbers[0],
        counts=numbers[1],
        epochs=_as_epochs(numbers[2]) if frame.version else np.zeros(taken, np.int64),
        values=values,
        places=places[:, :taken],
        repeated=repeated,
        end=position,
        next=expected,
        checksum=checksum,
        rest=rest,
        frame=frame,
    )


def _as_epochs(numbers: Int64s) -> Int64s:
    """Epochs of 64 bits without a sign, cut to the largest that has one."""
    return np.where(numbers < 0, MAX_SEQUENCE, numbers) if (numbers < 0).any() else numbers


def _follow(firsts: npt.NDArray[np.uint64], counts: npt.NDArray[np.uint64], expected: int) -> tuple[int, int]:
    """How many commits at the front follow each other from transaction ``expected`` on without a repeated one, and
    which transaction follows them."""
    follows = np.empty(len(firsts), np.uint64)
    follows[0], follows[1:] = expected, firsts[:-1] + counts[:-1]
    good = (firsts == follows) & (counts > 0)
    taken = len(firsts) if good.all() else int(good.argmin())
    return taken, int(firsts[taken - 1]) + int(counts[taken - 1]) if taken else expected


def _stored_checksum(data: memoryview, end: int) -> int:
    """The checksum of the commit that ends at ``end``."""
    return int.from_bytes(data[end - CHECKSUM_BYTES : end], "little")


def _is_whole(data: memoryview, start: int, end: int) -> bool:
    return crc32c(data[start:end]) == RESIDUE


def _check_repeated(
    name: str, offset: int, numbers: tuple[int, int], expected: int, checksums: tuple[int | None, int]
) -> None:
    """Check that a commit whose first number is lower than ``expected`` repeats the commit before.

    ``numbers``: its own first and next; ``checksums``: of the commit before, if known, and its own. Raises
    CorruptCommitError for another commit: the log is forked.
    """
    (first, following), (before, checksum) = numbers, checksums
    if following == expected and before in (checksum, None):
        return
    what = f"forked log: transaction {first} is there twice; the checksum of the second commit"
    known = f"{before:08x}, as of the commit before" if before is not None else f"one that ends before {expected}"
    raise CorruptCommitError(name, offset, what, known, f"{checksum:08x}")


def _check(
    frames: tuple[VersionFrame, ...], name: str, data: memoryview, offset: int, position: int, expect: Expectation
) -> TailCheck:
    """The check of the tail, in the version that the bytes look most like. Raises as ``check_tail``, in any of them."""
    left = len(data) - position
    checks = [check_tail(frame, name, data, offset, position, expect) for frame in frames]
    for check in checks:
        if check.damage is None or check.tail is Tail.INCOMPLETE:
            return check
    damage = checks[0].damage
    if damage is not None and damage.what == "length" and left > MAX_COMMIT_BYTES:
        raise CorruptCommitError(name, damage.offset, damage.what, damage.expected, damage.actual)
    return checks[0]


def _find_numbers(data: memoryview, start: int, stop: int, lowest: int, highest: int) -> list[int]:
    """The places from ``start`` to ``stop`` at which a u64 from ``lowest`` to ``highest`` begins, in order."""
    if lowest == highest:
        return _find_number(data, start, stop, lowest)
    places = []
    for shift in range(min(8, stop - start)):
        count = (stop - start - shift - 1) // 8 + 1
        words = np.frombuffer(data, "<u8", count=count, offset=start + shift)
        hits = np.flatnonzero(
            (words - np.uint64(lowest)) <= np.uint64(highest - lowest)
        )  # below it wraps to a large one
        places.append(hits * 8 + (start + shift))
    return sorted(np.concatenate(places).tolist()) if places else []


def _find_number(data: memoryview, start: int, stop: int, number: int) -> list[int]:
    """The places from ``start`` to ``stop`` at which this u64 begins, in order."""
    sought, searched = number.to_bytes(8, "little"), bytes(data[start : stop + 7])
    places, at = [], searched.find(sought)
    while at >= 0:
        places.append(start + at)
        at = searched.find(sought, at + 1)
    return places
