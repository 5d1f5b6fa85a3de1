"""The promises, checked after every step and at the end."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from litelog.errors import (
    CorruptionError,
    DivergedError,
    FencedError,
    FinalSyncError,
    LitelogError,
    NothingToRestoreError,
    SourceSyncError,
)
from litelog.formats import Expectation
from litelog.formats.litelog import LitelogFormat
from litelog.objects import claim as claims
from litelog.objects import layout, wal_segment
from litelog.objects.claim import Relation
from litelog.objects.position import Generation, Position
from litelog.restore.execution import restore
from litelog.restore.history_plan import Target, find_plan
from litelog.shipping.state import StateError
from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.trial import UnfitStoreError
from litelog.verify.execution import verify
from tests.simulation.scheduler import ViolationError
from tests.simulation.store import SimulatedStore
from tests.simulation.truth import Truth, end_of_commits, find_flaw, read_log

if TYPE_CHECKING:
    from litelog.objects.claim import Claim
    from litelog.shipping.events import WalSegmentShipped
    from litelog.stores.object_store import ObjectStore
    from litelog.verify.findings import Anomaly
    from tests.simulation.scheduler import Process
    from tests.simulation.world import Run, Slot, World

FORMAT = LitelogFormat()
LOOK_SECONDS = 1.0
"""How soon after a step the replica is restored; at most once in so long."""

MAX_REQUESTS_PER_SECOND = 17
"""More of daemons that have nothing left to do are a loop."""

POINTS = 40
"""How many points are remembered, to be restored to later."""

LOUD = ("anomaly", "sync-failed", "sealing-failed", "lost", "unrecoverable", "diverged", "frozen", "refused", "gap")
"""What the log says, in part, where something was found to be lost."""


@dataclass(frozen=True, slots=True)
class Point:
    """A state that the replica was in."""

    at: float
    next: int
    """The sequence of the record after the last one."""


class Oracle:
    """Knows what was written and what was acknowledged."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.truth = Truth(world.log)
        self.lost: set[str] = set()
        """What the store has lost."""
        self._must_notice = False
        self._replaced_until = 0.0
        """Until when the replica may lack what came back to the log."""
        self._loud_before = 0
        self._sealed: set[str] = set()
        self._owed: dict[str, int] = {}
        self._catching_up: list[Process] = []
        self._claims: dict[Generation, Claim] = {}
        self._claimed_at: dict[str, float] = {}
        """When each of them was put."""
        self._begun: set[str] = set()
        """The generations whose first snapshot was put while there was no newer claim."""
        self._points: list[Point] = []
        self._looking = False
        self._there: set[str] = set()
        """The log segments that were there before the power was lost."""

    # --- what is told

    def acknowledged(self, slot: Slot, event: WalSegmentShipped) -> None:
        """A daemon says that a WAL segment is durable."""
        self._world.counts["acknowledged"] += 1
        wrong = self.truth.acknowledge(event.header)
        if wrong:
            self.fail(f"P1: {slot.name} acknowledged {wrong}")

    def sealed(self, file: str) -> None:
        """A log segment is in the replica, sealed."""
        self._sealed.add(file)

    def put(self, key: str, body: bytes) -> None:
        """The store has taken an object."""
        if (snapshot := layout.parse_snapshot(key)) is not None:
            name = str(snapshot[0])
            epochs = {claim.generation: claim.epoch for claim in self._claims.values()}
            if name in epochs and epochs[name] == max(epochs.values()):
                self._begun.add(name)
        if layout.parse_claim(key) is not None:
            self._judge_claim(key, claims.parse(body.decode()))

    def _judge_claim(self, key: str, claim: Claim) -> None:
        slot = self._world.slots[claim.host]
        if self._world.bucket.is_away:
            self.fail(f"P2: {slot.name} claimed {key} in the empty folder in the replica's place")
        slot.has_claimed = True
        newest = max(
            (each for each in self._claims.values() if each.epoch < claim.epoch),
            key=lambda each: each.epoch,
            default=None,
        )
        if key not in self._claims and newest is not None and newest.owner != claim.owner:
            run = next(run for run in reversed(slot.runs) if run.began <= claim.time)
            self._judge_takeover(slot, run, key, newest.key)
        self._claims[key] = claim
        self._claimed_at.setdefault(key, self._world.scheduler.now)

    def _judge_takeover(self, slot: Slot, run: Run, key: str, below: str) -> None:
        run.foreign_claims += 1
        self._world.counts["claim above another owner's"] += 1
        if not run.takeover:
            self.fail(f"P6: {slot.name} claimed {key} above another owner's, and was not told to take over")
        if run.foreign_claims > 1:
            self.fail(f"takeover: {slot.name} claimed {key} above another owner's a second time by one flag")
        if run.looked is not None and self._claimed_at[below] > run.looked:
            self.fail(f"takeover: {slot.name} claimed {key} above {below}, which came after its first look")

    def unlinked(self, path: str) -> None:
        """A file is about to be removed."""
        folder, name = os.path.split(path)
        if folder == self._world.log and FORMAT.segment_order(name) is not None:
            self.truth.read(name)

    def lose(self, key: str, *, is_looked_for: bool = False) -> None:
        """The store has lost an object. ``is_looked_for``: somebody has a reason to notice before the end."""
        self._must_notice = self._must_notice or is_looked_for
        if not self.lost:
            self._loud_before = self._loudness()
        self.lost.add(key)

    def log_replaced(self, until: float) -> None:
        """A copy took the place of the log's folder: until then, its daemon may not have seen that."""
        self._replaced_until = until

    def stopping(self, slot: Slot) -> None:
        """A daemon is asked to end: what the log holds now is what its last sync has to reach."""
        self.truth.read_all()
        slot.owed = {name: end_of_commits(name, body) for name, body in self.truth.here().items()}

    def exited(self, slot: Slot, error: LitelogError | None) -> None:
        """A daemon has ended by itself: for a reason that is documented, which is counted by name."""
        reason = self._find_reason(slot, error)
        self._world.counts[f"exit: {reason or type(error).__name__}"] += 1
        if not reason:
            self.fail(f"P10: {slot.name} ended with {type(error).__name__}: {error}")

    def _find_reason(self, slot: Slot, error: LitelogError | None) -> str:
        if error is None:
            short = "" if self.lost or self.truth.gone else self._find_owed(slot.owed)
            if short:
                self.fail(f"P10: {slot.name} was stopped, and its last sync has shipped {short}")
            return "done"
        if isinstance(error, FencedError):
            newest = max(self._claims.values(), key=lambda claim: claim.epoch)
            if newest.host == slot.name and not self._world.counts["fault: older state"]:
                self.fail(f"P10: {slot.name} was fenced, and its own claim is the newest: {error}")
            return "fenced"
        if isinstance(error, FinalSyncError):
            return "the last sync did not reach the replica"
        if isinstance(error, (SourceSyncError, StateError)) and self._world.disk_was_full:
            return f"{type(error).__name__} on a full disk"
        if isinstance(error, UnfitStoreError) and not self._world.bucket.keeps_writers_apart:
            return "refused: the store does not keep writers apart"
        return "frozen by what was lost" if self.lost and isinstance(error, CorruptionError) else ""

    def _find_owed(self, owed: dict[str, int]) -> str:
        """What is not shipped of that, if anything."""
        promised = self.truth.promised
        for name, end in owed.items():
            if promised.get(name, 0) < end and name not in self._sealed:
                return f"{name} up to {promised.get(name, 0)} of {end}"
        return ""

    def reader_failed(self, what: str, error: LitelogError) -> None:
        """A reader has met what it should not meet, unless there is a reason."""
        forked = isinstance(error, DivergedError) and any(map(self._has_diverged, self._claims.values()))
        if not (self.lost or forked):
            self.fail(f"P1: a reader ({what}) ended with {type(error).__name__}: {error}")

    def _has_diverged(self, claim: Claim) -> bool:
        """Whether a generation that diverges has begun, so that readers may come to it."""
        if claim.relation is not Relation.DIVERGED:
            return False
        if claim.generation in self._begun:
            return True
        key = layout.wal_key(Position(claim.generation, claim.first, 0))
        there = () if self._world.bucket.is_away else self._world.bucket.keys()
        if key not in there:
            return False
        header = wal_segment.decode(key, self._world.bucket.connect().get(key, None)).header
        return header.successor is None or bool(header.previous)

    def recovered(self, following: int) -> None:
        """The writer has opened the log."""
        if following < self._world.written:
            self.fail(f"the log begins at {following}, but {self._world.written} records were durable")

    def before_power_loss(self) -> None:
        """All processes have ended."""
        self.truth.read_all()
        self._there = set(self.truth.here())

    def after_power_loss(self) -> None:
        """What the disk holds now is what the log holds (P4)."""
        promised = self.truth.promised
        for name in self._there:
            path = os.path.join(self._world.log, name)
            held = os.path.getsize(path) if os.path.exists(path) else 0
            if held < promised.get(name, 0):
                self.fail(f"P4: {name} has {held} bytes left, and {promised[name]} were acknowledged")
            if not os.path.exists(path):
                del self.truth.files[name]
        self.truth.read_all()

    def rewound(self) -> None:
        """The log holds something else now: nothing is promised of what it held before alone."""
        self.truth.change_history()
        self._points.clear()
        self._sealed.clear()
        self.look_soon()

    # --- what is looked at

    def look_soon(self) -> None:
        """Restore the replica before long."""
        if self._looking:
            return
        self._looking = True

        def look() -> None:
            self._looking = False
            if not (self._world.bucket.is_away or self.lost):
                self.check_restore()
                self._check_copy()

        self._world.scheduler.after(LOOK_SECONDS, look)

    def check_restore(self, *, whole: bool = False) -> None:
        """A default restore gives a run of the log that holds all that was acknowledged (P1, P2, P3)."""
        self.truth.read_all()
        if not self._restore(Target()):
            if self.truth.promised or whole:
                self.fail("P2: there is nothing to restore")
            return
        try:
            self._compare(whole=whole)
        finally:
            shutil.rmtree(self._output)
        self._remember()

    @property
    def _output(self) -> str:
        return os.path.join(self._world.desk.root, "restored")

    def _client(self) -> ObjectReplicaClient:
        """The replica as it is at this moment."""
        return ObjectReplicaClient(SimulatedStore(self._world.bucket, self._world.scheduler, self._world.random))

    def _restore(self, target: Target, what: str = "a default restore") -> bool:
        client = self._client()
        self._world.counts["restores"] += 1
        try:
            plan = find_plan(client, target, FORMAT)
            restore(client, plan, self._output, log_format=FORMAT, parallelism=1)
        except NothingToRestoreError as error:
            self._world.say(f"{what}: {error}")
            return False
        except LitelogError as error:
            self.fail(f"P2: {what} ends with {type(error).__name__}: {error}")
        return True

    def _compare(self, *, whole: bool) -> None:
        restored = read_log(self._output)
        truth, promised = self.truth, self.truth.promised
        self._check_bytes(restored, "restored", now=whole)
        if truth.gone and find_flaw(restored, truth.files, "restored"):
            return  # the owner has not come to begin another generation yet
        names, known = sorted(restored), sorted(truth.files)
        for name in names:
            if len(restored[name]) < promised.get(name, 0) and self._keeps_promises:
                self.fail(f"P2: {name} was restored up to {len(restored[name])}; {promised[name]} were acknowledged")
        for name in known[known.index(names[-1]) + 1 :]:
            if promised.get(name, 0) and self._keeps_promises:
                self.fail(f"P2: {name} was acknowledged, and a default restore ends with {names[-1]}")
        self._check_beginning(names[0], known)
        if whole and names[-1] != known[-1]:
            self.fail(f"P10: {known[-1]} was not shipped; the replica ends with {names[-1]}")

    def _check_bytes(self, copy: dict[str, bytes], what: str, *, now: bool = False) -> None:
        """It is a run of the log: no byte is another one, and there is no hole. ``now``: of what the log holds now, and
        not of what it was rewound from."""
        flaw = find_flaw(copy, self.truth.files, what)
        before = () if now else self.truth.gone
        if flaw and all(find_flaw(copy, history, what) for history in before):
            self.fail(f"P1: {flaw}")

    @property
    def _keeps_promises(self) -> bool:
        """Isolated owners that write side by side give up P2."""
        isolated = self._world.settings["fencing"] == "isolated"
        return not (isolated and self._world.counts["claim above another owner's"])

    def _check_beginning(self, first: str, known: list[str]) -> None:
        """What a replica no longer holds is what its retention, or the policy ``mirror``, lets go."""
        settings = self._world.settings
        gone = known[: known.index(first)]
        if not (gone and self._keeps_promises) or self.truth.gone:
            return
        still = [name for name in gone if os.path.exists(os.path.join(self._world.log, name))]
        if self._world.scheduler.now < self._replaced_until:
            return
        if still and settings["retention"] is None:
            self.fail(f"P8: {still[0]} is still in the log, and not in a default restore")
        if settings["snapshot_policy"] == "keep" and settings["retention"] is None:
            self.fail(f"P8: {gone[0]} was truncated, and is not in the replica, which keeps all")

    def _check_copy(self) -> None:
        """The copy that a reader keeps up to date is a run of the log (P1, P3)."""
        readers = self._world.readers
        if readers.is_following:
            self._check_bytes(read_log(readers.copy), "followed")

    # --- points in time (P8)

    def _remember(self) -> None:
        """The state that the replica is in now is one that can be restored later."""
        following = self.truth.next_shipped()
        if following and (not self._points or self._points[-1].next < following):
            self._points.append(Point(self._world.scheduler.now, following))
            del self._points[:-POINTS]

    def _check_points(self) -> None:
        settings = self._world.settings
        if settings["snapshot_policy"] != "keep" or not self._keeps_promises or self.truth.gone:
            return
        since = self._world.scheduler.now - (settings["retention"] or self._world.scheduler.now)
        for point in [point for point in self._points if point.at >= since][::7]:
            what = f"a restore up to record {point.next - 1}, shipped at {point.at:.1f} s,"
            if not self._restore(Target(sequence=point.next - 1), what):
                self.fail(f"P8: {what} finds nothing")
            copy = read_log(self._output)
            shutil.rmtree(self._output)
            self._check_bytes(copy, "restored")
            newest = max(copy)
            ends = FORMAT.scan(newest, memoryview(copy[newest]), 0, Expectation()).next
            if ends != point.next and copy[newest]:
                self.fail(f"P8: {what} ends before record {ends}")
            self._world.counts["points restored"] += 1

    # --- the end

    def begin_catching_up(self) -> None:
        """The last fault is over: what is written by now is owed by whoever runs."""
        self.truth.read_all()
        self._owed = {name: end_of_commits(name, body) for name, body in self.truth.here().items()}
        self._catching_up = self._running()

    def check_caught_up(self) -> None:
        """One that has run since has shipped what was owed (P10)."""
        same = [process for process in self._running() if process in self._catching_up]
        short = self._find_owed(self._owed)
        if same and short and not self.lost:
            self.fail(f"P10: {same[0].name} has shipped {short}")

    def check_quiet(self, requests: int, seconds: float) -> None:
        """Daemons that have nothing left to do send few requests (P10)."""
        if requests > MAX_REQUESTS_PER_SECOND * seconds:
            self.fail(f"P10: the daemons sent {requests} requests, and had nothing left to do")

    def check_end(self) -> None:
        """Everything is shipped, and nothing is wrong with the replica (P5, P10)."""
        if self._world.settings["fencing"] == "required" and not self._world.bucket.keeps_writers_apart:
            if self.truth.promised:
                self.fail("P6: something was acknowledged by a store that does not keep writers apart")
            return
        if not self._running():
            self.fail(f"P10: no daemon is left: {[str(slot.exit) for slot in self._world.slots.values()]}")
        claimed = max(self._claimed_at.values(), default=0.0)
        if len(self._running()) > 1 and self._world.written_at > claimed and not self.lost:
            self.fail(f"P6: {[process.name for process in self._running()]} all believe that the replica is theirs")
        self.truth.read_all()
        looks = self._must_notice or self._world.settings["scrub_interval"]
        if self.lost and not (looks and self._may_be_whole()):
            if self._must_notice:
                self._restore(Target())  # what is whole after what was lost
            return  # nobody looks where nobody reads
        promised = self.truth.promised
        for name, body in self.truth.here().items():
            promised[name] = max(promised.get(name, 0), end_of_commits(name, body))
        self.check_restore(whole=True)
        self._check_points()
        self._check_readers()
        harmful = self._find_harm()
        if harmful and not self.lost:
            self.fail(f"P5: verify finds {harmful[0]}")

    def _find_harm(self) -> list[Anomaly]:
        """What a restore may lack, by verify. WAL segments that a snapshot covers may be lost without harm."""
        report = verify(self._client().store, formats=lambda _: FORMAT, parallelism=1)
        return [anomaly for anomaly in report.anomalies if anomaly.harmful]

    def verify(self, store: ObjectStore) -> None:
        """Beside an owner at work, whose doings explain what changes meanwhile (P5). In a task."""
        try:
            report = verify(store, formats=lambda _: FORMAT, parallelism=1)
        except LitelogError as error:
            self._world.counts[f"verify: {type(error).__name__}"] += 1
            return
        self._world.counts["verified beside an owner at work"] += 1
        harmful = [anomaly for anomaly in report.anomalies if anomaly.harmful]
        if harmful and not self.lost:
            self.fail(f"P5: verify finds {harmful[0]}, of a replica that is being written")

    def _may_be_whole(self) -> bool:
        """Whether what the store lost can be shipped again; where it cannot, that was said."""
        if set(self.truth.here()) == set(self.truth.files):
            return True
        if self._loudness() == self._loud_before and self._find_harm():
            self.fail(f"P2: nobody has noticed that {', '.join(sorted(self.lost))} was lost")
        return False

    def _check_readers(self) -> None:
        """Those who follow have everything."""
        readers = self._world.readers
        following = self.truth.next_shipped()
        if self.lost:
            return
        if readers.next is not None and readers.next != following:
            self.fail(f"P10: the reader waits for record {readers.next}, and {following - 1} is the last one")
        if readers.is_following:
            copy, newest = read_log(readers.copy), max(self.truth.promised)
            self._check_bytes(copy, "followed", now=True)
            if len(copy.get(newest, b"")) < self.truth.promised[newest]:
                self.fail(f"P10: the copy has {len(copy.get(newest, b''))} bytes of {newest}, not all that is there")

    def _running(self) -> list[Process]:
        return [slot.process for slot in self._world.slots.values() if slot.process is not None and slot.is_running]

    def _loudness(self) -> int:
        counts = self._world.counts.items()
        return sum(count for what, count in counts if what.startswith("event: ") and any(word in what for word in LOUD))

    def fail(self, what: str) -> None:
        """A promise is broken."""
        violation = ViolationError(what)
        self._world.scheduler.fail(violation)
        if self._world.scheduler.current is None:
            raise violation
