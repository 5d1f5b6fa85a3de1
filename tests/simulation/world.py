"""The simulated world: a log and its writer, its daemons, the store, and the operator who starts and stops them."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from glob import glob
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING
from uuid import UUID

from litelog.config import Config
from litelog.config.entries import CheckpointsConfig, LogConfig, ReplicaConfig, RetentionConfig, TruncateConfig
from litelog.errors import FencedError, LitelogError, SourceSyncError
from litelog.log.failed_syncs import FILE as FAILED_SYNCS
from litelog.log.writer import LogWriter
from litelog.replicator import Replicator
from litelog.replicator.task import FINISHED, Phase
from tests.builders.checkpoints import PRIVATE
from tests.simulation.disk import Disk, Disks
from tests.simulation.encryption import SpelledEncryption, readable
from tests.simulation.listeners import DaemonListener, EventCounter, Watcher
from tests.simulation.log_changes import LogChanges
from tests.simulation.oracle import Oracle
from tests.simulation.plan import DAEMONS, Plan, Step
from tests.simulation.readers import Readers
from tests.simulation.records import record
from tests.simulation.replica_oracle import LISTING_OF_CLAIMS
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.store import Bucket, Creation, Folder, RootedStore, SimulatedStore
from tests.simulation.store_faults import StoreFaults
from tests.simulation.threads import EPOCH, VirtualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from litelog.stores.object_store import ObjectStore
    from tests.simulation.replica_oracle import ReplicaOracle
    from tests.simulation.substitution import Substitution

LOG_ID = UUID(int=0x5EED)
ROOM = "room"
"""The disk that the log and the daemons' states are on."""

CATCHING_UP_SECONDS = 140.0
"""How long after the last fault everything that was written before is shipped: the time-out of a request, the longest
back-off, the proof of ownership, and two of the longest intervals."""

SETTLING_SECONDS = 900.0
"""How long after the writer's end nothing is left to do: finished log segments are sealed, and the readers have read
everything."""

LATER_FACTOR = 20
"""The factor by which the writer is slower after the end of a plan that guards a rule."""

QUIET_SECONDS = 300.0
"""Seconds for which the daemons are watched at the end, when they have nothing left to do."""

FULL_SECONDS = 30.0
"""How long after a disk was full its processes may still end with that error."""

REST_SECONDS = (5.0, 100.0, 1200.0)


@dataclass(slots=True)
class Run:
    """One process of a daemon."""

    began: int
    """Microseconds since 1970."""
    takeover: bool
    """Whether it may take over."""
    looked: dict[str, float] = field(default_factory=dict)
    """By replica, when it was first given a listing of claims, virtual seconds."""
    foreign_claims: Counter[str] = field(default_factory=Counter)
    """By replica, how often it decided to claim above another owner's claim. The claim may be put only by a later run
    of the owner."""


class _Awaited:
    """A step that waits for a step of the protocol."""

    def __init__(self, step: Step, left: int) -> None:
        self.step = step
        self.left = left


class Slot:
    """A place for a daemon: its state outlasts it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: Process | None = None
        self.replicator: Replicator | None = None
        self.exit: LitelogError | None = None
        """The exit code or error of the last run."""
        self.runs: list[Run] = []
        self.has_claimed: set[str] = set()
        """The replicas that it has ever claimed."""
        self.owed: dict[str, int] = {}
        """The content of the log when the daemon was last asked to end."""

    @property
    def is_running(self) -> bool:
        return self.process is not None and not self.process.dead

    def has_given_up(self, url: str) -> bool:
        """Whether the daemon runs, but no longer ships to that replica."""
        there = self.replicator.status() if self.replicator is not None else ()
        return any(each.replica == url and Phase(each.phase) in FINISHED for each in there)


class World:
    """The whole simulated world. A plan's steps are its methods, and those of ``log_changes`` and ``store_faults``."""

    talks = talks_of_requests = False

    def __init__(self, plan: Plan, folder: str, substitution: Substitution) -> None:
        self.plan = plan
        self.settings = plan.settings
        self.random = Random(f"world {plan.seed}")
        self.counts: Counter[str] = Counter()
        self.scheduler = Scheduler(Random(f"scheduler {plan.seed}"))
        self.clock = VirtualClock(self.scheduler)
        self.disks = Disks(folder, self.scheduler)
        self.room: Disk = self.disks.make(ROOM)
        self.desk = self.disks.make("desk", may_lose_power=False)
        """The disk that restores write to, which never fails."""
        self.log = os.path.join(self.room.root, "log")
        self.slots = {name: Slot(name) for name in DAEMONS}
        self.writer: Process | None = None
        self.verifier: Process | None = None
        self.writing = True
        self.written = 0
        """Records that the writer knows to be durable."""
        self.written_at = 0.0
        """When it last wrote."""
        self._resting_until = 0.0
        self.boots = 0
        self._full_until = -FULL_SECONDS
        self.awaited: list[_Awaited] = []
        self.requests = 0
        """The number of requests that daemons have sent."""
        self.armed: list[tuple[Process, str, Callable[[], None]]] = []
        self.opened: dict[int, Process] = {}
        self._network = Random(f"network {plan.seed}")
        self._numbers = Random(f"daemons {plan.seed}")
        substitution.install(self.scheduler, plan.seed, self.open_store, lambda: f"boot {self.boots}")
        self.oracle = Oracle(self)
        self.replicas = [
            self.oracle.add_replica(self._make_bucket(number, kind))
            for number, kind in enumerate((self.settings["store"], *self.settings.get("more_stores", ())))
        ]
        self.log_changes = LogChanges(self, CATCHING_UP_SECONDS)
        self.store_faults = StoreFaults(self)
        for replica in self.replicas:
            replica.bucket.on_request = partial(self._notice, replica)
        self.disks.on_open = self._note_opened
        self.disks.on_unlink = self.oracle.unlinked

    def _make_bucket(self, number: int, kind: str) -> Bucket | Folder:
        name = f"replica-{number}" if number else "replica"
        if kind == "folder":
            remote = self.disks.make(f"remote-{number}" if number else "remote", may_lose_power=False)
            return Folder(os.path.join(remote.root, name), self.counts)
        return Bucket(f"{self.settings['scheme']}://{name}", self.counts, Creation(self.settings["creation"]))

    @property
    def keeps_writers_apart(self) -> bool:
        """Whether every store lets only one of several simultaneous puts of one key succeed."""
        return all(replica.bucket.keeps_writers_apart for replica in self.replicas)

    def find_live(self, url: str) -> list[Slot]:
        """The daemons that have not given up a replica. A daemon with only one replica ends once it gives up."""
        running = [slot for slot in self.slots.values() if slot.is_running]
        return running if len(self.replicas) == 1 else [slot for slot in running if not slot.has_given_up(url)]

    def run(self) -> None:
        """Run the whole plan, let everything settle, and check the promises. Raises ViolationError."""
        events = EventCounter(self)
        logger = logging.getLogger("litelog")
        logger.addHandler(events)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        self.disks.install()
        try:
            self.begin_writer()
            self.start("A")
            self.readers = Readers(self)
            for step in self.plan.steps:
                self.scheduler.at(step.at, partial(self._do, step))
            self.scheduler.run(self.plan.end)
            self._settle()
            self.oracle.check_end()
        finally:
            self.disks.uninstall()
            logger.removeHandler(events)
            self.counts["turns of tasks"] += self.scheduler.turns

    def _say_request(self, what: str) -> None:
        if self.talks_of_requests:
            self.say(what)

    def say(self, what: str) -> None:
        """Print a line about an event, if the user asked for such lines."""
        if self.talks:
            print(f"{self.scheduler.now:10.3f} {what}")

    def _do(self, step: Step) -> None:
        if step.when is not None:
            self.awaited.append(_Awaited(step, step.when.count))
        else:
            self._carry_out(step)

    def _notice(self, replica: ReplicaOracle, who: str, moment: str, request: str) -> None:
        """A request is about to be sent, or was carried out. Carry out the steps that waited for it."""
        if who in self.slots:
            self.requests += moment == "before"
            replica.requested(who, moment, request)
            if moment == "answered" and request == LISTING_OF_CLAIMS:
                self.slots[who].runs[-1].looked.setdefault(replica.bucket.url, self.scheduler.now)
        for awaited in list(self.awaited):
            when = awaited.step.when
            assert when is not None
            if (when.who, when.moment) == (who, moment) and re.match(when.request, request):
                awaited.left -= 1
                if not awaited.left:
                    self.awaited.remove(awaited)
                    self._carry_out(awaited.step)

    def _carry_out(self, step: Step) -> None:
        """Carry out a step, outside of all tasks: a fault is not interrupted by another one."""
        self.say(f"--- {step.do} {step.arguments}")
        place = next(each for each in (self, self.log_changes, self.store_faults) if hasattr(each, step.do))
        task, self.scheduler.current = self.scheduler.current, None
        try:
            getattr(place, step.do)(**step.arguments)
        finally:
            self.scheduler.current = task
        self.oracle.look_soon()

    def _settle(self) -> None:
        self.store_faults.clear_network()
        self.awaited.clear()
        for replica in self.replicas:
            replica.bucket.faults.clear()
            replica.bucket.come_back()
        self.room.full = False
        self._restart_machine_if_frozen()
        self.log_changes.bring_segments_back()
        for slot in self.slots.values():
            if slot.process is not None:
                slot.process.triggers.clear()
                self.scheduler.resume(slot.process)
        for process in (self.readers.process, self.verifier):
            if process is not None:
                self.scheduler.resume(process)
        if self.writer is not None:
            self.writer.triggers.clear()
        self.oracle.begin_catching_up()
        self.scheduler.run(self.scheduler.now + CATCHING_UP_SECONDS)
        self.oracle.check_caught_up()
        if not all(replica.has_owner() for replica in self.replicas):
            for slot in self.slots.values():
                if slot.process is not None:
                    self._end(slot.process)
            self.start("A", takeover=True)
            self.counts["no owner was left: an operator takes over"] += 1
        self.scheduler.run(self.scheduler.now + 60.0)
        self.writing = False
        quiet = self.settings.get("quiet", QUIET_SECONDS)
        self.scheduler.run(self.scheduler.now + self.settings.get("settling", SETTLING_SECONDS) - quiet)
        before = self.requests
        self.scheduler.run(self.scheduler.now + quiet)
        self.oracle.check_quiet(self.requests - before, quiet)

    def _restart_machine_if_frozen(self) -> None:
        """Do as an operator does after a sync of the log has failed."""
        notes = glob(os.path.join(self.room.root, "state-*", "*", FAILED_SYNCS))
        if not any(f'"boot {self.boots}"' in Path(note).read_text() for note in notes):
            return
        self.counts["the log could not be synced: an operator restarts the machine"] += 1
        self.lose_power()
        for slot in self.slots.values():
            if isinstance(slot.exit, SourceSyncError):
                self.scheduler.after(2.0, partial(self.start, slot.name))

    def start(self, who: str, takeover: bool = False) -> None:
        """Start a daemon, if it does not run."""
        slot = self.slots[who]
        away = (replica.bucket.url for replica in self.replicas if replica.bucket.is_away)
        if slot.is_running or any(url not in slot.has_claimed for url in away):
            return
        slot.process = process = Process(who, ROOM)
        slot.exit, slot.owed = None, {}
        slot.runs.append(Run(round((EPOCH + self.scheduler.now) * 1e6), takeover))
        self.scheduler.spawn(process, "main", lambda: self._run_daemon(slot, process, takeover))
        self.counts["start with takeover" if takeover else "start"] += 1

    def take_over(self, who: str) -> None:
        """Do as an operator does: start the daemon with the flag."""
        self.start(who, takeover=True)

    def stop(self, who: str) -> None:
        """Send SIGTERM to a daemon."""
        slot = self.slots[who]
        if slot.is_running and slot.replicator is not None:
            assert slot.process is not None
            self.oracle.stopping(slot)
            self.scheduler.spawn(slot.process, "signal", slot.replicator.stop)
            self.counts["stop"] += 1

    def kill(self, who: str, calls: int, restart: float) -> None:
        """SIGKILL at that call of a store or disk from now on. A service manager starts it again ``restart`` later."""
        slot = self.slots[who]
        process = slot.process
        if process is None or process.dead:
            return

        def die() -> None:
            if process.dead:
                return
            self._end(process)
            self.counts["kill"] += 1
            self._start_again(slot, process, restart)

        self._trigger(process, calls, die)

    def pause(self, who: str, calls: int, seconds: float) -> None:
        """SIGSTOP at that call, and SIGCONT that many seconds later."""
        others = {"verifier": self.verifier, "reader": self.readers.process}
        process = self.slots[who].process if who in self.slots else others[who]
        if process is None or process.dead:
            return

        def stand_still() -> None:
            if process.dead or process.paused:
                return
            self.scheduler.pause(process)
            self.counts["pause"] += 1
            self.scheduler.after(seconds, lambda: self.scheduler.resume(process))

        self._trigger(process, calls, stand_still)

    def keep_state(self, who: str) -> None:
        """Make a backup of a daemon's state folder."""
        folder = os.path.join(self.room.root, f"state-{who}")
        backup = os.path.join(self.desk.root, f"backup-{who}")
        if os.path.isdir(folder):
            shutil.rmtree(backup, ignore_errors=True)
            shutil.copytree(folder, backup)

    def put_back_state(self, who: str) -> None:
        """Replace the state folder of a daemon that does not run with the backup, if the disk has room for it."""
        if self.room.full:
            return
        folder = os.path.join(self.room.root, f"state-{who}")
        backup = os.path.join(self.desk.root, f"backup-{who}")
        if not self.slots[who].is_running and os.path.isdir(backup):
            shutil.rmtree(folder)
            shutil.copytree(backup, folder)
            self.counts["fault: older state"] += 1

    def verify(self, replica: int = 0) -> None:
        """A person verifies a replica from another machine while its owner works."""
        process = self.verifier = Process("verifier", "elsewhere")
        verified = self.replicas[replica]
        self.scheduler.spawn(
            process, "verify", lambda: verified.verify(self.decrypted(self.open_store(verified.bucket.url)))
        )

    def rest(self, seconds: float) -> None:
        """The writer writes nothing for a while."""
        self._resting_until = self.scheduler.now + seconds

    def kill_writer(self, calls: int) -> None:
        """SIGKILL of the log's writer; it is started again."""
        process = self.writer
        if process is None or process.dead:
            return

        def die() -> None:
            if process.dead:
                return
            self._end(process)
            self.counts["kill of the writer"] += 1
            self.scheduler.after(1.0, self.begin_writer)

        self._trigger(process, calls, die)

    def lose_power(self) -> None:
        """The room loses power: all processes end, and the disk loses the bytes that it had not made durable."""
        running = [slot.name for slot in self.slots.values() if slot.is_running]
        for slot in self.slots.values():
            if slot.process is not None:
                self._end(slot.process)
        self.end_writer()
        self.oracle.before_power_loss()
        self.disks.lose_power(self.room, self.random)
        self.oracle.after_power_loss()
        self.boots += 1
        self.counts["power loss"] += 1
        self.scheduler.after(2.0, self.begin_writer)
        for name in running:
            self.scheduler.after(2.0 + self.random.random(), partial(self.start, name))

    def drop_pages(self) -> None:
        """The room's disk fails while it writes back the log's newest log segment."""
        self.disks.drop_pages(self.room, os.path.join(self.log, max(self.oracle.truth.names())))
        self.counts["fault: pages dropped"] += 1

    def disk_full(self, seconds: float) -> None:
        """The room's disk is full for a while."""
        self.room.full = True
        self._full_until = self.scheduler.now + seconds
        self.counts["fault: disk full"] += 1
        self.scheduler.after(seconds, lambda: setattr(self.room, "full", False))

    @property
    def disk_was_full(self) -> bool:
        """Whether the room's disk is full, or was a moment ago."""
        return self.room.full or self.scheduler.now < self._full_until + FULL_SECONDS

    @property
    def has_failed_to_sync(self) -> bool:
        """Whether a sync of the log may have failed, after which nothing is shipped before the machine is restarted."""
        return bool(self.counts["fault: pages dropped"] or self.counts["fault: disk full"])

    def _run_daemon(self, slot: Slot, process: Process, takeover: bool) -> None:
        error: LitelogError | None = None
        replicator = Replicator(
            self._configure(takeover),
            state_dir=os.path.join(self.room.root, f"state-{slot.name}"),
            host=slot.name,
            clock=self.clock,
            random=Random(self._numbers.getrandbits(64)),
            listener=DaemonListener(self, slot),
            watcher=Watcher(self, process),  # type: ignore[arg-type]
        )
        slot.replicator = replicator
        try:
            replicator.run()
        except LitelogError as caught:
            error = caught
        slot.exit = error
        slot.replicator = None
        self._end(process)
        self.oracle.exited(slot, error)
        if error is not None and not isinstance(error, FencedError):
            self._start_again(slot, process, 5.0)

    def _start_again(self, slot: Slot, process: Process, seconds: float) -> None:
        """Start the daemon again, as a service manager does, unless it was started before."""

        def start() -> None:
            if slot.process is process:
                self.start(slot.name)

        self.scheduler.after(seconds, start)

    def _configure(self, takeover: bool) -> Config:
        settings = self.settings
        replicas = tuple(
            ReplicaConfig(
                url=replica.bucket.url,
                sync_interval=settings["sync_interval"],
                snapshot_interval=settings["snapshot_interval"],
                snapshot_segments=settings["snapshot_segments"],
                snapshot_policy=settings["snapshot_policy"],
                fencing=settings["fencing"],
                encryption=SpelledEncryption(recipients=("everyone",)) if settings.get("encrypted") else None,
                checkpoints=self._configure_checkpoints(),
                scrub_interval=settings["scrub_interval"],
                retention=self._configure_retention(),
            )
            for replica in self.replicas
        )
        truncate = TruncateConfig(max_bytes=settings["truncate"]) if settings["truncate"] is not None else None
        log = LogConfig(
            path=self.log,
            takeover=takeover,
            poll_interval=settings["poll_interval"],
            truncate=truncate,
            replicas=replicas,
        )
        return Config(logs=(log,))

    def _configure_checkpoints(self) -> CheckpointsConfig | None:
        if not self.settings.get("checkpoints"):
            return None
        path = Path(self.desk.root, "sign.pem")
        path.write_text(PRIVATE)
        return CheckpointsConfig(sign_key=str(path), every=self.settings["snapshot_interval"])

    def _configure_retention(self) -> RetentionConfig:
        count = self.settings.get("snapshots")
        return RetentionConfig(max_age=self.settings["retention"], max_snapshots=count, min_snapshots=count or 1)

    def begin_writer(self) -> None:
        """Start the log's writer, unless it runs."""
        if self.writer is not None and not self.writer.dead:
            return
        self.writer = process = Process("writer", ROOM)
        self.scheduler.spawn(process, "main", lambda: self._write(process))

    def end_writer(self) -> None:
        """End the log's writer, if it runs."""
        if self.writer is not None:
            self._end(self.writer)

    def _write(self, process: Process) -> None:
        try:
            with self._open_writer() as writer:
                self.oracle.recovered(writer.next_sequence)
                self._append(writer)
        except (LitelogError, OSError) as error:
            if not self.disk_was_full:
                self.oracle.fail(f"the writer ended with {type(error).__name__}: {error}")
            self.counts[f"writer ended: {type(error).__name__} on a full disk"] += 1
            self.scheduler.after(3.0, self.begin_writer)
        self._end(process)

    def _open_writer(self) -> LogWriter:
        size, fsync = self.settings["segment_bytes"], self.settings["fsync"]
        return LogWriter(self.log, segment_bytes=size, fsync=fsync, log_id=LOG_ID, clock=self.clock)

    def _append(self, writer: LogWriter) -> None:
        random = Random(f"writer {self.plan.seed} {writer.next_sequence}")
        while self.writing:
            for _ in range(random.randint(1, 60)):
                if not self.writing:
                    return  # type: ignore[unreachable]  # another task ends it
                count = random.choice((1, 1, 2, 20))
                first = writer.next_sequence
                writer.append([record(number) for number in range(first, first + count)])
                self.written, self.written_at = writer.durable_sequence, self.scheduler.now
                self.changed(self.log)
                slower = LATER_FACTOR if "rest" in self.settings and self.scheduler.now > self.plan.end else 1
                self.scheduler.sleep(self.settings["write_pause"] * random.random() * 2 * slower)
                self._rest_until(self._resting_until)
            self._rest_until(
                self.scheduler.now + random.choice(self.settings.get("rest", REST_SECONDS)) * random.random()
            )

    def _rest_until(self, until: float) -> None:
        while self.writing and self.scheduler.now < until:
            self.scheduler.sleep(min(10.0, until - self.scheduler.now + 0.001))

    def _end(self, process: Process) -> None:
        """Release the resources of a process that has ended, as the operating system does."""
        self.scheduler.kill(process)
        for descriptor, owner in list(self.opened.items()):
            if owner is process:
                with suppress(OSError):
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
                del self.opened[descriptor]
        self.armed = [each for each in self.armed if each[0] is not process]

    def _trigger(self, process: Process, calls: int, call: Callable[[], None]) -> None:
        if calls:
            process.triggers.append((process.seams + calls, call))
        else:
            call()

    def _note_opened(self, descriptor: int) -> None:
        if self.scheduler.current is not None:
            self.opened[descriptor] = self.scheduler.current.process

    def open_store(self, url: str, _options: Mapping[str, object] | None = None) -> ObjectStore:
        """The store of that URL, for the process that asks."""
        bucket = next(replica.bucket for replica in self.replicas if replica.bucket.url == url)
        kind = RootedStore if isinstance(bucket, Folder) else SimulatedStore
        return kind(bucket, self.scheduler, self._network, self._say_request)

    def decrypted(self, store: ObjectStore) -> ObjectStore:
        """The store as those read it who have the identity."""
        return readable(store) if self.settings.get("encrypted") else store

    def changed(self, folder: str) -> None:
        """A folder has changed: wake each watcher of it, once."""
        woken = [each for each in self.armed if each[1] == folder]
        self.armed = [each for each in self.armed if each[1] != folder]
        for process, _, wake in woken:
            self.scheduler.spawn(process, "watcher", wake)
