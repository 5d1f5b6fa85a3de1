"""Writes the snapshots of a generation after its first one.

Specified in litelog/shipping/README.md#snapshots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.errors import CorruptObjectError, DivergedError, ExistsError
from litelog.formats.capabilities import has_manifest
from litelog.log.side_files import read_side_files
from litelog.log.source import SegmentFolder
from litelog.objects import snapshot as snapshots
from litelog.reading.contents import read_snapshot
from litelog.shipping.context import SnapshotPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from litelog.objects.claim import Claim
    from litelog.objects.snapshot import Snapshot
    from litelog.shipping.archive_state import ShippedSegment
    from litelog.shipping.context import ReplicaContext


class LostSnapshotError(DivergedError):
    """A durable snapshot is gone, and its entries with it: another generation must describe the log."""


class Snapshots:
    """Writes the later snapshots of one generation. Used by one thread at a time."""

    def __init__(self, context: ReplicaContext, claim: Claim) -> None:
        source = context.source
        self._client = context.client
        self._claim = claim
        self._generation = claim.generation
        self._folder = source.folder
        self._format = source.format
        self._clock = context.clock
        self._policy = context.settings.snapshot_policy
        self._names = SegmentFolder(source.folder, source.format, context.clock, reports=False)

    def write_next(
        self,
        newest: Snapshot,
        sealed: Sequence[ShippedSegment],
        first_kept: Callable[[Snapshot], int] = lambda made: made.first,
    ) -> Snapshot:
        """Write the snapshot of ``newest`` and all that was sealed after it. Return it once it is durable.

        With policy ``keep``, the snapshot begins at index ``first_kept(snapshot)``. It drops only entries that an older
        snapshot names, since no other snapshot has the new ones.

        Adopts an existing snapshot that names the same. Raises CorruptObjectError, with its key, for any other one.
        """
        entries = [segment.sealed for segment in sealed if segment.sealed is not None]
        made = snapshots.extend(
            newest,
            entries,
            created=self._clock.now(),
            chain=sealed[-1].chain,
            side_files=read_side_files(self._folder, self._format),
        )
        mirrors = self._policy is SnapshotPolicy.MIRROR
        if has_manifest(self._format):
            first = made.first  # without its first log segment, the log is useless
        else:
            first = self.first_at_source(made) if mirrors else first_kept(made)
        made = snapshots.drop_before(made, min(first, newest.next))
        try:
            self._client.write_snapshot(self._generation, made.next, [snapshots.encode(made)])
        except ExistsError:
            return self._adopt(made)
        return made

    def is_own(self, existing: Snapshot, sealed: Sequence[ShippedSegment]) -> bool:
        """Whether an earlier try, whose answer was lost, wrote the existing snapshot with entries of ``sealed``."""
        last = next((segment for segment in sealed if segment.index == existing.next - 1), None)
        if last is None or (existing.owner, existing.chain) != (self._claim.owner, last.chain):
            return False
        entries = {segment.index: segment.sealed for segment in sealed}
        return all(entry == entries.get(entry.index, entry) for entry in existing.segments)

    def _adopt(self, made: Snapshot) -> Snapshot:
        existing, _ = read_snapshot(self._client, self._claim, made.next)
        first = max(existing.first, made.first)
        same = existing.segments[first - existing.first :] == made.segments[first - made.first :]
        if (existing.owner, existing.chain) != (made.owner, made.chain) or not same:
            raise CorruptObjectError(made.key, "the existing snapshot is not the one that was written")
        return existing

    def first_at_source(self, made: Snapshot) -> int:
        """Return the first index whose log segment, or an older one, the source still has.

        Raises SourceMissingError.
        """
        self._names.require_log()
        oldest = self._names.order_of(self._names.all()[0])
        for entry in made.segments:
            order = self._format.segment_order(entry.file)
            if order is not None and order >= oldest:
                return entry.index
        return made.next
