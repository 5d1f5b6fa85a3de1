"""The stages of an owner that begins a generation: what it has done, and what it knows by then.

``ownership`` takes the steps between them, in this order: ClaimDue, ClaimChosen, ClaimCreated, ClosedBelow,
BacklogSealed, GenerationBegun. litelog/shipping/README.md#stages-of-an-owner says what each step does, and which steps
of the protocol models it stands for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from litelog.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.log.source_position import SourcePosition
    from litelog.objects.claim import Claim
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.reading.generations import GenerationEnd
    from litelog.shipping.events import SnapshotWritten
    from litelog.shipping.state import Claimed, ReplicaState, Running


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a generation begins, and from where in the log it ships."""

    reason: str | None = None
    """Why the last generation cannot continue; None if nothing prevents it."""
    start_file: str = ""
    """The log segment with which it begins; empty: the log's first one."""
    forked: bool = False
    """Whether the log's history forked, so that the new generation diverges."""

    @property
    def diverges(self) -> bool:
        """Whether the new generation diverges, no matter what the log holds of its predecessor."""
        return bool(self.start_file) or self.forked


@dataclass(frozen=True, slots=True)
class ClaimDue:
    """A claim is to be chosen. ``state``: what this owner saved last; None if it is lost or was never saved."""

    state: ReplicaState | None
    cause: Cause = Cause()


@dataclass(frozen=True, slots=True)
class ClaimChosen:
    """The saved state names the claim. It may exist already: an answer was lost, or an earlier run put it."""

    state: Claimed
    cause: Cause = Cause()
    is_loaded: bool = False
    """Whether the claim comes from the state folder: an earlier try chose it."""

    @property
    def claim(self) -> Claim:
        return self.state.claim


@dataclass(frozen=True, slots=True)
class ClaimCreated:
    """The claim is in the replica, once."""

    state: Claimed
    cause: Cause

    @property
    def claim(self) -> Claim:
        return self.state.claim


@dataclass(frozen=True, slots=True)
class ClosedBelow:
    """All generations below are closed, and the claim names the generation that readers take."""

    state: Claimed
    predecessor: GenerationEnd | None
    known: Sequence[SnapshotEntry]
    """The predecessor's sealed segments that the replica still holds."""
    number: int | None = None
    """The number of the log's first record, if the predecessor's WAL segments state it and the source does not."""

    @property
    def claim(self) -> Claim:
        return self.state.claim


@dataclass(frozen=True, slots=True)
class BacklogSealed:
    """All sealed segments that the first snapshot names are durable."""

    closed: ClosedBelow
    entries: tuple[SnapshotEntry, ...]
    place: SourcePosition
    """The position at which reading of the log continues after them."""


@dataclass(frozen=True, slots=True)
class GenerationBegun:
    """The first snapshot is durable, and no newer claim came before it: the owner ships."""

    state: Running
    snapshot: SnapshotWritten | None = None
    """The first snapshot, if it was written just now; None if an existing generation continues."""
    replicated: bool = False
    """Whether log segments were noted as sealed and named by that snapshot."""


Stage: TypeAlias = ClaimDue | ClaimChosen | ClaimCreated | ClosedBelow | BacklogSealed | GenerationBegun
