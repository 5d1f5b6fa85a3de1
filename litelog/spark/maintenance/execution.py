"""Carries out a maintenance plan: publishes merged log segments, then deletes orphans, then prunes.

It can die at any request. Until the snapshot of the merged log segments is durable, readers see what they saw before;
then they see the same records in fewer log segments. What it leaves behind is found as orphans the next time.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import CorruptionError, LitelogError
from litelog.objects.claim import Relation, batch_owner
from litelog.objects.layout import Fencing
from litelog.reading.generations import find_newer, find_tip, newest_claims
from litelog.retention.deletion import AT_ONCE, delete_planned
from litelog.retention.facts import Gathering
from litelog.shipping.claiming import close_below, require_fencing
from litelog.spark.maintenance.merging import write_merged
from litelog.spark.maintenance.plan import MaintenancePlan, WriteInProgressError, plan_maintenance
from litelog.spark.sink.plan import OvertakenError, claim_first, new_batch_claim, require_latest
from litelog.spark.sink.publish import begin_with, find_sealed
from litelog.spark.sink.segments import new_write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from litelog.codec.frame_codecs import Compression
    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.reading.generations import GenerationEnd
    from litelog.spark.maintenance.plan import MaintenanceOptions
    from litelog.stores.replica_client import ReplicaClient
    from litelog.system.clock import Clock

PARALLELISM = 4
"""Log segments that are merged in parallel, each in a few frames of memory."""


@dataclass(frozen=True, slots=True)
class Maintained:
    """The outcome, after the plan that it began with."""

    plan: MaintenancePlan
    generation: Generation | None
    """The generation that was begun; None if none was needed."""
    deleted: int
    """Orphans and pruned objects."""
    freed: int
    """Their bytes."""


def maintain(
    client: ReplicaClient,
    options: MaintenanceOptions,
    clock: Clock,
    on_plan: Callable[[MaintenancePlan], None] = lambda _: None,
    progress: Callable[[int, int], None] = lambda _done, _whole: None,
    walk: Callable[[int], None] | None = None,
) -> Maintained:
    """Merge, delete orphans and prune.

    ``on_plan`` is called first, with the plan. ``progress(done, total)`` is called after each merged log segment, in
    bytes of the log. ``walk``: as ``plan_maintenance`` takes it.

    Raises:
        WriteInProgressError: a write may still run; nothing was changed.
        OvertakenError: a write or a daemon began meanwhile. Readers see no difference.
        FencedError, CorruptionError, StoreError: as ``plan_maintenance``; also while objects are merged.
    """
    require_fencing(client, Fencing.REQUIRED)
    gathering = Gathering(client)
    plan = plan_maintenance(client, options, clock.now(), gathering, walk)
    on_plan(plan)
    if plan.is_empty:
        return Maintained(plan, None, 0, 0)
    if plan.is_running:
        raise WriteInProgressError(client.url, plan.newest, options.grace)
    last = plan.newest
    if plan.must_claim:
        last = _begin(client, plan, clock, progress, options.compression)
    deletion = _Deletion(client, last)
    deletion.delete_orphans(plan)
    if plan.retention is not None:
        now_due = plan if last is plan.newest else plan_maintenance(client, options, clock.now(), gathering)
        if now_due.retention is not None:
            deletion.prune(now_due)
    return Maintained(plan, None if last is plan.newest else last.generation, deletion.count, deletion.freed)


def _begin(
    client: ReplicaClient,
    plan: MaintenancePlan,
    clock: Clock,
    progress: Callable[[int, int], None],
    compression: Compression | None,
) -> Claim:
    """Put the merged log segments, claim a generation, end those below, and publish the log in it. Returns its claim.

    Objects are put first, as a write does. So a write that is faster is not disturbed. Without a finished write nothing
    is published: then the claim only ends the dead writes.
    """
    latest = None if plan.latest is None else plan.latest.base.claim
    staged = new_write()
    try:
        entries = [] if latest is None else _merge(client, latest, plan, staged, progress, compression)
        if latest is not None:
            _require_quiet(client, latest, plan, staged)
        tip = None if latest is None else find_tip(client, latest)
        claim = _make_claim(plan, latest, tip, clock)
        if entries and entries[-1].index + 1 != claim.first:
            raise CorruptionError(f"{client.url}: generation {claim.predecessor} lacks a log segment")
        claim_first(client, claim)
    except LitelogError:
        if latest is not None and plan.merges:
            with suppress(LitelogError):  # what is left counts as an orphan later
                client.delete_sealed_segments(find_sealed(client, latest.generation, staged))
        raise
    closed = close_below(client, claim, newest_claims(client, plan.names), clock)
    require_latest(client, closed, latest)  # a write that counted as dead may have finished since
    if not entries:
        return claim
    begin_with(client, claim, entries, clock)
    return claim


def _require_quiet(client: ReplicaClient, latest: Claim, plan: MaintenancePlan, staged: range) -> None:
    """Raise OvertakenError if a write has put objects into the latest generation since the plan was made."""
    for info in client.sealed_segments(latest.generation):
        if info.index not in plan.seen and info.index not in staged:
            raise OvertakenError(client.url)


def _make_claim(plan: MaintenancePlan, latest: Claim | None, tip: GenerationEnd | None, clock: Clock) -> Claim:
    newest = plan.newest
    claim = new_batch_claim(newest.log, batch_owner(newest.log), newest.epoch + 1, max(clock.now(), newest.time))
    if latest is None or tip is None:
        return claim
    shift = -sum(len(group) - 1 for group in plan.groups)
    return replace(
        claim,
        first=tip.slot.index + shift,
        relation=Relation.CONTINUES,
        predecessor=latest.generation,
        predecessor_end=tip.slot,
        predecessor_file=tip.file,
        shift=shift,
        transactions=latest.transactions,
    )


def _merge(
    client: ReplicaClient,
    latest: Claim,
    plan: MaintenancePlan,
    staged: range,
    progress: Callable[[int, int], None],
    compression: Compression | None,
) -> list[SnapshotEntry]:
    """The entries of the log. Puts merged log segments into ``latest``'s generation, under indexes in ``staged``."""
    done, whole = 0, plan.merged_bytes

    def settle(place: tuple[int, int, Sequence[SnapshotEntry]]) -> SnapshotEntry:
        index, number, group = place
        if len(group) == 1:
            return replace(group[0], index=index)
        return replace(write_merged(client, latest, number, group, compression), index=index)

    settled: list[SnapshotEntry] = []
    first = plan.groups[0][0].index
    places = zip(count(first), staged, plan.groups, strict=False)
    with ThreadPoolExecutor(PARALLELISM, "merge") as pool:
        for entry in pool.map(settle, places):
            settled.append(entry)
            if entry.sealed_index in staged:
                done += entry.length
                progress(done, whole)
    return settled


class _Deletion:
    """Deletes objects in steps, until a newer claim than ``claim`` exists."""

    def __init__(self, client: ReplicaClient, claim: Claim) -> None:
        self._client = client
        self._claim = claim
        self.count = self.freed = 0

    def delete_orphans(self, plan: MaintenancePlan) -> None:
        """Delete what no snapshot names."""
        for start in range(0, len(plan.orphans), AT_ONCE):
            step = plan.orphans[start : start + AT_ONCE]
            self._require_newest()
            self._client.delete_sealed_segments((info.generation, info.index) for info in step)
            self.count += len(step)
            self.freed += sum(info.size for info in step)

    def prune(self, plan: MaintenancePlan) -> None:
        """Delete what the retention policy frees."""
        removals = () if plan.retention is None else plan.retention.removals
        for step in delete_planned(self._client, removals, self._require_newest):
            self.count += len(step)
            self.freed += sum(removal.size for removal in step)

    def _require_newest(self) -> bool:
        """Raise OvertakenError if there is a newer claim. A daemon that took over may name what no snapshot named."""
        if find_newer(self._client, self._claim) is not None:
            raise OvertakenError(self._client.url)
        return True
