"""The checkpoints in a replica: each has a number, and continues the one before it.

Specified in litelog/objects/README.md#checkpoints-in-a-replica.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import CorruptObjectError
from litelog.objects.checkpoint import Checkpoint, decode, fold
from litelog.objects.layout import checkpoint_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOST_SEGMENTS = 1 << 16
"""The most log segments in one checkpoint: a history with more takes several."""


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint of a replica."""

    key: str
    digest: str
    """SHA-256 of its bytes."""
    checkpoint: Checkpoint

    @property
    def number(self) -> int:
        return self.checkpoint.number or 0


@dataclass(frozen=True, slots=True)
class LinkedCheckpoints:
    """Checkpoints of which each continues the one before it, oldest first."""

    chain: Sequence[StoredCheckpoint]
    fault: str | None
    """Why the first checkpoint cannot begin the chain; None if it does."""


def as_stored(name: str, body: bytes) -> StoredCheckpoint:
    """A checkpoint as a replica holds it, from a copy of its bytes in the file ``name``. Does not check the signature.
    Raises CorruptObjectError."""
    found = decode(name, body)
    if found.number is None:
        raise CorruptObjectError(name, "is a checkpoint without a number")
    key = checkpoint_key(found.position.generation, found.number)
    return StoredCheckpoint(key, hashlib.sha256(body).hexdigest(), found)


def decode_stored(key: str, body: bytes) -> StoredCheckpoint:
    """The checkpoint that a replica holds under ``key``. Does not check the signature. Raises CorruptObjectError."""
    found = as_stored(key, body)
    if found.key != key:
        raise CorruptObjectError(key, f"is the checkpoint {found.key}")
    return found


def find_fault(before: StoredCheckpoint, after: Checkpoint) -> str | None:
    """Find the contradiction if ``after`` does not continue ``before``; None if it does."""
    older = before.checkpoint
    faults = (
        (after.previous != before.digest, f"does not name {before.key}"),
        (before.number >= (after.number or 0), f"has number {after.number}, and continues number {before.number}"),
        ((older.log, older.format) != (after.log, after.format), f"is of another log than {before.key}"),
        (after.time < older.time, f"is older than {before.key}"),
        (after.reason is None and not _extends(older, after), f"states another history than {before.key}"),
    )
    return next((what for is_wrong, what in faults if is_wrong), None)


def _extends(older: Checkpoint, newer: Checkpoint) -> bool:
    """Whether a checkpoint's log segments begin with the last log segment of another checkpoint, and follow those
    before it."""
    last, first = older.segments[-1], newer.segments[0]
    earlier = (older.earlier + len(older.segments) - 1, fold(older.history, older.segments[:-1]))
    if (newer.earlier, newer.history) != earlier or first.file != last.file:
        return False
    return first.length > last.length or first == last


def link(stored: Iterable[StoredCheckpoint], end: StoredCheckpoint) -> LinkedCheckpoints:
    """Walk from ``end`` back to the beginning, or to the first fault. Each checkpoint is found by its digest."""
    by_digest = {each.digest: each for each in stored}
    chain, fault = [end], None
    while (previous := chain[-1].checkpoint.previous) is not None:
        before = by_digest.get(previous)
        if before is None:
            fault = f"continues a checkpoint that is missing: the one with the SHA-256 {previous}"
            break
        fault = find_fault(before, chain[-1].checkpoint)
        if fault is not None:
            break
        chain.append(before)
    return LinkedCheckpoints(chain[::-1], fault)


def newest_first(stored: Iterable[StoredCheckpoint]) -> list[StoredCheckpoint]:
    """The checkpoints in the order in which they count: by number, and then by the age of their generations."""
    return sorted(stored, key=lambda each: (each.number, each.checkpoint.position.generation), reverse=True)


def join(chain: Sequence[StoredCheckpoint]) -> Checkpoint:
    """The newest history of a chain as one checkpoint, with all its log segments: the last checkpoint of ``chain``,
    with what those before it state."""
    begins = max(at for at, each in enumerate(chain) if at == 0 or each.checkpoint.earlier == 0)
    newest = [each.checkpoint for each in chain[begins:]]
    segments = [segment for each in newest[:-1] for segment in each.segments[:-1]]
    return replace(newest[-1], segments=(*segments, *newest[-1].segments))
