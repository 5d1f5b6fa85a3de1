"""Plans a restore from a replica. Generations that continue each other form one history.

A generation that retention has pruned holds nothing to restore, but is not damaged.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from litelog.errors import (
    CorruptionError,
    CorruptObjectError,
    NotFoundError,
    NothingToRestoreError,
    ReplicaGapError,
    StoreError,
)
from litelog.formats.capabilities import has_manifest
from litelog.objects.claim import Relation
from litelog.objects.layout import snapshot_key
from litelog.objects.position import Position
from litelog.objects.wal_segment import LASTING_SEGMENTS, may_be_remnant
from litelog.reading.generations import read_claim_of
from litelog.reading.latest import find_claim, find_latest_contents
from litelog.reading.search import read_header
from litelog.reading.successors import require_shift
from litelog.restore.generation_plan import plan_generation, plan_restore
from litelog.restore.plan import RestorePlan, Target, TooEarlyError

if TYPE_CHECKING:
    from litelog.errors import LitelogError
    from litelog.formats import LogFormat
    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation
    from litelog.reading.contents import GenerationContents
    from litelog.restore.repair.fallbacks import FallbackReplicas
    from litelog.stores.replica_client import ReplicaClient


class GenerationPrunedError(NothingToRestoreError):
    """Retention pruned a generation; only the objects that are never deleted remain."""

    def __init__(self, url: str, name: Generation, oldest: Generation) -> None:
        self.generation = name
        self.oldest = oldest
        super().__init__(
            f"{url}: generation {name}: nothing can be restored from it any more: retention deleted its snapshots; the "
            f"oldest generation that has one is {oldest}"
        )


def looks_pruned(client: ReplicaClient, claim: Claim) -> bool:
    """Whether retention seems to have pruned a generation, or to be pruning it. Raises StoreError.

    If so, it has no snapshot, and only the WAL segments that retention leaves. Unless its owner is isolated, no older
    generation has a snapshot either, since retention deletes the oldest one first.
    """
    name = claim.generation
    if client.newest_snapshots(name, 1):
        return False
    older = (held for held in client.generations() if held < name and not claim.is_isolated)
    if any(client.newest_snapshots(held, 1) for held in older):
        return False
    wal = list(islice(client.wal_segments(name), LASTING_SEGMENTS + 1))
    return may_be_remnant(wal[0].position if wal else None, Position(name, claim.first, 0), len(wal))


def explain(client: ReplicaClient, claim: Claim, damage: LitelogError) -> LitelogError:
    """Return a GenerationPrunedError if the generation looks pruned, and a later one has a snapshot; else
    ``damage``."""
    name = claim.generation
    try:
        if not looks_pruned(client, claim):
            return damage
        later = (held for held in sorted(client.generations()) if held > name)
        oldest = next((held for held in later if client.newest_snapshots(held, 1)), None)
    except StoreError:
        return damage
    return damage if oldest is None else GenerationPrunedError(client.url, name, oldest)


__all__ = [
    "RestorePlan",
    "Target",
    "find_generation",
    "find_plan",
    "plan_generation",
    "plan_history",
    "plan_restore",
    "require_keys",
]


def find_plan(client: ReplicaClient, target: Target, log_format: LogFormat) -> RestorePlan:
    """Plan a restore from a replica. Makes listings and reads headers.

    Args:
        client: The replica.
        target: What to restore.
        log_format: The format that the claim names (see ``find_generation``).

    Raises:
        NothingToRestoreError: The replica does not hold the target.
        CorruptObjectError, ReplicaGapError: An object that the plan needs is damaged or missing.
        StoreError: A request failed.
    """
    claim, held = find_generation(client, target)
    return plan_history(client, claim, target, log_format, held=held)


def find_generation(client: ReplicaClient, target: Target) -> tuple[Claim, GenerationContents | None]:
    """Find the claim of the generation that ``target`` names, or of the latest one. The claim names the format. Also
    return the contents of the latest one, if they were read for that.

    The latest generation may have lost all objects except sealed segments. Then the plan reports that: an earlier
    generation never silently replaces it.
    """
    if target.generation is not None:
        return find_claim(client, target.generation), None
    return find_latest_contents(client, include_lost=True)


def require_keys(client: ReplicaClient, plan: RestorePlan) -> None:
    """Require that the generations from which ``plan`` reads can be decrypted, if they are encrypted.

    Of earlier generations whose sealed segments a snapshot names, it reads the claims of all if the newest generation
    is encrypted, and otherwise that of the oldest: a replica in clear may have thousands of them. A claim that is
    damaged or missing is left to those who read its generation's objects. Raises ConfigError.
    """
    claims = {part.claim.generation: part.claim for part in plan.parts}
    named = sorted({span.entry.generation for part in plan.parts for span in part.sealed} - claims.keys())
    for name in (*claims, *(named if plan.claim.encryption is not None else named[:1])):
        with suppress(CorruptionError, NotFoundError):
            client.require_readable(claims.get(name) or read_claim_of(client, name, plan.claim))


def plan_history(
    client: ReplicaClient,
    claim: Claim,
    target: Target,
    log_format: LogFormat,
    fallbacks: FallbackReplicas | None = None,
    *,
    dropped: bool = True,
    held: GenerationContents | None = None,
) -> RestorePlan:
    """Plan from a generation, and from those that it continues if they are needed and still exist: for log segments
    before its own, and for a point in time before it began. If ``target`` names a generation, plan from that alone.
    A point in time before a rewrite of a log with a manifest is planned from the generation before.

    An index in ``target`` belongs to the given generation. Arguments and errors as in ``plan_generation``.
    """
    if target.generation is not None or claim.relation is not Relation.CONTINUES:
        try:
            return _require_beginning(
                plan_generation(client, claim, target, log_format, fallbacks, dropped=dropped, held=held)
            )
        except TooEarlyError:
            rewritten = _plan_before_rewrite(client, claim, target, log_format, fallbacks, dropped=dropped)
            if rewritten is None:
                raise
            return rewritten
    try:
        plan = plan_generation(client, claim, target, log_format, fallbacks, dropped=dropped, held=held)
    except NothingToRestoreError as error:
        earlier = _plan_before(client, claim, target, log_format, fallbacks, dropped=dropped)
        if earlier is None and isinstance(error, TooEarlyError) and _is_within_first(error, target):
            earlier = _plan_before(client, claim, Target(index=error.index - 1), log_format, fallbacks, dropped=dropped)
        if earlier is None:
            raise error from None
        return earlier
    if not log_format.has_timestamps and target.timestamp is not None and target.timestamp < claim.time:
        # A log segment that was sealed again states no times before this generation; its predecessor's may do.
        earlier = _plan_before(client, claim, target, log_format, fallbacks, dropped=dropped)
        if earlier is not None and _reach(plan, log_format) < _reach(earlier, log_format):
            return earlier
    return _require_beginning(_prepend(client, plan, target, log_format, fallbacks))


def _plan_before_rewrite(
    client: ReplicaClient,
    claim: Claim,
    target: Target,
    log_format: LogFormat,
    fallbacks: FallbackReplicas | None,
    *,
    dropped: bool,
) -> RestorePlan | None:
    """Plan for a time from the generation before a rewrite, for a log whose writer rewrites it from time to time.

    That generation holds the log as it was then. None for any other target, and if it holds nothing of that time.
    """
    is_time = target.timestamp is not None and target.generation is None
    if not is_time or not has_manifest(log_format) or claim.predecessor is None:
        return None
    with suppress(NothingToRestoreError, NotFoundError):
        older = read_claim_of(client, claim.predecessor, claim)
        if older.epoch < claim.epoch and (older.log, older.format) == (claim.log, claim.format):
            return plan_history(client, older, target, log_format, fallbacks, dropped=dropped)
    return None


def _require_beginning(plan: RestorePlan) -> RestorePlan:
    """Return ``plan``. Raises the damage if the plan works around a lost snapshot that alone named the log's
    beginning."""
    start = plan.base.start
    if plan.base.snapshot is not None or plan.before is not None or start.index == 0:
        return plan
    raise plan.lost[0] if plan.lost else ReplicaGapError(snapshot_key(start.generation, start.index))


def _prepend(
    client: ReplicaClient, plan: RestorePlan, target: Target, log_format: LogFormat, fallbacks: FallbackReplicas | None
) -> RestorePlan:
    """Prepend the predecessors' log segments to ``plan``; return their plan alone if ``target`` lies within them.

    The target may lie there even if ``plan`` reaches it, as record timestamps may jump back.
    """
    claim = plan.claim
    last = plan.base.first.index - 1
    if last < max(claim.shift, 0) or last > claim.first:  # then the log segments between are gone
        return plan
    before = _plan_before(client, claim, Target(index=last), log_format, fallbacks, dropped=False)
    if before is None or _is_cut_short(client, before, plan):
        return plan
    if log_format.has_timestamps and target.timestamp is not None:
        cut = _plan_before(client, claim, target, log_format, fallbacks, dropped=False)
        if cut is None:
            begins = before.parts[0].claim.generation
            raise NothingToRestoreError(f"{client.url}: generation {begins}: nothing that early")
        if _reach(cut, log_format) < _reach(before, log_format):
            return cut
    names = before.files[-1].name, plan.files[0].name
    one, two = (log_format.segment_order(name) for name in names)
    if one is None or two is None or one >= two:
        raise CorruptObjectError(claim.key, f"continues {names[0]} with {names[1]}, which does not sort after it")
    return replace(plan, before=before)


def _is_cut_short(client: ReplicaClient, before: RestorePlan, plan: RestorePlan) -> bool:
    """Whether the part between the two plans is gone, so that a restore begins after it: the earlier generation ended
    within a log segment, of which the later generation held the rest, and no longer names it."""
    with suppress(CorruptionError):  # a damaged object shows nothing here, and is reported when it is read
        ends = (read_header(client, piece.position) for piece in reversed(before.pieces))
        last = next(ends, None)
        if last is None or last.final:
            return False
        reached = last.next if last.next is not None else next((end.next for end in ends if end.next is not None), None)
        entries = plan.base.entries
        first = entries[0].first if entries else read_header(client, plan.pieces[0].position).first
        return reached is not None and first is not None and reached < first
    return False


def _is_within_first(error: TooEarlyError, target: Target) -> bool:
    """Whether the target lies in the first commit that a generation holds, so that the predecessors hold all before."""
    return target.sequence is not None and error.sequence is not None and error.sequence <= target.sequence


def _reach(plan: RestorePlan, log_format: LogFormat) -> tuple[tuple[object, ...], int]:
    """How far a plan reaches: by file name and offset, as each generation counts its own indexes."""
    file = plan.files[-1]
    return log_format.segment_order(file.name) or (), file.size


def _plan_before(
    client: ReplicaClient,
    claim: Claim,
    target: Target,
    log_format: LogFormat,
    fallbacks: FallbackReplicas | None,
    *,
    dropped: bool,
) -> RestorePlan | None:
    """Plan for ``target`` from the generations that ``claim`` continues; None if they hold nothing of it (any more)."""
    # A generation with merged log segments is asked for the ones before its own, whose indexes it keeps.
    shift = 0 if claim.merges else claim.shift
    index = None if target.index is None else target.index - shift
    if claim.predecessor is None or (index is not None and index < 0):
        return None
    try:
        older = read_claim_of(client, claim.predecessor, claim)
    except NotFoundError as error:
        raise ReplicaGapError(error.key, f"{claim.key}, which continues {claim.predecessor}") from error
    if older.epoch >= claim.epoch or (older.log, older.format) != (claim.log, claim.format):
        raise CorruptObjectError(claim.key, "predecessor", "an earlier generation of the same log", older.generation)
    if looks_pruned(client, older):
        return None  # nothing names what it held
    require_shift(client, older, claim, claim.shift)  # the choice of the latest generation may not have come this far
    try:
        return plan_history(client, older, replace(target, index=index), log_format, fallbacks, dropped=dropped)
    except NothingToRestoreError:
        return None
