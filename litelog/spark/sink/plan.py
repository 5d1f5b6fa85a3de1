"""Prepares a write in the driver: finds the generation into which tasks write, and the end of the log to continue.

Tasks write sealed segments that no reader uses until the snapshot of a later generation names them. They write into
the newest generation if a Spark job wrote that one and nothing has followed. Its end is final: batches put no WAL
segments, and the owner of a newer claim takes the epoch that the write needs. So an append costs one generation.

Otherwise the write claims a generation for the tasks first. This ends all open generations, as for every owner
(litelog/shipping/README.md#one-writer). That claim cannot wait until the tasks are done, for two reasons. ``verify``
reports objects in an unclaimed generation as an anomaly, and an owner's ``prune`` may delete objects that no snapshot
names, until it is fenced. And the end of the log, from which tasks number records, is final only once the open
generation has ended.

So even a failed write with ``takeover`` has ended the daemon's generation. Nothing that it acknowledged is lost. The
daemon exits with code 5, and continues when it is started with ``--takeover``. ``litelog.spark.write`` makes this rare:
it computes, keeps and checks the DataFrame before it claims anything.
"""

from __future__ import annotations

import os
import socket
import threading
from dataclasses import field, replace
from random import SystemRandom
from typing import TYPE_CHECKING
from uuid import UUID

from litelog.dataclass import dataclass
from litelog.errors import ConfigError, FencedError, ForeignClaimError
from litelog.formats.litelog import LitelogFormat
from litelog.log.source import SegmentFolder
from litelog.objects.claim import Claim, Relation, batch_owner
from litelog.objects.layout import Fencing
from litelog.objects.position import new_generation
from litelog.reading.generations import find_tip, read_claim
from litelog.shipping.claiming import LostRaceError, close_below, create_claim, require_fencing
from litelog.spark.sink.predecessor import LogBefore
from litelog.spark.sink.segments import StagingGeneration, new_write
from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.opening import open_retrying
from litelog.stores.registry import local_folder, open_store
from litelog.stores.retrying_store import RetryingStore
from litelog.stores.trial import StoreTrials, try_store
from litelog.system.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from litelog.objects.position import Generation
    from litelog.reading.generations import GenerationEnd
    from litelog.spark.sink.options import WriteOptions
    from litelog.spark.sink.predecessor import Predecessor
    from litelog.stores.replica_client import ReplicaClient
    from litelog.system.clock import Clock


class OvertakenError(FencedError):
    """Another owner claimed the replica during a write."""

    def __init__(self, replica: str, *, is_put: bool = False) -> None:
        """``is_put``: the snapshot of this write is there, and the other owner decides whether it counts."""
        held = "this one may be in the log: look before you" if is_put else "nothing of this one is in the log:"
        super().__init__(
            f"{replica}: another write or a daemon claimed it while this write ran; {held} "
            "write again, and run one writer at a time"
        )


class NothingToOverwriteError(ConfigError):
    """An empty DataFrame cannot replace a log, as readers do not recognise a history without records."""

    def __init__(self, replica: str) -> None:
        super().__init__(
            f"{replica}: an empty DataFrame cannot overwrite a log, and the log is unchanged: write to a new place, or "
            "delete the replica"
        )


OVERWRITTEN = "a DataFrame was written over it"


@dataclass(frozen=True, slots=True)
class WritePlan:
    """The plan of a write, for its tasks and its commit. Picklable. The repr shows no secrets."""

    options: WriteOptions
    staging: StagingGeneration
    draft: Claim
    """The claim of the generation that will name what the tasks wrote. Its first index and its time are set, and it is
    put, after the tasks."""
    predecessor: Predecessor | None
    """The generation to continue or to replace; None if the log begins here."""
    next: int
    """The first sequence to write."""
    starts: tuple[int, ...] = field(default=())
    """The first sequence of each partition, if counts were given."""

    @property
    def is_claimed(self) -> bool:
        """Whether the write has claimed the generation into which its tasks write. Otherwise that is the predecessor,
        and other writes may use it at the same time."""
        return self.predecessor is None or self.predecessor.claim.generation != self.staging.claim.generation

    @property
    def continued(self) -> Predecessor | None:
        """The generation to continue; None if the log begins here, or begins again."""
        return self.predecessor if self.draft.relation is Relation.CONTINUES else None

    def holds(self, application: str, version: int) -> bool:
        """Whether the log holds that version of the application's writes, or a newer one."""
        return dict(self.draft.transactions).get(application, -1) >= version

    def first_of(self, partition: int) -> int:
        """The sequence of a partition's first record, provisional unless counts were given."""
        return self.starts[partition] if partition < len(self.starts) else self.next


def open_client(options: WriteOptions) -> ObjectReplicaClient:
    """Open the replica, with retries. Raises UnknownSchemeError and ConfigError."""
    return open_retrying(options.url, options.store, threading.Event())


def plan_write(options: WriteOptions, clock: Clock, *, overwrite: bool) -> WritePlan:
    """Find where the log ends, and make sure that this is final: claim a generation if nothing else ensures it.

    Raises:
        ForeignClaimError: the newest claim is another owner's, and takeover was not requested.
        ConfigError: the replica has another format, or is encrypted, or a DataFrame that is known to be empty would
            replace a log.
        OvertakenError: another owner claimed the replica at the same time.
        StoreError: a request to the store failed.
        CorruptionError: an object of the existing log is damaged.
    """
    plain = open_store(options.url, options.store)
    client = ObjectReplicaClient(RetryingStore(plain, threading.Event()))
    try:
        require_fencing(client, Fencing.REQUIRED)
        names = client.claims()
        if not names:
            _require_no_log(client.url)
            try_store(StoreTrials(SystemRandom()), Fencing.REQUIRED, client.store, plain)
        newest = [read_claim(client, name) for name in names if name.epoch == names[-1].epoch]
        if any(claim.encryption is not None for claim in newest):
            raise ConfigError(
                f"{client.url}: is encrypted, and Spark writes only replicas that are not: append to the log instead "
                "(litelog append, or LogWriter), and let its daemon replicate it"
            )
        read = {claim.name: claim for claim in newest}
        before = LogBefore.find(client, names, read)
        if overwrite and before is not None and options.partition_records and not sum(options.partition_records):
            raise NothingToOverwriteError(client.url)
        log = _log_of(client, newest)
        owner = batch_owner(log)
        _require_ours(client, newest, owner, options)
        made = _make_claim(log, owner, (names[-1].epoch if names else 0) + 1, before, clock, overwrite=overwrite)
        if before is not None and newest == [before.claim] and before.is_open_batch:
            return _plan(options, before.claim, made, before, before.predecessor(), clock)
        claim_first(client, made)
        tips = _close(
            client, made, (read.get(name) or read_claim(client, name) for name in reversed(names)), before, clock
        )
        require_latest(client, tips, None if before is None else before.claim)
        draft = replace(made, generation=_name(made.epoch + 1))
        if before is None:
            return _plan(options, made, draft, None, None, clock)
        before.end(tips)
        sealed = before.seal(made, clock, options.compression) if made.relation is Relation.CONTINUES else ()
        return _plan(options, made, _after(draft, before.tip), before, before.predecessor(sealed), clock)
    finally:
        client.close()


def _plan(
    options: WriteOptions,
    staging: Claim,
    draft: Claim,
    before: LogBefore | None,
    predecessor: Predecessor | None,
    clock: Clock,
) -> WritePlan:
    following, epoch = before.find_end() if before is not None and draft.relation is Relation.CONTINUES else (0, 0)
    into = StagingGeneration(staging, epoch, clock.now(), new_write(), options.compression)
    return WritePlan(options, into, draft, predecessor, following, _starts(following, options.partition_records))


def _close(
    client: ReplicaClient, claim: Claim, below: Iterable[Claim], before: LogBefore | None, clock: Clock
) -> Mapping[Generation, GenerationEnd]:
    """End every open generation below the claim. Reads no tip that is known."""

    def read_tip(older: Claim) -> GenerationEnd:
        return before.tip if before is not None and older == before.claim else find_tip(client, older)

    return close_below(client, claim, below, clock, read_tip)


def _require_no_log(url: str) -> None:
    """Raise ConfigError for the folder of a log: with a replica inside, no reader would read that log."""
    folder = local_folder(url)
    if folder is None or not os.path.isdir(folder):
        return
    if SegmentFolder(folder, LitelogFormat(), SystemClock(), reports=False).all():
        raise ConfigError(f"{folder}: is the folder of a log, not a replica: choose another place to write to")


def claim_first(client: ReplicaClient, claim: Claim, *, refuses: bool = False) -> None:
    """Create a claim. Raises OvertakenError if another owner was faster, and StoreError. ``refuses``: as
    ``create_claim`` takes it."""
    try:
        create_claim(client, claim, refuses=refuses)
    except LostRaceError:
        raise OvertakenError(client.url) from None


def require_latest(client: ReplicaClient, closed: Mapping[Generation, GenerationEnd], latest: Claim | None) -> None:
    """Raise OvertakenError if a generation after ``latest`` has begun since readers took that one: what follows
    ``latest`` would leave it out. ``closed``: the generations that a new claim ended; ``latest``: None for no log."""
    if any(end.started for name, end in closed.items() if latest is None or name > latest.generation):
        raise OvertakenError(client.url)


def _log_of(client: ReplicaClient, newest: Sequence[Claim]) -> str:
    if not newest:
        return UUID(int=SystemRandom().getrandbits(128), version=4).hex
    if newest[-1].format != LitelogFormat.name:
        raise ConfigError(f"{client.url}: has a log of format {newest[-1].format}; Spark writes format litelog only")
    return newest[-1].log


def _require_ours(client: ReplicaClient, newest: Sequence[Claim], owner: str, options: WriteOptions) -> None:
    for top in newest:
        if top.owner != owner and not options.takeover:
            why = "its claim is the newest, and no Spark job made it (in Spark: option takeover=true)"
            raise ForeignClaimError(client.url, top.owner, top.host, top.generation, why)


def _make_claim(log: str, owner: str, epoch: int, before: LogBefore | None, clock: Clock, *, overwrite: bool) -> Claim:
    claim = new_batch_claim(log, owner, epoch, clock.now())
    if before is None:
        return claim
    held = before.claim.transactions
    claim = _after(replace(claim, predecessor=before.claim.generation, transactions=held), before.tip)
    if overwrite:
        return replace(claim, relation=Relation.DIVERGED, reason=OVERWRITTEN)
    return replace(claim, relation=Relation.CONTINUES, first=before.tip.slot.index)


def new_batch_claim(log: str, owner: str, epoch: int, time: int) -> Claim:
    """The claim of a first generation, without a predecessor, that a batch begins. ``time``: in microseconds since
    1970."""
    return Claim(
        log=log,
        format=LitelogFormat.name,
        owner=owner,
        host=socket.gethostname(),
        generation=_name(epoch),
        first=0,
        relation=Relation.FIRST,
        time=time,
    )


def _after(claim: Claim, tip: GenerationEnd) -> Claim:
    return replace(claim, predecessor_end=tip.slot, predecessor_file=tip.file)


def _name(epoch: int) -> Generation:
    return new_generation(epoch, SystemRandom().getrandbits(32))


def _starts(first: int, counts: Sequence[int]) -> tuple[int, ...]:
    starts = []
    for count in counts:
        starts.append(first)
        first += count
    return tuple(starts)
