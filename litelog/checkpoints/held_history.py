"""The latest history of a replica, log segment by log segment: makes checkpoints of it, and compares it with them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from litelog.dataclass import dataclass
from litelog.errors import CorruptionError, NotFoundError, UnknownVersionError
from litelog.objects.checkpoint import Checkpoint, CheckpointSegment
from litelog.objects.claim import Relation
from litelog.reading.generations import read_claim_of
from litelog.restore.choose_replica import choose
from litelog.restore.generation_bytes import GenerationBytes
from litelog.restore.plan import Target

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.formats import LogFormat
    from litelog.objects.position import Position
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.stores.replica_client import ReplicaClient


@dataclass(frozen=True, slots=True)
class CheckpointComparison:
    """Whether a replica still holds what a checkpoint, or a position, says that it held."""

    position: Position | None
    """The expected position; None without a checkpoint."""
    time: int | None
    """When the checkpoint was made, in microseconds since 1970; None for a position alone."""
    signer: str | None
    """The public key that signed it, in hex."""
    compared: int
    """The number of log segments whose bytes are as expected."""
    dropped: int
    """The number of those that are older than all that the replica holds now."""
    differences: tuple[str, ...]
    """The differences: what is missing, or has other bytes."""
    number: int | None = None
    """The checkpoint's number, if it is the replica's own."""
    chain: int = 0
    """How many checkpoints of the replica are one chain up to this one."""

    @property
    def is_unjudged(self) -> bool:
        """Whether nothing was left to compare, and nothing is known to be wrong."""
        return not self.differences and not self.compared and (self.dropped > 0 or self.chain > 0)

    def as_json(self) -> dict[str, Any]:
        """The comparison as JSON values, for programs. The time is in microseconds since 1970."""
        return {
            "number": self.number,
            "chain_count": self.chain,
            "position": None if self.position is None else str(self.position),
            "time": self.time,
            "signer": self.signer,
            "compared_segments": self.compared,
            "dropped_segments": self.dropped,
            "differences": self.differences,
        }


@dataclass(frozen=True, slots=True)
class _Held:
    bytes: GenerationBytes
    size: int
    entry: SnapshotEntry | None

    def digest(self, name: str, length: int) -> str:
        """SHA-256 of the first ``length`` bytes. Reads them, unless they are a whole sealed segment."""
        if self.entry is not None and self.entry.length == length:
            return self.entry.digest
        sha = hashlib.sha256()
        for run in self.bytes.chunks(name, 0, length):
            sha.update(run.data)
        return sha.hexdigest()


class HeldHistory:
    """The latest history of a replica, with the part that it continues. What it states is not verified."""

    def __init__(self, client: ReplicaClient, open_format: Callable[[str], LogFormat]) -> None:
        """Find it. Raises NothingToRestoreError, CorruptionError and StoreError."""
        choice = choose([client], Target(), open_format)
        self._client = client
        self._format = choice.log_format
        self.plan = choice.plan
        self.claim = choice.plan.claim
        self._held: dict[str, _Held] = {}
        for part in self.plan.parts:
            entries = {piece.entry.file: piece.entry for piece in part.sealed}
            found = GenerationBytes(client, part.claim, self._format, part.pieces, list(entries.values()))
            self._held |= {file.name: _Held(found, file.size, entries.get(file.name)) for file in part.files}

    def checkpoint(self, time: int, following: int | None, previous: str | None) -> Checkpoint:
        """State what it holds. Reads what is not sealed.

        Args:
            time: Now, in microseconds since 1970.
            following: The sequence after the last record.
            previous: SHA-256 of the checkpoint's file with which this state was compared.
        """
        segments = [
            CheckpointSegment(name, held.size, held.digest(name, held.size)) for name, held in self._held.items()
        ]
        claim = self.claim
        return Checkpoint(claim.log, claim.format, self.plan.end, time, tuple(segments), following, previous)

    def compare(self, expected: Checkpoint) -> CheckpointComparison:
        """Compare it with a checkpoint. Reads what the checkpoint states of log segments that have grown since.

        Raises StoreError.
        """
        differences: list[str] = []
        compared = dropped = 0
        claim = self.claim
        if (claim.log, claim.format) != (expected.log, expected.format):
            stated = f"log {expected.log} of format {expected.format}"
            differences.append(f"holds log {claim.log} of format {claim.format}, not {stated}")
        oldest = min((self._order(name) for name in self._held), default=())
        for segment in expected.segments if not differences else ():
            held = self._held.get(segment.file)
            if held is None and self._order(segment.file) < oldest:
                dropped += 1
                continue
            difference = f"lacks {segment.file}" if held is None else _differs(held, segment)
            compared += difference is None
            if difference is not None:
                differences.append(difference)
        return CheckpointComparison(
            expected.position, expected.time, expected.key, compared, dropped, tuple(differences)
        )

    def reach(self, expected: Position) -> CheckpointComparison:
        """Whether it has reached a position in its own generation, or in a generation that it continues. Raises
        StoreError."""
        difference = self._behind(expected)
        return CheckpointComparison(expected, None, None, 0, 0, () if difference is None else (difference,))

    def _behind(self, expected: Position) -> str | None:
        claim, shift = self.claim, 0
        while claim.generation != expected.generation:
            if claim.relation is not Relation.CONTINUES or claim.predecessor is None or claim.merges:
                return f"is at {self.plan.end}, which does not continue generation {expected.generation}"
            shift += claim.shift
            try:
                claim = read_claim_of(self._client, claim.predecessor, claim)
            except (NotFoundError, CorruptionError) as error:
                return f"cannot show that it continues generation {expected.generation}: {error}"
        wanted = (expected.index + shift, expected.offset)
        end = self.plan.end
        return None if (end.index, end.offset) >= wanted else f"ends at {end}, before {expected}"

    def _order(self, name: str) -> tuple[object, ...]:
        return self._format.segment_order(name) or ()


def _differs(held: _Held, expected: CheckpointSegment) -> str | None:
    """Describe how a log segment differs from what is expected; None if it does not."""
    if held.size < expected.length:
        return f"holds {held.size} bytes of {expected.file}, and held {expected.length}"
    try:
        found = held.digest(expected.file, expected.length)
    except (CorruptionError, UnknownVersionError) as error:
        return f"{expected.file} cannot be read: {error}"
    return None if found == expected.digest else f"holds other bytes of {expected.file} than before"
