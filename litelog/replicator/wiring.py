"""Opens what a configuration names: formats, stores, state folders, and the replicas over them."""

from __future__ import annotations

import hashlib
import logging
import os
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING

from litelog.config import FolderConfig
from litelog.config.entries import EncryptionConfig
from litelog.dataclass import dataclass
from litelog.encryption.identities import find_identities
from litelog.errors import ConfigError, LitelogError
from litelog.events import fields
from litelog.formats.capabilities import removed_by_owner
from litelog.formats.registry import open_format
from litelog.log.failed_syncs import FailedSyncs
from litelog.log.replica_registry import ReplicaSet, log_state_folder
from litelog.log.sequence_base import SequenceBase
from litelog.log.source import SegmentFolder
from litelog.log.watermark import WatermarkUse, find_watermark
from litelog.objects.layout import Fencing
from litelog.replicator.task import ReplicaTask
from litelog.shipping.backlog import BacklogSealer
from litelog.shipping.claim_encryption import EncryptedClaims, OwnerKeys, PlainClaims
from litelog.shipping.claiming import ReplicaUnavailableError
from litelog.shipping.context import Executors, LogSource, ReplicaContext, Settings
from litelog.shipping.counters import ReplicaCounters
from litelog.shipping.events import IgnoredEvents
from litelog.shipping.lag import LagMeter, SourceEnd
from litelog.shipping.lock_extension import LockExtension
from litelog.shipping.ownership import Owner
from litelog.shipping.replica import Replica
from litelog.shipping.source_truncation import LogTruncator
from litelog.shipping.standing_check import FIRST_SECONDS, INTERVAL_SECONDS, check_replica
from litelog.shipping.state import StateFolder
from litelog.shipping.takeover import Takeover
from litelog.stores.capabilities import LocksObjects
from litelog.stores.checking_store import CheckingStore
from litelog.stores.metered_store import MeteredLocks, MeteredStore
from litelog.stores.missing import require_no_log
from litelog.stores.object_store import ObjectReplicaClient, Rooted
from litelog.stores.registry import local_folder, open_writable_store, redact
from litelog.stores.retrying_store import RetryingStore, RetryPolicy
from litelog.stores.trial import StoreTrials, try_store
from litelog.system.clock import read_boot_id
from litelog.verify.findings import Acknowledged
from litelog.verify.scrub import Found, Scrub, ScrubSettings

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Iterator
    from concurrent.futures import Executor
    from random import Random

    from litelog.config import Config, LogConfig, ReplicaConfig
    from litelog.config.field_types import Location
    from litelog.formats import LogFormat
    from litelog.log.source_position import SourcePosition
    from litelog.objects.position import Generation
    from litelog.replicator.thread_pools import DestinationThreads
    from litelog.shipping.events import ReplicaEvents, ReplicaListener
    from litelog.stores.metered_store import RequestMeter
    from litelog.stores.object_store import ObjectStore
    from litelog.stores.replica_client import ReplicaClient
    from litelog.system.clock import Clock

_logger = logging.getLogger(__name__)

BEGINNING = RetryPolicy(attempts=4, total_seconds=5.0, longest_seconds=0.5)
"""For the dozen requests in a row with which a generation begins. If one in three failed and none was retried, hardly
any generation would begin, and the back-off between attempts would grow. WAL segments are put without retries, and
their failures are counted."""


def _ignore_events(_task: ReplicaTask, _truncator: LogTruncator) -> ReplicaEvents:
    return IgnoredEvents()


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """The objects that all replicas of a process share."""

    clock: Clock
    random: Random
    listener: ReplicaListener
    compressing: Executor
    threads: DestinationThreads
    trials: StoreTrials
    stop_requested: threading.Event
    guard: Callable[[Callable[[], None]], None]
    """Runs work in a thread. A bug in it ends the process."""
    make_events: Callable[[ReplicaTask, LogTruncator], ReplicaEvents] = _ignore_events
    """Makes the receiver of the events of a task's replica. All replicas of a log share its truncator."""
    takeovers: dict[str, Takeover] = field(default_factory=dict)
    """Takeovers by state folder: a log that comes back, or that the configuration names again, gets no second one."""


@dataclass(frozen=True, slots=True)
class OpenedReplica:
    """One opened replica of one log."""

    log: str
    """As the configuration names it; so is ``url``."""
    url: str
    client: ReplicaClient
    task: ReplicaTask
    """Has no replica if its state folder cannot be used; ``error`` says why."""
    error: LitelogError | None = None


def open_log(log: LogConfig, state_dir: str, host: str, tools: ProcessContext) -> Iterator[OpenedReplica]:
    """Open every replica of a log, in the configuration's order. Raises ConfigError if one cannot be opened."""
    replicas = ReplicaSet(log_state_folder(state_dir, log.path))
    log_format = open_format(log.format, log.pattern)
    names = SegmentFolder(log.path, log_format, tools.clock, reports=False)
    numbering = SequenceBase(log.path, log_format, names, replicas.folder)
    failed_syncs = FailedSyncs(replicas.folder, read_boot_id())
    is_limited = log.watermark is WatermarkUse.CHECKPOINT
    watermark = find_watermark(log.path, log_format) if is_limited else None
    source = LogSource(log.path, log_format, replicas.agree_on_log_id, numbering.beginning, watermark, failed_syncs)
    end = SourceEnd(source.folder, source.format, tools.clock)
    policy = log.truncate.policy() if log.truncate is not None else None
    truncator = LogTruncator(source, replicas, policy, tools.clock)
    for replica in log.replicas:
        yield _open_replica(source, log, replica, _DaemonContext(state_dir, host, truncator, end), tools)


def check_openable(entry: LogConfig | FolderConfig) -> None:
    """Raise ConfigError if a log of that entry could not be opened, no matter what is on the disk."""
    for _, error in _find_refused(entry):
        raise error


def find_refused(config: Config) -> Iterator[tuple[Location, ConfigError]]:
    """Yield everything that formats and replica clients refuse in a configuration: the key's path, and the error."""
    for number, entry in enumerate(config.logs):
        for location, error in (*_find_refused(entry), *_find_unusable_keys(entry)):
            yield ("logs", number, *location), error


def state_folder_of(state_dir: str, log: str, url: str, place: str) -> str:
    """Return the state folder of one log and replica. It has names for people, and digests to be unique.

    ``url`` is the configuration's, ``place`` the client's. Two replicas whose endpoints differ are two replicas; a
    folder is one replica, no matter how its path is written.
    """
    name = place if local_folder(place) is not None else f"{redact(url)} {place}"
    return os.path.join(log_state_folder(state_dir, log), _short_digest(name))


@dataclass(frozen=True, slots=True)
class _DaemonContext:
    """Facts of the log and of the process that opening a replica needs."""

    state_dir: str
    host: str
    truncator: LogTruncator
    end: SourceEnd


def _open_replica(
    source: LogSource, log: LogConfig, replica: ReplicaConfig, place: _DaemonContext, tools: ProcessContext
) -> OpenedReplica:
    counters = ReplicaCounters(tools.listener, tools.clock)
    plain = open_writable_store(replica.url, replica.options)
    path = state_folder_of(place.state_dir, log.path, replica.url, plain.url)
    store, claims = _encrypt(_wrap(plain, replica, counters.requests), replica, path)
    client = ObjectReplicaClient(store, deletes=not replica.no_delete)
    _require_outside(log.path, client.url)
    task = ReplicaTask(log.path, client.url, None, replica.sync_interval, log.poll_interval, replica.max_segment_bytes)
    task.opened_at = tools.clock.monotonic()
    task.fencing = replica.fencing
    task.no_delete = replica.no_delete
    task.counters = counters
    try:
        ReplicaSet(os.path.dirname(path)).add(os.path.basename(path), client.url, os.path.abspath(log.path))
        place.truncator.attend(os.path.basename(path), store)
        task.state_folder = os.path.relpath(path, place.state_dir)
        folder = StateFolder(path, f"{log.path} to {client.url}")
    except LitelogError as error:
        return OpenedReplica(log.path, replica.url, client, task, error)
    patient = RetryingStore(store, tools.stop_requested, BEGINNING, tools.random, clock=tools.clock)
    events = tools.make_events(task, place.truncator)
    context = _make_context(source, client, replica, counters, events, tools)
    beginning = replace(context, client=ObjectReplicaClient(patient, deletes=not replica.no_delete))
    executor = tools.threads.backlog_pool(client.url)

    def backlog_pool(work: Callable[[], None]) -> None:
        executor.submit(tools.guard, work)

    owner = Owner(
        beginning,
        folder,
        random=tools.random,
        host=place.host,
        takeover=tools.takeovers.setdefault(path, Takeover(requested=True)) if log.takeover else None,
        backlog_sealer=BacklogSealer(beginning, backlog_pool),
        fencing=replica.fencing,
        try_store=partial(try_store, tools.trials, replica.fencing, patient, plain),
        root=plain if isinstance(plain, Rooted) else None,
        encryption=claims,
    )
    made = task.replica = Replica(context, folder, owner)
    task.lag = LagMeter(place.end, partial(_shipped_of, made))
    task.truncator = place.truncator
    if isinstance(plain, LocksObjects) and (locks := plain.locks) is not None:
        patient_client = ObjectReplicaClient(RetryingStore(store, tools.stop_requested, random=tools.random))
        task.lock_extension = LockExtension(
            MeteredLocks(locks, counters.requests),
            patient_client,
            context.settings,
            path,
            known=lambda: made.archived,
            clock=tools.clock,
        )
    if replica.scrub_interval != 0:
        task.scrub = _make_scrub(source, replica, store, path, made, tools)
    return OpenedReplica(log.path, replica.url, client, task)


def _make_context(
    source: LogSource,
    client: ReplicaClient,
    config: ReplicaConfig,
    listener: ReplicaListener,
    events: ReplicaEvents,
    tools: ProcessContext,
) -> ReplicaContext:
    threads = tools.threads.sealing(client.url)
    workers = Executors(
        tools.compressing, tools.threads.putting(client.url), lambda work: threads.submit(partial(tools.guard, work))
    )
    settings = Settings(
        max_segment_bytes=config.max_segment_bytes,
        compression=config.compression,
        snapshot_interval=config.snapshot_interval,
        snapshot_segments=config.snapshot_segments,
        snapshot_policy=config.snapshot_policy,
        wal_retention=config.wal_retention,
        retention=config.retention.policy(),
        no_delete=config.no_delete,
        checkpoints=None if config.checkpoints is None else config.checkpoints.policy(),
    )
    return ReplicaContext(source, client, workers, tools.clock, listener, settings, events)


def _make_scrub(
    source: LogSource, config: ReplicaConfig, store: ObjectStore, folder: str, replica: Replica, tools: ProcessContext
) -> Scrub:
    def known() -> Acknowledged | None:
        last = replica.acknowledged
        return None if last is None else Acknowledged(*last)

    def check(
        throttled: ObjectStore, number: int, damaged: Collection[str], should_continue: Callable[[], bool]
    ) -> Found | None:
        client = ObjectReplicaClient(throttled)
        try:
            return check_replica(
                throttled,
                client,
                lambda: replica.known,
                number,
                formats=formats,
                should_continue=should_continue,
                damaged=damaged,
            )
        except ReplicaUnavailableError:
            replica.suspect()
            raise

    def formats(name: str) -> LogFormat:
        return source.format if name == source.format.name else open_format(name)

    interval = config.scrub_interval
    settings = ScrubSettings(INTERVAL_SECONDS, config.scrub_rate, FIRST_SECONDS)
    return Scrub(
        RetryingStore(store, tools.stop_requested, random=tools.random, clock=tools.clock),
        settings if interval is None else ScrubSettings(interval, config.scrub_rate),
        folder,
        formats=formats,
        acknowledged=known,
        clock=tools.clock,
        random=tools.random,
        check=check if interval is None else None,
        on_harm=replica.repair,
    )


def _shipped_of(replica: Replica) -> tuple[Generation, SourcePosition] | None:
    shipped = replica.shipped
    return None if shipped is None else (shipped[0].generation, shipped[1])


def _wrap(plain: ObjectStore, replica: ReplicaConfig, meter: RequestMeter) -> ObjectStore:
    store = MeteredStore(plain, meter)
    if replica.fencing is Fencing.REQUIRED:
        return store
    message = "%s: fencing isolated: nothing keeps another daemon from writing there at the same time"
    _logger.warning(message, store.url, extra=fields("fencing-isolated", replica=store.url))
    return CheckingStore(store)


def _encrypt(
    store: ObjectStore, replica: ReplicaConfig, folder: str
) -> tuple[ObjectStore, PlainClaims | EncryptedClaims]:
    """The store as the configuration encrypts it, and how claims say so. ``folder``: the replica's state folder."""
    if replica.encryption is None:
        return store, PlainClaims()
    from litelog.stores.encrypted_store import EncryptedStore  # noqa: PLC0415 - few replicas need it

    keys = OwnerKeys(folder, find_identities(replica.options))
    store = EncryptedStore(store, keys, refuses_downgrade=False)
    if replica.encryption == "none":
        return store, PlainClaims(ends_encryption=True)
    return store, EncryptedClaims(replica.encryption.open_recipients(), keys)


def _find_refused(entry: LogConfig | FolderConfig) -> Iterator[tuple[Location, ConfigError]]:
    log = entry.named("name") if isinstance(entry, FolderConfig) else entry
    try:
        log_format = open_format(log.format, log.pattern)
    except ConfigError as error:
        yield ("format",), error
    else:
        if log.truncate is not None and removed_by_owner(log_format):
            message = f"truncate: the writer of a {log.format} log removes its log segments itself; leave truncate out"
            yield ("truncate",), ConfigError(message)
    for number, replica in enumerate(log.replicas):
        try:
            store = open_writable_store(replica.url, replica.options)
            try:
                _require_outside(log.path, store.url)
            finally:
                store.close()
            find_identities(replica.options)
            if isinstance(replica.encryption, EncryptionConfig):
                replica.encryption.open_recipients()
        except ConfigError as error:
            yield ("replicas", number), error


def _find_unusable_keys(entry: LogConfig | FolderConfig) -> Iterator[tuple[Location, ConfigError]]:
    """Yield the errors of keys that sign checkpoints. A daemon starts without them, and ships."""
    for number, replica in enumerate(entry.replicas):
        try:
            if replica.checkpoints is not None:
                replica.checkpoints.check_keys()
        except ConfigError as error:
            yield ("replicas", number, "checkpoints"), error


def _require_outside(log: str, replica: str) -> None:
    """Refuse a replica inside its log's folder, or in that of another log: it would change the log, and be lost with
    it."""
    folder, place = os.path.realpath(log), local_folder(replica)
    if place is not None and os.path.commonpath([folder, os.path.realpath(place)]) == folder:
        raise ConfigError(f"{replica} is in the folder of its own log ({log}); choose another place")
    require_no_log(replica)


def _short_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
