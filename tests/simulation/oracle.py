"""The promises, checked after every step and at the end: those of the log, its daemons and its readers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from litelog.errors import (
    CorruptionError,
    DivergedError,
    FencedError,
    FinalSyncError,
    LitelogError,
    SourceSyncError,
)
from litelog.formats.litelog import LitelogFormat
from litelog.shipping.state import StateError
from litelog.stores.trial import UnfitStoreError
from tests.simulation.replica_oracle import ReplicaOracle
from tests.simulation.scheduler import ViolationError
from tests.simulation.truth import Truth, count_common, end_of_commits, read_log

if TYPE_CHECKING:
    from tests.simulation.store import Bucket, Folder
    from tests.simulation.world import Slot, World

FORMAT = LitelogFormat()
LOOK_SECONDS = 1.0
"""Seconds after a step at which the replicas are restored; also the shortest time between two restores."""

MAX_REQUESTS_PER_SECOND = 17
"""The most requests of daemons that have nothing left to do. More are a loop."""

MAX_REQUESTS_PER_OBJECT = 8
"""The most requests of a verification of the whole replica for each of its objects: a few in each generation that names
the object, as a sealed segment is read with its footer, its snapshots and its WAL segments."""


class Oracle:
    """Knows the written records, and checks the promises of each replica."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.truth = Truth(world.log)
        self.replaced_until = 0.0
        """Until when the replicas may lack data that came back to the log."""
        self._looking = False
        self._there: set[str] = set()
        """The log segments that existed before the power was lost."""

    def add_replica(self, bucket: Bucket | Folder) -> ReplicaOracle:
        """The oracle of one replica of the log."""
        return ReplicaOracle(self._world, self.truth, bucket)

    @property
    def lost(self) -> bool:
        """Whether any store has lost something."""
        return any(replica.lost for replica in self._world.replicas)

    def unlinked(self, path: str) -> None:
        """A file is about to be removed."""
        folder, name = os.path.split(path)
        if folder == self._world.log and FORMAT.segment_order(name) is not None:
            self.truth.read(name)

    def log_replaced(self, until: float) -> None:
        """A copy replaced the log's folder. Its daemon may not have noticed until that time."""
        self.replaced_until = until

    def stopping(self, slot: Slot) -> None:
        """A daemon is asked to end: its last sync has to reach the current end of the log."""
        slot.owed = self._find_held()

    def _find_held(self) -> dict[str, int]:
        self.truth.read_all()
        return {name: end_of_commits(name, body) for name, body in self.truth.here().items()}

    def exited(self, slot: Slot, error: LitelogError | None) -> None:
        """A daemon has ended by itself. It must have a documented reason, which the oracle counts."""
        reason = self._find_reason(slot, error)
        self._world.counts[f"exit: {reason or type(error).__name__}"] += 1
        if not reason:
            self.fail(f"P10: {slot.name} ended with {type(error).__name__}: {error}")

    def _find_reason(self, slot: Slot, error: LitelogError | None) -> str:
        if error is None:
            self._check_last_sync(slot)
            return "done"
        if isinstance(error, FencedError):
            self._check_fenced(slot, error)
            return "fenced"
        if isinstance(error, FinalSyncError):
            return "the last sync did not reach the replica"
        if isinstance(error, SourceSyncError) and self._world.has_failed_to_sync:
            return "the log could not be synced"
        return self._find_reason_of_fault(error)

    def _find_reason_of_fault(self, error: LitelogError) -> str:
        if isinstance(error, (SourceSyncError, StateError)) and self._world.disk_was_full:
            return f"{type(error).__name__} on a full disk"
        if isinstance(error, UnfitStoreError) and not self._world.keeps_writers_apart:
            return "refused: the store does not keep writers apart"
        return "frozen by what was lost" if self.lost and isinstance(error, CorruptionError) else ""

    def _check_last_sync(self, slot: Slot) -> None:
        for replica in self._world.replicas:
            short = "" if replica.lost or self.truth.gone else replica.find_owed(slot.owed)
            if short:
                replica.fail(f"P10: {slot.name} was stopped, and its last sync has shipped {short}")

    def _check_fenced(self, slot: Slot, error: FencedError) -> None:
        for replica in self._world.replicas:
            newest = replica.newest_claims
            is_own = bool(newest) and all(claim.host == slot.name for claim in newest)
            says_so = len(self._world.replicas) == 1 or str(error).startswith(f"{replica.bucket.url}:")
            if is_own and says_so and not self._world.counts["fault: older state"]:
                replica.fail(f"P10: {slot.name} was fenced, and its own claim is the newest: {error}")

    def reader_failed(self, what: str, error: LitelogError) -> None:
        """A reader has raised an error, which must have a reason."""
        replica = self._world.replicas[0]
        forked = isinstance(error, DivergedError) and (replica.has_diverged() or replica.has_rivals())
        if not (replica.lost or forked):
            self.fail(f"P1: a reader ({what}) ended with {type(error).__name__}: {error}")

    def recovered(self, following: int) -> None:
        """The writer has opened the log."""
        if following < self._world.written:
            self.fail(f"the log begins at {following}, but {self._world.written} records were durable")

    def before_power_loss(self) -> None:
        """All processes have ended."""
        self.truth.read_all()
        self._there = set(self.truth.here())

    def after_power_loss(self) -> None:
        """The log must hold the content of the disk (P4)."""
        left = read_log(self._world.log)
        for name in self._there:
            same = count_common(self.truth.files[name], left.get(name, b""))
            for shipped in self.truth.shipped:
                promised = shipped.promised.get(name, 0)
                if same < promised:
                    self.fail(f"P4: {name} has {same} bytes left, and {promised} were acknowledged")
            if name not in left:
                del self.truth.files[name]
        self.truth.read_all()

    def rewound(self) -> None:
        """The log's content has changed: data that only the earlier content had is not promised any more."""
        self.truth.change_history()
        for replica in self._world.replicas:
            replica.rewound()
        self.look_soon()

    def look_soon(self) -> None:
        """Restore the replicas soon."""
        if self._looking:
            return
        self._looking = True

        def look() -> None:
            self._looking = False
            for replica in self._world.replicas:
                replica.look()
            first = self._world.replicas[0]
            if not (first.bucket.is_away or first.lost):
                self._check_copy(first)

        self._world.scheduler.after(LOOK_SECONDS, look)

    def _check_copy(self, replica: ReplicaOracle, *, now: bool = False) -> dict[str, bytes]:
        """The copy that a reader keeps up to date must be a run of the log (P1, P3)."""
        readers = self._world.readers
        if not readers.is_following:
            return {}
        copy = read_log(readers.copy)
        replica.check_bytes(copy, "followed", now=now)
        return copy

    def begin_catching_up(self) -> None:
        """The last fault is over. Each running daemon must now ship everything that was written before."""
        owed = self._find_held()
        for replica in self._world.replicas:
            replica.begin_catching_up(owed)

    def check_caught_up(self) -> None:
        """Each daemon that has run since the last fault must have shipped the data of that time (P10)."""
        for replica in self._world.replicas:
            replica.check_caught_up()

    def check_quiet(self, requests: int, seconds: float) -> None:
        """Daemons that have nothing left to do must send few requests (P10), and those of a verification that is due
        (``scrub-interval``)."""
        allowed = MAX_REQUESTS_PER_SECOND * len(self._world.replicas) * seconds
        if self._world.settings["scrub_interval"]:
            allowed += MAX_REQUESTS_PER_OBJECT * sum(len(each.bucket.keys()) for each in self._world.replicas)
        if requests > allowed:
            self.fail(f"P10: the daemons sent {requests} requests, and had nothing left to do")

    def check_end(self) -> None:
        """Everything must be shipped, and every replica sound."""
        self.truth.read_all()
        for replica in self._world.replicas:
            replica.check_end()
        if self._world.keeps_writers_apart or self._world.settings["fencing"] != "required":
            self._check_readers(self._world.replicas[0])

    def _check_readers(self, replica: ReplicaOracle) -> None:
        """The following readers must have all records."""
        readers = self._world.readers
        following = replica.shipped.next()
        if replica.lost:
            return
        if readers.next is not None and readers.next != following:
            self.fail(f"P10: the reader waits for record {readers.next}, and {following - 1} is the last one")
        promised = replica.shipped.promised
        copy, newest = self._check_copy(replica, now=True), max(promised)
        if readers.is_following and len(copy.get(newest, b"")) < promised[newest]:
            self.fail(f"P10: the copy has {len(copy.get(newest, b''))} bytes of {newest}, not all that is there")

    def fail(self, what: str) -> None:
        """A promise is broken."""
        violation = ViolationError(what)
        self._world.scheduler.fail(violation)
        if self._world.scheduler.current is None:
            raise violation
