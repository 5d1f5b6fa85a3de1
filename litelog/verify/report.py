"""The result of a verification as a value: for people, for programs, and for the daemon's status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litelog.dataclass import dataclass
from litelog.units import format_iso

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.objects.claim import Claim
    from litelog.verify.chain import ChainExtent
    from litelog.verify.findings import Anomaly, Findings, Scope, VersionsChecked
    from litelog.verify.inventory import ListedObjects
    from litelog.verify.local_compare import Comparison
    from litelog.verify.snapshots import KnownSnapshots


@dataclass(frozen=True, slots=True)
class VerifiedGeneration:
    """The contents of one generation in a replica."""

    generation: str
    relation: str | None
    """Its relation to its predecessor; None without a readable claim."""
    ended: bool
    end: str | None
    """The position of its next slot, or of its terminal; None if that is damaged."""
    next: int | None
    """The sequence after its last record."""
    covered: int | None
    """The index of its newest snapshot."""
    snapshots: int
    sealed_segments: int
    wal_segments: int

    @classmethod
    def of(
        cls, held: ListedObjects, claim: Claim | None, base: KnownSnapshots, extent: ChainExtent
    ) -> VerifiedGeneration:
        """Make it from the parts of a verification."""
        end = None if extent.slot is None else str(extent.slot)
        relation = None if claim is None else str(claim.relation)
        counts = (len(base.listed), held.sealed, held.wal_segments)
        return cls(held.name, relation, extent.ended, end, extent.next, base.covered, *counts)

    def as_json(self) -> dict[str, Any]:
        """The contents as JSON values, for programs."""
        return {
            "generation": self.generation,
            "relation": self.relation,
            "ended": self.ended,
            "position": self.end,
            "next": self.next,
            "snapshot_index": self.covered,
            "snapshots": self.snapshots,
            "sealed_segments": self.sealed_segments,
            "wal_segments": self.wal_segments,
        }


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The result of a verification."""

    replica: str
    claims: int
    generations: tuple[VerifiedGeneration, ...]
    snapshots: int
    sealed_segments: int
    wal_segments: int
    checkpoints: int
    hidden: int
    """Objects of an encrypted replica whose contents were not judged, as no identity was given."""
    pending: int
    """Sealed segments that no snapshot names yet."""
    object_bytes: int
    content_bytes: int
    """Bytes of the log that were decompressed and checked."""
    share: float
    """The share of the contents that was requested; ``seed`` selected them."""
    seed: int
    anomalies: tuple[Anomaly, ...]
    """In the order in which they were found. At most MAX_KEPT; ``counts`` counts all."""
    counts: dict[str, int]
    """Anomalies by kind."""
    harmful: int
    """The number of anomalies that a reader may meet."""
    failures: tuple[str, ...]
    """Objects that could not be read, at most MAX_FAILURES; ``failed`` counts all."""
    failed: int
    unknown_formats: tuple[str, ...]
    """Formats that are not installed here, whose commits were not judged."""
    against: Comparison | None
    """The comparison with the local log, if it was requested."""
    versions: VersionsChecked
    """Whether earlier versions of objects were looked at."""
    seconds: float

    @property
    def is_sound(self) -> bool:
        """Whether everything was read and judged, and nothing that a reader may meet is damaged or missing."""
        return not (self.harmful or self.failed or self.unknown_formats)

    @property
    def is_empty(self) -> bool:
        """Whether the store holds nothing of a replica."""
        return not (self.claims or self.generations or self.failed or self.harmful)

    @classmethod
    def of(
        cls,
        url: str,
        findings: Findings,
        scope: Scope,
        generations: Sequence[VerifiedGeneration],
        against: Comparison | None,
        seconds: float,
    ) -> VerifyReport:
        """Make it from the parts of a verification."""
        counts, anomalies = findings.counts, findings.anomalies
        return cls(
            replica=url,
            claims=counts.claims,
            generations=tuple(generations),
            snapshots=counts.snapshots,
            sealed_segments=counts.sealed_segments,
            wal_segments=counts.wal_segments,
            checkpoints=counts.checkpoints,
            hidden=counts.hidden,
            pending=counts.pending,
            object_bytes=counts.object_bytes,
            content_bytes=counts.content_bytes,
            share=scope.share,
            seed=scope.seed,
            anomalies=tuple(anomalies.kept),
            counts={str(kind): count for kind, count in sorted(anomalies.counts.items())},
            harmful=anomalies.harmful,
            failures=tuple(map(str, findings.failures)),
            failed=findings.failed,
            unknown_formats=tuple(sorted(findings.unknown_formats)),
            against=against,
            versions=findings.versions,
            seconds=seconds,
        )

    def as_json(self) -> dict[str, Any]:
        """The report as JSON values, for programs."""
        since = self.versions.tampered_since
        return {
            "replica": self.replica,
            "claims": self.claims,
            "generations": [each.as_json() for each in self.generations],
            "snapshots": self.snapshots,
            "sealed_segments": self.sealed_segments,
            "wal_segments": self.wal_segments,
            "checkpoints": self.checkpoints,
            "hidden_count": self.hidden,
            "pending_segments": self.pending,
            "stored_bytes": self.object_bytes,
            "log_bytes": self.content_bytes,
            "share": self.share,
            "seed": self.seed,
            "anomalies": [each.as_json() for each in self.anomalies],
            "anomaly_counts": self.counts,
            "harmful_count": self.harmful,
            "unreadable": self.failures,
            "unreadable_count": self.failed,
            "unknown_formats": self.unknown_formats,
            "against": None if self.against is None else self.against.as_json(),
            "versions_checked": self.versions.is_done,
            "versions_error": self.versions.error,
            "tampered_since": None if since is None else format_iso(since),
            "seconds": self.seconds,
        }
