"""The promises of one replica, checked after every step and at the end."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from litelog.checkpoints.replica_checkpoints import compare_with_own, find_trusted, read_checkpoints
from litelog.errors import LitelogError, NothingToRestoreError
from litelog.formats import Expectation
from litelog.formats.litelog import LitelogFormat
from litelog.objects import claim as claims
from litelog.objects import layout, wal_segment
from litelog.objects.claim import Relation
from litelog.objects.position import Position
from litelog.reading.latest import find_latest, walk_to_latest
from litelog.restore.execution import restore
from litelog.restore.history_plan import Target, find_plan
from litelog.retention.policy import GRACE_SECONDS
from litelog.shipping.ownership_guard import LOOK_SECONDS
from litelog.stores.object_store import ObjectReplicaClient
from litelog.verify.execution import verify
from replica_clients.memory import MemoryStore
from tests.builders.checkpoints import KEY
from tests.simulation.as_of import BucketAsOf
from tests.simulation.encryption import reveal
from tests.simulation.request_rules import RequestRules
from tests.simulation.store import Bucket, SimulatedStore
from tests.simulation.threads import EPOCH
from tests.simulation.truth import Shipped, end_of_commits, find_flaw, read_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from litelog.objects.claim import Claim
    from litelog.shipping.events import WalSegmentShipped
    from litelog.stores.object_store import ObjectStore
    from litelog.verify.findings import Anomaly
    from tests.simulation.store import Folder
    from tests.simulation.truth import Truth
    from tests.simulation.world import Run, Slot, World

FORMAT = LitelogFormat()

POINTS = 40
"""How many points are remembered for later restores."""

DELETED_SNAPSHOT = re.compile("delete .*/snapshots/")

LISTING_OF_CLAIMS = "list epochs/"

LOUD = frozenset(("anomaly", "objects-lost", "objects-unrecoverable"))
"""The events of log lines that report a loss. Other lines report one if they name the object."""


@dataclass(frozen=True, slots=True)
class Point:
    """A state that the replica was in."""

    at: float
    next: int
    """The sequence of the record after the last one."""


class ReplicaOracle:
    """Knows the acknowledged data of one replica, and its faults."""

    def __init__(self, world: World, truth: Truth, bucket: Bucket | Folder) -> None:
        self._world = world
        self._truth = truth
        self.bucket = bucket
        self.shipped = Shipped(truth)
        self.sealed: set[str] = set()
        """The log segments that are sealed in the replica."""
        self.lost: set[str] = set()
        """The objects that the store has lost."""
        self._lost_at = 0.0
        """When it last lost one."""
        self._must_notice = False
        self._was_said = False
        """Whether a log line has reported a loss."""
        self._proving = self._proved = 0.0
        """When the newest claim's owner last listed claims, and when it sent the last such request that was
        answered."""
        self._owed: dict[str, int] = {}
        self._catching_up: list[object] = []
        self._request_rules = RequestRules(world.scheduler, self.fail)
        self._foreign_claims = 0
        self._claims: dict[str, Claim] = {}
        self._claimed_at: dict[str, float] = {}
        """When each claim was put."""
        self._begun: set[str] = set()
        """The generations whose first snapshot was put while there was no newer claim."""
        self._ended: set[str] = set()
        """The generations in which a terminal was put after all WAL segments."""
        self._newest_slots: dict[str, Position] = {}
        """The last slot of each generation that was filled."""
        self._late: set[str] = set()
        """The WAL segments that were put after the terminal, into slots that retention had emptied."""
        self._begun_at = 0.0
        """When the newest of them began. All older ones were closed by then."""
        self._snapshots: list[tuple[str, str]] = []
        """The snapshots that were put by the newest claim's owner at the time: generation and key."""
        self._points: list[Point] = []
        self._thefts: list[tuple[int, dict[str, int]]] = []
        """When somebody harmed an object, by ``Bucket.changes``, and what was acknowledged then."""
        self._signed: set[str] = set()
        """The checkpoints that were put in the generation of the newest claim."""
        bucket.on_put = self.put

    @property
    def newest(self) -> Claim | None:
        """The newest claim."""
        return next(iter(self.newest_claims), None)

    @property
    def newest_claims(self) -> list[Claim]:
        """The claims of the newest epoch. Isolated owners may have put several."""
        return _newest(self._claims.values())

    def acknowledged(self, slot: Slot, event: WalSegmentShipped) -> None:
        """A daemon reports that a WAL segment is durable."""
        self._world.counts["acknowledged"] += 1
        wrong = self.shipped.acknowledge(event.header)
        if wrong:
            self.fail(f"P1: {slot.name} acknowledged {wrong}")
        key = layout.wal_key(event.header.position)
        if key in self._late and not self.lost:
            self.fail(f"P6: {slot.name} acknowledged {key}, which was put after its generation had ended")

    def put(self, key: str, body: bytes) -> None:
        """The store has taken an object."""
        if (snapshot := layout.parse_snapshot(key)) is not None:
            newest = self.newest
            if newest is not None and newest.generation == str(snapshot[0]):
                if newest.generation not in self._begun:
                    self._begun.add(newest.generation)
                    self._begun_at = self._world.scheduler.now
                self._snapshots.append((newest.generation, key))
        if (slot := layout.parse_wal(key)) is not None:
            last = self._newest_slots.get(slot.generation, slot)
            if wal_segment.decode(key, reveal(self.bucket, key, body)).header.successor is not None:
                if slot < last:
                    self._world.counts["a terminal in a slot that was emptied"] += 1
                else:
                    self._ended.add(slot.generation)
            elif slot.generation in self._ended:
                self._late.add(key)
                self._world.counts["a WAL segment that was put after its generation had ended"] += 1
            self._newest_slots[slot.generation] = max(slot, last)
        if (signed := layout.parse_checkpoint(key)) is not None:
            newest = self.newest
            if newest is not None and newest.generation == str(signed[0]):
                self._signed.add(key)
        if layout.parse_claim(key) is not None:
            self._judge_claim(key, claims.parse(body.decode()))
        self._request_rules.arrived(key)

    def requested(self, who: str, moment: str, request: str) -> None:
        """A daemon's request has come to a moment (``plan.When``)."""
        claimed = [(claim, self._claimed_at[key]) for key, claim in self._claims.items()]
        self._request_rules.notice(who, moment, request, claimed)
        newest = self.newest
        if request == LISTING_OF_CLAIMS and newest is not None and newest.host == who:
            self._proving = self._world.scheduler.now if moment == "before" else self._proving
            self._proved = self._proving if moment == "answered" else self._proved
        if moment == "done" and DELETED_SNAPSHOT.match(request) and not self.bucket.is_away:
            self._check_snapshots()

    def _judge_claim(self, key: str, claim: Claim) -> None:
        slot = self._world.slots[claim.host]
        if self.bucket.is_away:
            self.fail(f"P2: {slot.name} claimed {key} in the empty folder in the replica's place")
        slot.has_claimed.add(self.bucket.url)
        below = _newest(each for each in self._claims.values() if each.epoch < claim.epoch)
        if key not in self._claims and below and all(each.owner != claim.owner for each in below):
            run = next(run for run in reversed(slot.runs) if run.began <= claim.time)
            self._judge_takeover(slot, run, key, below[0].key)
        self._claims[key] = claim
        self._claimed_at.setdefault(key, self._world.scheduler.now)

    def _judge_takeover(self, slot: Slot, run: Run, key: str, below: str) -> None:
        url = self.bucket.url
        run.foreign_claims[url] += 1
        self._foreign_claims += 1
        self._world.counts["claim above another owner's"] += 1
        if not run.takeover:
            self.fail(f"P6: {slot.name} claimed {key} above another owner's, and was not told to take over")
        if run.foreign_claims[url] > 1:
            self.fail(f"takeover: {slot.name} claimed {key} above another owner's a second time by one flag")
        if url in run.looked and self._claimed_at[below] > run.looked[url]:
            self.fail(f"takeover: {slot.name} claimed {key} above {below}, which came after its first look")

    def lose(self, key: str, *, is_looked_for: bool = False) -> None:
        """The store has lost an object. ``is_looked_for``: some process has a reason to notice before the end."""
        self._must_notice = self._must_notice or is_looked_for
        self._lost_at = self._world.scheduler.now
        self.lost.add(key)

    def before_theft(self) -> None:
        """Somebody is about to harm an object, and has not done so before."""
        assert isinstance(self.bucket, Bucket)
        self._thefts.append((self.bucket.changes, dict(self.shipped.promised)))

    def after_theft(self, key: str) -> None:
        """An object was harmed: verify names it, or a restore needs it not (P5)."""
        if not self.lost and not self._find_harm():
            self.check_restore()
        self.lose(key)

    def _check_thefts(self) -> None:
        """The replica as it was before each theft holds all that was acknowledged then."""
        for at, promised in self._thefts:
            assert isinstance(self.bucket, Bucket)
            client = ObjectReplicaClient(self._world.decrypted(BucketAsOf(self.bucket, at)))
            if not self._restore(Target(), f"a restore as of version {at}", client):
                if promised:
                    self.fail(f"P2: as of version {at} nothing can be restored, but {promised} were acknowledged")
                continue
            restored = read_log(self._output)
            shutil.rmtree(self._output)
            self.check_bytes(restored, "restored as of a time")
            for name, length in promised.items():
                if name >= min(restored) and len(restored.get(name, b"")) < length and not self._truth.gone:
                    self.fail(f"P2: as of version {at}, {name} is restored up to {len(restored.get(name, b''))}")
            self._world.counts["restored as of a time before a theft"] += 1

    def _check_checkpoints(self) -> None:
        """The checkpoints are one chain of the signer's that the replica holds, and a copy of the newest one shows an
        older state."""
        client = self.client()
        stored, _ = read_checkpoints(client)
        trusted = find_trusted(stored, [KEY])
        compared = compare_with_own(client, lambda _: FORMAT, [KEY])
        if compared.differences or compared.number is None:
            self.fail(f"checkpoints: the replica {compared.differences or 'has none'}")
        held = {each.key for each in trusted.chain}
        for key in self._signed:
            if key not in held and not self.has_rivals():
                self.fail(f"checkpoints: {key} was put by the newest owner, and is not in the chain")
        self._world.counts["checkpoints in a chain"] += len(held)
        newest, older = trusted.chain[-1], MemoryStore(self.bucket.url)
        stored_bytes = self._store()
        for info in stored_bytes.list(""):
            if info.key != newest.key:
                older.put(info.key, [stored_bytes.open(info.key).read()])
        without = ObjectReplicaClient(self._world.decrypted(older))
        if not compare_with_own(without, lambda _: FORMAT, [KEY], newest).differences:
            self.fail(f"checkpoints: an older state is not named by a copy of {newest.key}")

    def log_line_written(self, event: str, message: str) -> None:
        """A log line is about this replica."""
        if self.lost and (event in LOUD or any(key in message for key in self.lost)):
            self._was_said = True

    def rewound(self) -> None:
        """The log's content has changed."""
        self._points.clear()
        before, now = self._truth.gone[-1], self._truth.files
        self.sealed = {name for name in self.sealed if name in now and before.get(name) == now[name]}

    def has_diverged(self) -> bool:
        """Whether a generation that diverges has begun, so that readers may come to it."""
        return any(map(self._has_begun, (each for each in self._claims.values() if each.relation is Relation.DIVERGED)))

    def _has_begun(self, claim: Claim) -> bool:
        if claim.generation in self._begun:
            return True
        key = layout.wal_key(Position(claim.generation, claim.first, 0))
        there = () if self.bucket.is_away else self.bucket.keys()
        if key not in there:
            return False
        body = reveal(self.bucket, key, self.bucket.connect().get(key, None))
        header = wal_segment.decode(key, body).header
        return header.successor is None or bool(header.previous)

    def find_owed(self, owed: dict[str, int]) -> str:
        """The part of ``owed`` that is not shipped, if any."""
        for name, end in owed.items():
            if self.shipped.promised.get(name, 0) < end and name not in self.sealed:
                return f"{name} up to {self.shipped.promised.get(name, 0)} of {end}"
        return ""

    def look(self) -> None:
        """Restore the replica, if that is possible."""
        if not self.bucket.is_away:
            self._check_choice()
        if not (self.bucket.is_away or self.lost):
            self.check_restore()

    def check_restore(self, *, whole: bool = False) -> None:
        """A default restore must return a run of the log with everything that was acknowledged (P1, P2, P3)."""
        self._truth.read_all()
        if not self._restore(Target()):
            if self.shipped.promised or whole:
                self.fail("P2: nothing can be restored")
            return
        try:
            self._compare(whole=whole)
        finally:
            shutil.rmtree(self._output)
        self._remember()

    def _check_choice(self) -> None:
        """``find_latest`` must choose the generation that a walk through all generations finds. A lost object may stop
        only the walk."""
        walked, chosen = (self._choose(choose) for choose in (walk_to_latest, find_latest))
        if chosen != walked and not (isinstance(walked, str) and self.lost):
            self.fail(f"a walk through all generations finds {walked}, and not {chosen}")

    def _choose(self, choose: Callable[..., Claim]) -> Claim | str:
        try:
            return choose(self.client(), include_lost=True)
        except LitelogError as error:
            return type(error).__name__

    @property
    def _output(self) -> str:
        return os.path.join(self._world.desk.root, "restored")

    def client(self) -> ObjectReplicaClient:
        """The replica as it is at this moment."""
        return ObjectReplicaClient(self._world.decrypted(self._store()))

    def _store(self) -> SimulatedStore:
        """The objects as they are stored at this moment."""
        return SimulatedStore(self.bucket, self._world.scheduler, self._world.random)

    def _restore(
        self, target: Target, what: str = "a default restore", client: ObjectReplicaClient | None = None
    ) -> bool:
        client = client or self.client()
        self._world.counts["restores"] += 1
        try:
            plan = find_plan(client, target, FORMAT)
            restore(client, plan, self._output, log_format=FORMAT, parallelism=1, clock=self._world.clock)
        except NothingToRestoreError as error:
            self._world.say(f"{what}: {error}")
            return False
        except LitelogError as error:
            self.fail(f"P2: {what} ends with {type(error).__name__}: {error}")
        return True

    def _compare(self, *, whole: bool) -> None:
        restored = read_log(self._output)
        truth, promised = self._truth, self.shipped.promised
        self.check_bytes(restored, "restored", now=whole)
        if truth.gone and find_flaw(restored, truth.files, "restored"):
            return  # the owner has not begun another generation yet
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

    def check_bytes(self, copy: dict[str, bytes], what: str, *, now: bool = False) -> None:
        """The copy must be a run of the log: no byte differs, and there is no hole. ``now``: a run of the current log,
        not of the content before a rewind."""
        flaw = find_flaw(copy, self._truth.files, what)
        before = () if now else self._truth.gone
        if flaw and all(find_flaw(copy, history, what) for history in before):
            self.fail(f"P1: {flaw}")

    def has_rivals(self) -> bool:
        """Whether isolated owners may have written side by side. Their generations are a fork of the history."""
        return self._world.settings["fencing"] == "isolated" and bool(self._foreign_claims)

    @property
    def _keeps_promises(self) -> bool:
        """Isolated owners that write side by side give up P2."""
        return not self.has_rivals()

    def _check_beginning(self, first: str, known: list[str]) -> None:
        """A replica may lack only data that its retention, or the policy ``mirror``, dropped."""
        settings = self._world.settings
        gone = known[: known.index(first)]
        if not (gone and self._keeps_promises) or self._truth.gone:
            return
        still = [name for name in gone if os.path.exists(os.path.join(self._world.log, name))]
        if self._world.scheduler.now < self._world.oracle.replaced_until:
            return
        if still and settings["retention"] is None:
            self.fail(f"P8: {still[0]} is still in the log, and not in a default restore")
        if settings["snapshot_policy"] == "keep" and settings["retention"] is None:
            self.fail(f"P8: {gone[0]} was truncated, and is not in the replica, which keeps all")

    def _check_snapshots(self) -> None:
        """The newest snapshots must stay, as many as the policy says."""
        there = set(self.bucket.keys())
        for _, key in sorted(self._snapshots)[-self._world.settings.get("snapshots", 1) :]:
            if key not in there and key not in self.lost:
                self.fail(f"P8: {key} was deleted, although it is one of the newest snapshots")

    def _remember(self) -> None:
        """Remember the current state of the replica, to restore to it later."""
        following = self.shipped.next()
        if following and (not self._points or self._points[-1].next < following):
            self._points.append(Point(self._world.scheduler.now, following))
            del self._points[:-POINTS]

    def _check_points(self) -> None:
        settings = self._world.settings
        if not self._keeps_promises or self._truth.gone:
            return
        whole = GRACE_SECONDS if settings.get("snapshots") else self._world.scheduler.now
        since = self._world.scheduler.now - (settings["retention"] or whole)
        for point in [point for point in self._points if point.at >= since][::7]:
            what = f"a restore up to record {point.next - 1}, shipped at {point.at:.1f} s,"
            if not self._restore(Target(sequence=point.next - 1), what):
                self.fail(f"P8: {what} finds nothing")
            copy = read_log(self._output)
            shutil.rmtree(self._output)
            self.check_bytes(copy, "restored")
            newest = max(copy)
            ends = FORMAT.scan(newest, memoryview(copy[newest]), 0, Expectation()).next
            if ends != point.next and copy[newest]:
                self.fail(f"P8: {what} ends before record {ends}")
            self._world.counts["points restored"] += 1

    def begin_catching_up(self, owed: dict[str, int]) -> None:
        """The last fault is over. The owner must now ship ``owed``."""
        self._owed = owed
        self._catching_up = [slot.process for slot in self._world.slots.values() if slot.is_running]

    def check_caught_up(self) -> None:
        """An owner that has had the replica since the last fault must have shipped what was owed then (P10)."""
        same = [slot for slot in self._world.find_live(self.bucket.url) if slot.process in self._catching_up]
        short = self.find_owed(self._owed)
        if same and short and not self.lost:
            self.fail(f"P10: {same[0].name} has shipped {short}")

    def check_end(self) -> None:
        """Everything must be shipped, and the replica must be sound (P5, P6, P10)."""
        if self._world.settings["fencing"] == "required" and not self.bucket.keeps_writers_apart:
            if self.shipped.promised:
                self.fail("P6: something was acknowledged by a store that does not keep writers apart")
            return
        self._check_owner()
        self._check_thefts()
        if self.lost and not self._is_looked_for():
            self._world.counts["no owner had to look for what was lost"] += 1
            return
        if self.lost and not self._may_be_whole():
            if self._must_notice:
                self._restore(Target())  # everything after the loss
            return
        promised = self.shipped.promised
        for name, body in self._truth.here().items():
            promised[name] = max(promised.get(name, 0), end_of_commits(name, body))
        self.check_restore(whole=True)
        if self._world.settings["scrub_interval"] or not self.lost:  # else no check reads objects of older points
            self._check_points()
        harmful = self._find_harm()
        if harmful and not self.lost:
            self.fail(f"P5: verify finds {harmful[0]}")
        if self._world.settings.get("checkpoints") and not self.lost:
            self._check_checkpoints()

    def _check_owner(self) -> None:
        """One daemon must have the replica, or all isolated owners that claimed the newest epoch. An isolated
        owner looks for newer claims once a minute, while it ships. Of the daemons that
        were started after the newest claim, only its owner may believe that it has the replica, since each daemon looks
        for claims at its start."""
        world = self._world
        live = world.find_live(self.bucket.url)
        if not live:
            self.fail(f"P10: no daemon is left: {[str(slot.exit) for slot in world.slots.values()]}")
        newest = self.newest
        overtaken = [slot for slot in live if newest is not None and self._epoch_of(slot) < newest.epoch]
        claimed = max(self._claimed_at.values(), default=0.0)
        known = max(claimed, self._begun_at) + (LOOK_SECONDS if self.has_rivals() else 0.0)
        if len(live) > 1 and overtaken and world.written_at > known and not self.lost:
            self.fail(f"P6: {[slot.name for slot in live]} all believe that the replica is theirs")
        for slot in overtaken:
            began = slot.runs[-1].began / 1e6 - EPOCH
            if began > claimed:
                self.fail(f"P6: {slot.name} was started at {began:.1f} s, and believes that the replica is its own")

    def has_owner(self) -> bool:
        """Whether a daemon that runs has the newest claim. Others may not know yet that it ended their generation."""
        epoch = self.newest.epoch if self.newest is not None else 0
        return any(self._epoch_of(slot) >= epoch for slot in self._world.find_live(self.bucket.url))

    def _epoch_of(self, slot: Slot) -> int:
        """The newest epoch that a daemon claimed."""
        return max((claim.epoch for claim in self._claims.values() if claim.host == slot.name), default=0)

    def _find_harm(self) -> list[Anomaly]:
        """The data that a restore may lack, according to verify. Covered WAL segments may be lost without harm."""
        try:
            report = verify(self.client().store, formats=lambda _: FORMAT, parallelism=1, clock=self._world.clock)
        except LitelogError as error:
            self.fail(f"P5: verify ends with {type(error).__name__}: {error}")
            raise
        return [anomaly for anomaly in report.anomalies if anomaly.harmful]

    def verify(self, store: ObjectStore) -> None:
        """Verify while the owner works: its actions must explain all changes (P5). Runs in a task."""
        try:
            report = verify(store, formats=lambda _: FORMAT, parallelism=1, clock=self._world.clock)
        except LitelogError as error:
            self._world.counts[f"verify: {type(error).__name__}"] += 1
            return
        self._world.counts["verified beside an owner at work"] += 1
        harmful = [anomaly for anomaly in report.anomalies if anomaly.harmful]
        if harmful and not self.lost:
            self.fail(f"P5: verify finds {harmful[0]}, of a replica that is being written")

    def _may_be_whole(self) -> bool:
        """Whether the lost data can be shipped again. If it cannot, a log line must have reported the loss."""
        if set(self._truth.here()) == set(self._truth.files):
            return True
        if self._was_said:
            return False
        looks = self._must_notice or self._world.settings["scrub_interval"]
        if looks and self._find_harm():
            self.fail(f"P2: no process has noticed that {', '.join(sorted(self.lost))} was lost")
        return True

    def _is_looked_for(self) -> bool:
        """Whether the owner had to find the loss: by the standing check, by a generation that began since (which relies
        on no lost object), or by a proof of ownership since, if a proof looks at a lost object
        (litelog/shipping/README.md#objects-that-a-store-loses)."""
        newest = self.newest
        if self._must_notice or self._world.settings["scrub_interval"] or newest is None:
            return True
        if newest.generation in self._begun and self._claimed_at[newest.key] > self._lost_at:
            return True
        is_proved = self._proved > self._lost_at and not newest.is_isolated
        return is_proved and any(self._is_proved(newest, key) for key in self.lost)

    def _is_proved(self, claim: Claim, key: str) -> bool:
        """Whether a proof looks at a lost object. It looks at the newest snapshot and the WAL segments after it."""
        snapshot, wal = layout.parse_snapshot(key), layout.parse_wal(key)
        there = filter(None, map(layout.parse_snapshot, self.bucket.keys()))
        covered = max((index for name, index in there if name == claim.generation), default=-1)
        if snapshot is not None:
            return snapshot[0] == claim.generation and snapshot[1] > covered
        return wal is not None and wal.generation == claim.generation and wal.index >= covered

    def fail(self, what: str) -> None:
        """A promise is broken."""
        self._world.oracle.fail(f"{what} [{self.bucket.url}]" if len(self._world.replicas) > 1 else what)


def _newest(claims: Iterable[Claim]) -> list[Claim]:
    """Those of the newest epoch."""
    found = list(claims)
    epoch = max((claim.epoch for claim in found), default=0)
    return [claim for claim in found if claim.epoch == epoch]
