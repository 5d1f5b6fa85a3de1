"""Decides what maintenance does to a replica, from listings, claims and snapshots. Changes nothing."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import field
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import ConfigError, CorruptObjectError, FencedError, NoReplicaError, NotFoundError
from litelog.formats.litelog import LitelogFormat
from litelog.objects.claim import Writer
from litelog.objects.position import epoch_of
from litelog.reading.contents import list_pieces
from litelog.reading.generations import read_claim
from litelog.reading.latest import find_latest
from litelog.reading.sealed_reader import read_listed_footer
from litelog.retention.facts import Gathering
from litelog.retention.plan import plan_retention
from litelog.retention.policy import GRACE_SECONDS, RetentionPolicy, grace_start
from litelog.spark.maintenance.merging import choose_merges, merged_length
from litelog.spark.sink.options import MAX_SEGMENT_BYTES
from litelog.units import MICROSECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from litelog.codec.frame_codecs import Compression
    from litelog.objects.claim import Claim
    from litelog.objects.position import ClaimName, Generation
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.reading.contents import GenerationContents
    from litelog.retention.facts import GenerationFacts, ReplicaFacts
    from litelog.retention.plan import RetentionPlan
    from litelog.stores.replica_client import IndexedInfo, ReplicaClient

WRITE_SECONDS = 24 * 3600.0
"""By default, a write that has published nothing counts as dead after this many seconds."""

SEGMENT_BYTES = 64 << 20
"""The most bytes of a merged log segment, by default: as many as a write puts in one."""


class NotBatchError(FencedError):
    """A daemon owns the replica. Maintenance is for replicas that only Spark writes."""

    def __init__(self, replica: str, claim: Claim) -> None:
        super().__init__(
            f"{replica}: generation {claim.generation} belongs to a daemon on {claim.host}, which merges nothing and "
            "prunes by itself, as its configuration says; if that daemon has stopped for good, run litelog prune where "
            "its state is, or let a Spark job take the replica over (option takeover=true)"
        )


class WriteInProgressError(FencedError):
    """A write has claimed the replica, or put objects there, has published nothing, and may still run."""

    def __init__(self, replica: str, claim: Claim, grace: float) -> None:
        self.claim = claim
        super().__init__(
            f"{replica}: a write has begun in generation {claim.generation} and has not finished: run this again after "
            f"it. A write counts as dead when it was silent for {grace / 3600:g} hours (--grace)"
        )


@dataclass(frozen=True, slots=True)
class MaintenanceOptions:
    """The requested work, and its limits."""

    policy: RetentionPolicy = field(default_factory=RetentionPolicy)
    """Without limits, nothing is pruned."""
    segment_bytes: int = SEGMENT_BYTES
    """The most bytes of a merged log segment; 0 merges none."""
    grace: float = WRITE_SECONDS
    """Seconds after which a write that has published nothing counts as dead."""
    compression: Compression | None = None
    """Of merged log segments; None: they keep the codec of the first log segment that they replace."""

    def __post_init__(self) -> None:
        """ValueError for a grace that is too short, or a size that no log segment has; ConfigError if the compression
        needs a package that is missing."""
        if self.grace < GRACE_SECONDS:
            raise ValueError("grace must be at least 1h")
        if not 0 <= self.segment_bytes <= MAX_SEGMENT_BYTES:
            raise ValueError("segment-bytes must be at most 1GiB")
        if self.compression is not None and (problem := self.compression.problem()) is not None:
            raise ConfigError(problem)


@dataclass(frozen=True, slots=True)
class MaintenancePlan:
    """The plan of the maintenance of a replica."""

    names: tuple[ClaimName, ...]
    """All claims, when this was planned. A newer one makes the plan void."""
    newest: Claim
    """The newest claim."""
    latest: GenerationContents | None
    """The generation that readers take; None if no write was ever finished."""
    groups: tuple[tuple[SnapshotEntry, ...], ...]
    """Its log segments, those together that become one."""
    orphans: tuple[IndexedInfo, ...]
    """Sealed segments that no snapshot names, of writes that are over."""
    retention: RetentionPlan | None
    """The objects that the policy deletes; None without limits."""
    seen: frozenset[int]
    """The indexes of all sealed segments of the latest generation."""
    is_newest_begun: bool
    """Whether the newest claim's write was finished. Then only its own generation may hold objects of a later write."""
    is_running: bool
    """Whether a write may still run."""
    unreadable: int = 0
    """Snapshots that cannot be read. While there is one, no sealed segment counts as unnamed."""

    @property
    def merges(self) -> tuple[tuple[SnapshotEntry, ...], ...]:
        """The groups of several log segments."""
        return tuple(group for group in self.groups if len(group) > 1)

    @property
    def merged_bytes(self) -> int:
        """Bytes of the log that are written again."""
        return sum(map(merged_length, self.merges))

    @property
    def orphan_bytes(self) -> int:
        """Bytes of the unnamed sealed segments."""
        return sum(info.size for info in self.orphans)

    @property
    def must_claim(self) -> bool:
        """Whether a claim must be made: to publish what was merged, or to end a write whose orphans are deleted."""
        newest = (self.newest.epoch, self.newest.epoch - (not self.is_newest_begun))
        return bool(self.merges) or any(epoch_of(info.generation) in newest for info in self.orphans)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be done."""
        return not (self.merges or self.orphans or (self.retention is not None and self.retention.removals))


def plan_maintenance(
    client: ReplicaClient,
    options: MaintenanceOptions,
    now: int,
    gathering: Gathering | None = None,
    walk: Callable[[int], None] | None = None,
) -> MaintenancePlan:
    """Plan the maintenance of a replica at ``now``, in microseconds since 1970. ``walk`` is called with the number of
    generations before any of them is read.

    Costs three listings for each generation, and a GET for each claim, for each snapshot that ``gathering`` has not
    read, and for each unnamed sealed segment of the newest generation.

    Raises:
        NoReplicaError: the place has no claim.
        NotBatchError: a daemon made the newest claim, or the generation that readers take.
        CorruptionError: an object that shows what the replica holds is damaged or missing.
        StoreError: a request to the store failed.
    """
    names = client.claims()
    if not names:
        raise NoReplicaError(client.url)
    newest = read_claim(client, names[-1])
    _require_batch(client, newest)
    facts = (gathering or Gathering(client)).gather(walk=walk)
    if facts is None:
        return _plan_unfinished(client, options, names, newest, now)
    latest = list_pieces(client, find_latest(client))
    _require_batch(client, latest.base.claim)
    if latest.gap is not None:
        raise latest.gap
    begun = {generation.name for generation in facts.generations if generation.snapshots}
    orphans = tuple(_orphans(client, facts.generations, names, _named(facts)))
    running = _running(client, newest, begun, orphans, now - int(options.grace * MICROSECONDS))
    return MaintenancePlan(
        names=tuple(names),
        newest=newest,
        latest=latest,
        groups=tuple(_groups(latest, options, now)),
        orphans=tuple(info for info in orphans if epoch_of(info.generation) not in running),
        retention=plan_retention(facts, options.policy, now) if options.policy.limits else None,
        seen=frozenset(
            info.index
            for generation in facts.generations
            if generation.name == latest.base.claim.generation
            for info in generation.sealed
        ),
        is_newest_begun=newest.generation in begun,
        is_running=bool(running),
        unreadable=sum(one.names is None for generation in facts.generations for one in generation.snapshots),
    )


def _plan_unfinished(
    client: ReplicaClient, options: MaintenanceOptions, names: list[ClaimName], newest: Claim, now: int
) -> MaintenancePlan:
    """The plan for a replica in which no write was ever finished. A late snapshot may name anything, so the
    plan keeps all."""
    generations = client.generations()
    late = sum(1 for name in generations for _ in client.snapshots(name))
    left = [info for name in generations for info in client.sealed_segments(name)] if not late else []
    running = _running(client, newest, set(), left, now - int(options.grace * MICROSECONDS))
    return MaintenancePlan(
        names=tuple(names),
        newest=newest,
        latest=None,
        groups=(),
        orphans=() if running else tuple(left),
        retention=None,
        seen=frozenset(),
        is_newest_begun=False,
        is_running=bool(running),
        unreadable=late,
    )


def _require_batch(client: ReplicaClient, claim: Claim) -> None:
    if claim.writer is not Writer.BATCH or claim.format != LitelogFormat.name:
        raise NotBatchError(client.url, claim)


def _running(
    client: ReplicaClient, newest: Claim, begun: set[Generation], orphans: Sequence[IndexedInfo], dead: int
) -> set[int]:
    """The epochs of the generations into which a write that may still run puts objects; empty if none may run.

    ``dead``: a write that did nothing after this time, in microseconds since 1970, is dead.

    A write puts its objects into the newest generation, or into a generation that it has claimed. Its last claim is
    the newest claim, and has no snapshot yet. An object's footer states when it was put: a GET for each, of two
    generations at most.
    """
    epochs = {newest.epoch} if newest.generation in begun else {newest.epoch, newest.epoch - 1}
    if newest.generation not in begun and newest.time > dead:
        return epochs
    near = (info for info in orphans if epoch_of(info.generation) in epochs)
    return epochs if any(_put_at(client, info) > dead for info in near) else set()


def _put_at(client: ReplicaClient, info: IndexedInfo) -> int:
    """When a sealed segment was put, in microseconds since 1970; 0 if its footer cannot be read."""
    try:
        return read_listed_footer(client, info).shipped[1]
    except (CorruptObjectError, NotFoundError):
        return 0


def _groups(latest: GenerationContents, options: MaintenanceOptions, now: int) -> list[tuple[SnapshotEntry, ...]]:
    """The log segments of the generation, grouped. Those of the last hour stay: readers that lag find their place."""
    young = grace_start(now)

    def may_merge(entry: SnapshotEntry) -> bool:
        at_once = entry.exact and entry.shipped_first == entry.shipped_last
        return at_once and entry.first is not None and entry.shipped_last < young

    return choose_merges(latest.base.entries, options.segment_bytes, may_merge)


def _named(facts: ReplicaFacts) -> dict[Generation, list[tuple[int, int]]] | None:
    """The ranges of sealed segments that snapshots name, in order, without overlaps; None if any cannot be read."""
    every = [one for generation in facts.generations for one in generation.snapshots]
    if any(one.names is None for one in every):
        return None
    ranges: dict[Generation, list[tuple[int, int]]] = {}
    for run in sorted({run for one in every for run in one.names or ()}):
        held = ranges.setdefault(run.generation, [])
        if held and run.start <= held[-1][1]:
            held[-1] = held[-1][0], max(held[-1][1], run.stop)
        else:
            held.append((run.start, run.stop))
    return ranges


def _orphans(
    client: ReplicaClient,
    generations: Iterable[GenerationFacts],
    names: list[ClaimName],
    named: dict[Generation, list[tuple[int, int]]] | None,
) -> Iterator[IndexedInfo]:
    """Sealed segments of Spark's writes that no snapshot names. A GET of a claim for each generation that has any."""
    by_epoch = {name.epoch: name for name in names}
    for generation in generations if named is not None else ():
        epoch = epoch_of(generation.name)
        ranges = (named or {}).get(generation.name, [])
        left = [info for info in generation.sealed if not _is_in(info.index, ranges)]
        if not left or epoch not in by_epoch:
            continue
        claim = read_claim(client, by_epoch[epoch])
        if claim.generation == generation.name and claim.writer is Writer.BATCH:
            yield from left


def _is_in(index: int, ranges: list[tuple[int, int]]) -> bool:
    number = bisect_right(ranges, (index, 1 << 64)) - 1
    return number >= 0 and index < ranges[number][1]
