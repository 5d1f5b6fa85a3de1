"""Judges what follows the last whole commit of a piece, in formats whose commits have a header and a checksum.

The decision between "not yet" and "corrupt" is made here, once for all such formats.

Specified in litelog/formats/README.md#damage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from litelog.codec.checksum import crc32c
from litelog.dataclass import dataclass
from litelog.errors import CorruptCommitError, SequenceGapError
from litelog.formats.log_format import MAX_COMMIT_BYTES, Damage, Expectation, Tail

if TYPE_CHECKING:
    from collections.abc import Callable

    Checksums = Callable[[memoryview, int, int], tuple[int, int]]

RESIDUE = 0x48674BC7
"""CRC-32C of any bytes followed by their own CRC-32C (little-endian)."""

CHECKSUM_BYTES = 4

_FIRST_BYTES = 48  # looked at first: most bytes that are not zero begin so
_ZERO_CHUNK = bytes(64 << 10)  # compared at a time, in the processor's cache


class CommitFrame(Protocol):
    """How a format frames its commits: a header with a sequence and a length, a body, and a checksum."""

    @property
    def min_commit_bytes(self) -> int:
        """The size of the smallest commit."""

    @property
    def prefix_bytes(self) -> int:
        """How many bytes of a commit show its size."""

    def measure(self, data: memoryview, position: int) -> tuple[int, int, int]:
        """Return what the header at ``position`` states: its sequence, the next one, and the commit's whole size."""

    def find_fault(self, data: memoryview, offset: int, position: int, expect: Expectation) -> Damage | None:
        """Return the first fault in the header at ``position``, in as much of the header as exists; None if there is
        none. ``offset``: where ``data`` starts in the log segment."""

    def find_commit(self, data: memoryview, position: int, expect: Expectation, exact: int | None = None) -> int | None:
        """Return the start of a good commit after ``position`` whose sequence may follow; ``exact``: only that
        sequence. None if there is none."""


@dataclass(frozen=True, slots=True)
class TailCheck:
    """The bytes after the last whole commit."""

    tail: Tail
    damage: Damage | None = None
    wanted: int = 0
    """How many bytes the next commit needs, if its start shows that; otherwise 0."""


def is_zero(data: memoryview) -> bool:
    """Whether ``data`` holds only zero bytes."""
    if any(data[:_FIRST_BYTES]):
        return False
    size, step = len(data), len(_ZERO_CHUNK)
    return all(bytes(data[at : at + step]) == _ZERO_CHUNK[: size - at] for at in range(0, size, step))


def trailing_checksums(data: memoryview, position: int, total: int) -> tuple[int, int]:
    """The checksum of the commit of ``total`` bytes at ``position``, and the checksum that its last bytes state."""
    end = position + total - CHECKSUM_BYTES
    return crc32c(data[position:end]), int.from_bytes(data[end : end + CHECKSUM_BYTES], "little")


def check_tail(
    frame: CommitFrame,
    name: str,
    data: memoryview,
    offset: int,
    position: int,
    expect: Expectation,
    checksums: Checksums = trailing_checksums,
) -> TailCheck:
    """Check the bytes at ``position``, which are not a whole, good commit that follows.

    ``data`` starts at byte ``offset`` of log segment ``name``. ``checksums`` gives a commit's computed checksum and its
    stated one. Raises CorruptCommitError and SequenceGapError as ``LogFormat.scan``.
    """
    left = len(data) - position
    if not left:
        return TailCheck(Tail.NOTHING)
    if is_zero(data[position:]):
        return TailCheck(Tail.ZEROS)
    damage = frame.find_fault(data, offset, position, expect)
    if left < frame.prefix_bytes:
        if damage:
            return TailCheck(Tail.DAMAGED, damage)
        short = Damage(offset + position, "length", f"at least {frame.min_commit_bytes}", left)
        return TailCheck(Tail.INCOMPLETE, short, frame.min_commit_bytes)
    first, following, total = frame.measure(data, position)
    whole = frame.min_commit_bytes <= total <= min(left, MAX_COMMIT_BYTES)
    computed, stated = checksums(data, position, total) if whole else (0, 0)
    if damage and whole and computed == stated:
        # The checksum holds, so these bytes are the ones that were written: a crash does not explain them.
        if damage.what == "sequence" and expect.sequence is not None:
            raise SequenceGapError(name, offset + position, expect.sequence, first)
        raise corrupt(name, damage)
    if damage is None and not whole:
        # A crash can leave this. Only a commit that would continue the log proves that the length was damaged: the
        # payload itself may hold commits of another log.
        damage = Damage(offset + position, "length", f"up to the {left} bytes there", total)
        if frame.find_commit(data, position, expect, exact=following) is not None:
            raise corrupt(name, damage)
        return TailCheck(Tail.INCOMPLETE, damage, total)
    wanted = 0 if damage else total
    if damage is None:
        damage = Damage(offset + position, "checksum", f"{computed:08x}", f"{stated:08x}")
    if frame.find_commit(data, position, expect) is not None:
        raise corrupt(name, damage)
    return TailCheck(Tail.DAMAGED, damage, wanted)


def corrupt(name: str, damage: Damage) -> CorruptCommitError:
    """The error that reports ``damage`` in log segment ``name``."""
    return CorruptCommitError(name, damage.offset, damage.what, damage.expected, damage.actual)
