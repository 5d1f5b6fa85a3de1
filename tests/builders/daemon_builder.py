"""A daemon without threads for one log and one replica. A test syncs it, crashes it and starts it again."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import Executor, Future
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from litelog.formats.capabilities import index_name
from litelog.formats.litelog import LitelogFormat
from litelog.objects.layout import Fencing
from litelog.objects.position import generation
from litelog.reading.contents import find_snapshot
from litelog.reading.latest import read_claims
from litelog.restore.execution import restore
from litelog.restore.history_plan import Target, find_plan
from litelog.shipping.backlog import BacklogSealer
from litelog.shipping.context import Executors, LogSource, ReplicaContext, Settings
from litelog.shipping.ownership import Owner
from litelog.shipping.replica import Replica
from litelog.shipping.state import StateFolder
from litelog.shipping.takeover import Takeover
from litelog.stores.checking_store import CheckingStore
from litelog.stores.object_store import ObjectReplicaClient, PartsAndPages, Rooted
from tests.builders.independent_reader import read_replica
from tests.builders.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from litelog.formats import LogFormat
    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation
    from litelog.objects.snapshot import Snapshot
    from litelog.shipping.events import ScrubFinished, SegmentSealed, SnapshotWritten, WalSegmentShipped
    from litelog.stores.object_store import ObjectStore
    from litelog.stores.trial import StoreTrials
    from tests.builders.log_builder import LogBuilder


class InlineExecutor(Executor):
    """Executes each task at once, in the caller's thread."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - the future keeps it, as an executor's does
            future.set_exception(error)
        return future


HOUR = 3600.0

INLINE = Executors(InlineExecutor(), InlineExecutor())


def find_rooted(store: object) -> Rooted | None:
    """The store inside a test's wrappers, if it has a root that may disappear."""
    while not isinstance(store, Rooted) and hasattr(store, "inner"):
        store = store.inner
    return store if isinstance(store, Rooted) else None


class SilentListener:
    """A listener that ignores every event."""

    def on_wal_segment_shipped(self, event: WalSegmentShipped) -> None: ...

    def on_generation_started(self, log: str, replica: str, claim: Claim) -> None: ...

    def on_segment_sealed(self, event: SegmentSealed) -> None: ...

    def on_snapshot_written(self, event: SnapshotWritten) -> None: ...

    def on_scrub_finished(self, event: ScrubFinished) -> None: ...


_daemons: WeakSet[Daemon] = WeakSet()


def close_left_open() -> None:
    """End all daemons that a test has not ended: each holds a lock and an open log segment."""
    while _daemons:
        _daemons.pop().__del__()


class Daemon:
    """A daemon for one log and one replica, without threads.

    It is its own listener: ``acknowledged``, ``claims``, ``sealed_events`` and ``snapshots`` hold the events.
    """

    def __init__(
        self,
        log: LogBuilder,
        store: ObjectStore,
        state: str,
        *,
        clock: ManualClock | None = None,
        seed: int = 0,
        takeover: bool = False,
        limit: int = 1 << 20,
        workers: Executors = INLINE,
        host: str = "here",
        beginning: ObjectStore | None = None,
        settings: Settings | None = None,
        fencing: Fencing = Fencing.REQUIRED,
        backlog_sealer: bool = False,
        source: LogSource | None = None,
        trials: StoreTrials | None = None,
    ) -> None:
        """Start the daemon.

        ``beginning``: the store that begins generations, if it is not ``store`` itself. ``trials``: tries the store
        before the first claim; without it, nothing does. ``backlog_sealer``: when a generation begins, the daemon
        ships finished log segments sealed.
        """
        self.log = log
        self.store = store
        self.beginning = beginning or store
        self.fencing = fencing
        self.state = state
        self.clock = clock or ManualClock()
        self.random = Random(seed)
        self.host = host
        self.settings = settings or Settings(max_segment_bytes=limit)
        self.workers = workers
        self.backlog_sealer = backlog_sealer
        self.trials = trials
        self.source = source or LogSource(log.folder, log.format)
        self.acknowledged: list[WalSegmentShipped] = []
        self.claims: list[Claim] = []
        self.sealed_events: list[SegmentSealed] = []
        self.snapshots: list[SnapshotWritten] = []
        self.on_shipped: Callable[[WalSegmentShipped], None] | None = None
        self.when_replicated: Callable[[], None] = lambda: None
        self.when_finished: Callable[[], None] = lambda: None
        _daemons.add(self)
        self.start(takeover=takeover)

    def start(self, *, takeover: bool = False) -> None:
        """Open the state folder, and begin with nothing in memory."""
        source = self.source
        client = ObjectReplicaClient(self._fenced(self.store))
        self.folder = StateFolder(self.state, "test")
        context = ReplicaContext(source, client, self.workers, self.clock, self, self.settings, self)
        beginning = replace(context, client=ObjectReplicaClient(self._fenced(self.beginning)))
        self.owner = Owner(
            beginning,
            self.folder,
            random=self.random,
            host=self.host,
            takeover=Takeover(requested=takeover),
            fencing=self.fencing,
            root=find_rooted(self.store),
            backlog_sealer=BacklogSealer(beginning) if self.backlog_sealer else None,
            try_store=None if self.trials is None else self._try_store,
        )
        self.replica = Replica(context, self.folder, self.owner)

    def _try_store(self) -> None:
        assert self.trials is not None
        small = self.beginning if isinstance(self.beginning, PartsAndPages) else None
        self.trials.require_fit("destination", self.fencing, self._fenced(self.beginning), small)

    def _fenced(self, store: ObjectStore) -> ObjectStore:
        return store if self.fencing is Fencing.REQUIRED else CheckingStore(store)

    def sync(self) -> bool:
        return self.replica.sync()

    def crash(self) -> None:
        """Lose everything that is only in memory."""
        if self.replica._writer is not None:
            self.replica._writer.close()
            self.replica._writer.feed.close()
        self.folder.close()

    def __del__(self) -> None:
        """Close the open files: a test may make hundreds of daemons."""
        if hasattr(self, "replica"):
            self.crash()

    def restart(self, *, takeover: bool = False) -> None:
        self.crash()
        self.start(takeover=takeover)

    def lose_state(self) -> None:
        """Crash, and lose the state folder."""
        self.crash()
        shutil.rmtree(self.state)

    def close(self) -> None:
        self.replica.close()

    @property
    def generation(self) -> Generation:
        position = self.replica.position
        assert position is not None
        return position.generation

    def on_wal_segment_shipped(self, event: WalSegmentShipped) -> None:
        self.acknowledged.append(event)
        if self.on_shipped is not None:
            self.on_shipped(event)

    def on_generation_started(self, log: str, replica: str, claim: Claim) -> None:
        self.claims.append(claim)

    def on_segment_sealed(self, event: SegmentSealed) -> None:
        self.sealed_events.append(event)

    def on_snapshot_written(self, event: SnapshotWritten) -> None:
        self.snapshots.append(event)

    def on_scrub_finished(self, event: ScrubFinished) -> None: ...

    def on_archive_changed(self) -> None: ...

    def on_backlog_sealed(self) -> None: ...

    def on_segment_finished(self) -> None:
        self.when_finished()

    def on_replicated(self) -> None:
        self.when_replicated()


def start_sealing(log: LogBuilder, store: ObjectStore, state: str, clock: ManualClock, **more: Any) -> Daemon:
    """A daemon that ships finished log segments sealed when a generation begins."""
    return Daemon(log, store, state, clock=clock, backlog_sealer=True, **more)


def live(*daemons: Daemon, hours: int, keep: int | None = None) -> None:
    """Add a log segment an hour, which the daemons of the log ship in two WAL segments. The source keeps the newest
    ``keep`` log segments."""
    log, clock = daemons[0].log, daemons[0].clock
    for _ in range(hours):
        log.roll(1)
        for _ in range(2):
            log.append(1)
            clock.advance(HOUR / 2)
            for daemon in daemons:
                daemon.sync()
        names = sorted(log.files())
        for name in names[: max(0, len(names) - keep)] if keep else ():
            os.unlink(log.path(name))


def newest_snapshot(daemon: Daemon) -> Snapshot:
    """The newest snapshot of the daemon's generation."""
    client = ObjectReplicaClient(daemon.store)
    found = find_snapshot(client, read_claims(client)[daemon.generation])
    assert found is not None
    return found


def held(store: ObjectStore) -> dict[str, bytes]:
    """The files that the newest generation holds, as the independent reader reads them."""
    return list(read_replica(store).values())[-1].files()


def restored(
    store: ObjectStore, target: Path, log_format: LogFormat | None = None, name: str | None = None
) -> dict[str, bytes]:
    """The files that a restore writes to ``target``, oldest first, without indexes of the log's writer. The files
    of an earlier restore are deleted.

    ``name``: the generation; by default, the generation that ``restore`` chooses.
    """
    client, log_format = ObjectReplicaClient(store), log_format or LitelogFormat()
    shutil.rmtree(target, ignore_errors=True)
    plan = find_plan(client, Target(generation(name) if name else None), log_format)
    restore(client, plan, str(target), log_format=log_format)
    indexes = {index_name(log_format, path.name) for path in target.iterdir()}
    return {path.name: path.read_bytes() for path in sorted(target.iterdir()) if path.name not in indexes}
