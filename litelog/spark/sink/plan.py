"""Prepares a write in the driver: claims a generation for the tasks, and finds the end of the log to continue.

The claim comes first and ends all open generations, as for every owner (litelog/shipping/README.md#one-writer). Its
generation holds only sealed segments. Readers see them once the snapshot of a later generation names them.

The claim cannot wait until the tasks are done, for two reasons. ``verify`` reports objects in an unclaimed generation
as an anomaly, and an owner's ``prune`` may delete objects that no snapshot names, until it is fenced. And the end
of the log, from which tasks number records, is final only once the open generation has ended.

So even a failed write with ``takeover`` has ended the daemon's generation. Nothing that it acknowledged is lost. The
daemon exits with code 5, and continues when it is started with ``--takeover``. ``litelog.spark.write`` makes this rare:
it computes, keeps and checks the DataFrame before it claims anything.
"""

from __future__ import annotations

import os
import socket
import threading
from dataclasses import dataclass, field, replace
from random import SystemRandom
from typing import TYPE_CHECKING
from uuid import UUID

from litelog.errors import ConfigError, FencedError, ForeignClaimError, NothingToRestoreError
from litelog.formats import Expectation
from litelog.formats.litelog import LitelogFormat
from litelog.log.source import SegmentFolder
from litelog.objects.claim import Claim, Relation, batch_owner
from litelog.objects.layout import Fencing
from litelog.objects.position import new_generation
from litelog.reading.contents import list_pieces
from litelog.reading.generations import find_tip, newest_claims, read_claim
from litelog.reading.latest import find_latest
from litelog.reading.sealed_reader import open_sealed
from litelog.reading.search import read_segment
from litelog.shipping.claiming import LostRaceError, close_below, create_claim, require_fencing
from litelog.spark.sink.segments import StagingGeneration
from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.registry import local_folder, open_store
from litelog.stores.retrying_store import RetryingStore
from litelog.stores.trial import StoreTrials, try_store
from litelog.system.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.objects.position import Generation
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.reading.generations import GenerationEnd
    from litelog.spark.sink.options import WriteOptions
    from litelog.stores.replica_client import ReplicaClient
    from litelog.system.clock import Clock

FIRST_EPOCH = 1


class OvertakenError(FencedError):
    """Another owner claimed the replica during a write."""

    def __init__(self, replica: str) -> None:
        super().__init__(
            f"{replica}: another write or a daemon began while this one ran; nothing of this one is in the log: "
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
    predecessor: Claim | None
    """The claim of the generation to continue; None if the log begins here."""
    published: Generation
    """The name of the generation that will name what the tasks wrote. Its claim comes after the tasks."""
    next: int
    """The first sequence to write."""
    starts: tuple[int, ...] = field(default=())
    """The first sequence of each partition, if counts were given."""

    @property
    def claim(self) -> Claim:
        """The claim of the generation into which tasks write."""
        return self.staging.claim

    def first_of(self, partition: int) -> int:
        """The sequence of a partition's first record, provisional unless counts were given."""
        return self.starts[partition] if partition < len(self.starts) else self.next


def open_client(options: WriteOptions) -> ObjectReplicaClient:
    """Open the replica, with retries. Raises UnknownSchemeError and ConfigError."""
    return ObjectReplicaClient(RetryingStore(open_store(options.url, options.store), threading.Event()))


def plan_write(options: WriteOptions, clock: Clock, *, overwrite: bool) -> WritePlan:
    """Claim a generation and end those before it, so that the end of the log is known.

    Raises:
        ForeignClaimError: the newest claim is another owner's, and takeover was not requested.
        ConfigError: the replica has another format, or a DataFrame that is known to be empty would replace a log.
        OvertakenError: another owner claimed the replica at the same time.
        StoreError: a request to the store failed.
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
        try:
            latest = find_latest(client)
        except NothingToRestoreError:
            latest = None
        if overwrite and latest is not None and options.partition_records and not sum(options.partition_records):
            raise NothingToOverwriteError(client.url)
        log = _log_of(client, newest)
        owner = batch_owner(log)
        _require_ours(client, newest, owner, options)
        epoch = (names[-1].epoch if names else FIRST_EPOCH - 1) + 1
        claim = _make_claim(client, log, owner, epoch, latest, clock, overwrite=overwrite)
        claim_first(client, claim)
        close_below(client, claim, newest_claims(client, [name for name in names if name.epoch < epoch]), clock)
        continued = latest if claim.relation is Relation.CONTINUES else None
        following, commit_epoch = (0, 0) if continued is None else find_end(client, continued)
    finally:
        client.close()
    staging = StagingGeneration(claim, commit_epoch, clock.now())
    published = new_generation(epoch + 1, SystemRandom().getrandbits(32))
    return WritePlan(options, staging, continued, published, following, _starts(following, options.partition_records))


def _require_no_log(url: str) -> None:
    """Raise ConfigError for the folder of a log: with a replica inside, no reader would read that log."""
    folder = local_folder(url)
    if folder is None or not os.path.isdir(folder):
        return
    if SegmentFolder(folder, LitelogFormat(), SystemClock(), reports=False).all():
        raise ConfigError(f"{folder}: is the folder of a log, not a replica: choose another place to write to")


def claim_first(client: ReplicaClient, claim: Claim) -> None:
    """Create a claim. Raises OvertakenError if another owner was faster, and StoreError."""
    try:
        create_claim(client, claim)
    except LostRaceError:
        raise OvertakenError(client.url) from None


def find_end(client: ReplicaClient, claim: Claim) -> tuple[int, int]:
    """(the next sequence, the newest epoch of commits) of an ended generation."""
    pieces = list_pieces(client, claim)
    if pieces.gap is not None:
        raise pieces.gap
    for info in reversed(pieces.wal):
        segment = read_segment(client, info.position)
        header = segment.header
        if header.length:
            data = memoryview(segment.data())
            scan = LitelogFormat().scan(header.path, data, header.offset, Expectation(header.first))
            return header.next or 0, scan.epoch
        if header.sealed is not None:
            return header.next or 0, _sealed_epoch(client, claim, header.index)
    entry = next((entry for entry in reversed(pieces.base.entries) if entry.records), None)
    return (0, 0) if entry is None or entry.next is None else (entry.next, epoch_of_entry(client, entry))


def epoch_of_entry(client: ReplicaClient, entry: SnapshotEntry) -> int:
    """The epoch of the last commit in a sealed segment."""
    sealed = open_sealed(client, entry)
    frames = sealed.footer.frames
    return sealed.read_run(frames.run_of(len(frames) - 1), LitelogFormat()).scan.epoch


def _sealed_epoch(client: ReplicaClient, claim: Claim, index: int) -> int:
    from litelog.objects.snapshot_entries import make_entry  # noqa: PLC0415
    from litelog.shipping.sealer import read_sealed_footer  # noqa: PLC0415

    return epoch_of_entry(client, make_entry(*read_sealed_footer(client, claim.generation, index)))


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


def _make_claim(
    client: ReplicaClient,
    log: str,
    owner: str,
    epoch: int,
    latest: Claim | None,
    clock: Clock,
    *,
    overwrite: bool,
) -> Claim:
    claim = Claim(
        log=log,
        format=LitelogFormat.name,
        owner=owner,
        host=socket.gethostname(),
        generation=new_generation(epoch, SystemRandom().getrandbits(32)),
        first=0,
        relation=Relation.FIRST,
        time=clock.now(),
    )
    if latest is None:
        return claim
    tip: GenerationEnd = find_tip(client, latest)
    claim = replace(claim, predecessor=latest.generation, predecessor_end=tip.slot, predecessor_file=tip.file)
    if overwrite:
        return replace(claim, relation=Relation.DIVERGED, reason=OVERWRITTEN)
    return replace(claim, relation=Relation.CONTINUES, first=tip.slot.index)


def _starts(first: int, counts: Sequence[int]) -> tuple[int, ...]:
    starts = []
    for count in counts:
        starts.append(first)
        first += count
    return tuple(starts)
