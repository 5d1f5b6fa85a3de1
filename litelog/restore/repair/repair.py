"""The repair of a damaged replica, for a plan and for the restore that it describes. See README.md in this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.errors import ReplicaGapError
from litelog.objects.chain import ChainState, Identity
from litelog.objects.layout import snapshot_key
from litelog.restore.plan import RepairedRange
from litelog.restore.repair.fallbacks import FallbackBytes
from litelog.restore.repair.header_reconstruction import UNKNOWN, HeaderReconstruction
from litelog.restore.repair.lost_snapshots import find_contents
from litelog.restore.repair.sealed_repair import SealedLookup, SealedRepair
from litelog.restore.repair.wal_repair import WalRepair

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.errors import CorruptObjectError
    from litelog.formats import LogFormat
    from litelog.objects.claim import Claim
    from litelog.reading.contents import GenerationContents
    from litelog.restore.commit_writer import CommitWriterPool, SegmentFiles
    from litelog.restore.object_lookup import Lookup
    from litelog.restore.plan import RestorePlan
    from litelog.restore.repair.fallbacks import FallbackReplicas
    from litelog.restore.sealed_restore import SealedRestorer, SealedWriter
    from litelog.restore.wal_restore import WalRestorer, WalWriter
    from litelog.stores.replica_client import ReplicaClient, WalSegmentInfo


class Repair:
    """Replaces lost data of a replica by data of its other objects, and of other replicas.

    Plan and restore assume an intact replica. This class wraps each of their parts that reads objects. The
    wrapper also replaces data that the part reports as damaged or missing.
    """

    def __init__(self, client: ReplicaClient, log_format: LogFormat, fallbacks: FallbackReplicas | None = None) -> None:
        """``fallbacks``: the other replicas. Without them only sealed segments and snapshots can be replaced, from the
        replica's own WAL segments and sealed segments."""
        self._client = client
        self._format = log_format
        self._fallbacks = fallbacks
        self._bytes = FallbackBytes(client, fallbacks)

    def contents(
        self, claim: Claim, held: GenerationContents | None = None
    ) -> tuple[GenerationContents, tuple[CorruptObjectError, ...]]:
        """Find a generation's contents, and the damage that they work around.

        Raises CorruptObjectError or ReplicaGapError if it lost a snapshot, and nothing replaces that.
        """
        return find_contents(self._client, claim, around=self._fallbacks is not None, held=held)

    def repairing_lookup(self, lookup: Lookup, claim: Claim, wal: Sequence[WalSegmentInfo]) -> Lookup:
        """Wrap ``lookup``, so that it also works for lost objects. ``wal``: the WAL segments; more may be added."""
        lookup = SealedLookup(lookup, self._bytes, self._format)
        if self._fallbacks is None:
            return lookup
        return HeaderReconstruction(lookup, claim, wal, self._format, self._fallbacks)

    def first_link(self, plan: RestorePlan) -> tuple[ChainState, tuple[RepairedRange, ...]]:
        """The state of the chain before the WAL segments of ``plan``, and the objects that were lost there."""
        base = plan.base
        if base.snapshot is not None or self._fallbacks is None:
            return base.link(), ()
        key = snapshot_key(base.start.generation, base.start.index)
        known = any(error.key == key for error in plan.lost)
        # The snapshot holds no bytes of the log. Only its digest, which the first WAL segment names, is missing.
        link = ChainState(Identity.of(base.claim), base.claim.first, base.start, UNKNOWN)
        return link, () if known else (RepairedRange(key, str(ReplicaGapError(key))),)

    def repairing_wal(
        self, wal: WalRestorer, plan: RestorePlan, files: SegmentFiles, runs: CommitWriterPool
    ) -> WalWriter:
        """Wrap ``wal``, which restores the WAL segments of ``plan``, so that it also replaces lost ones. It writes to
        ``files`` through ``runs``."""
        if self._fallbacks is None:
            return wal
        return WalRepair(wal, self._client, plan, self._fallbacks, self._format, files, runs)

    def repairing_sealed(self, sealed: SealedRestorer, files: SegmentFiles) -> SealedWriter:
        """Wrap ``sealed``, which restores sealed segments into ``files``, so that it also replaces lost ones."""
        return SealedRepair(sealed, self._bytes, self._format, files)
