"""The promises, checked after every step and at the end."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

from litelog import claim as claims
from litelog import layout
from litelog.errors import FencedError, FinalSyncError, LitelogError, NothingToRestoreError
from litelog.formats import Expectation
from litelog.formats.litelog import LitelogFormat
from litelog.object_store import ObjectReplicaClient
from litelog.restore.execution import restore
from litelog.restore.plan import Target, find_plan
from litelog.verify.execution import verify
from tests.simulation.scheduler import ViolationError
from tests.simulation.store import SimulatedStore

if TYPE_CHECKING:
    from litelog.claim import Claim
    from litelog.shipping.listener import Shipped
    from tests.simulation.world import Slot, World

FORMAT = LitelogFormat()
LOOK_SECONDS = 1.0
"""How soon after a step the replica is restored; at most once in so long."""


class Oracle:
    """Knows what was written and what was acknowledged."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.truth: dict[str, bytes] = {}
        """All that the log held, by log segment: those that were truncated as they were."""
        self.promised: dict[str, int] = {}
        """By log segment, where what was acknowledged ends."""
        self.lost: set[str] = set()
        self._claims: dict[str, Claim] = {}
        self._looking = False
        self._restores = 0

    # --- what is told

    def acknowledged(self, slot: Slot, event: Shipped) -> None:
        """A daemon says that a WAL segment is durable."""
        header = event.header
        self._world.counts["acknowledged"] += 1
        self._read(header.file)
        end = len(self.truth.get(header.file, b"")) if header.sealed is not None else header.end
        if end > len(self.truth.get(header.file, b"")):
            self._fail(f"P1: {slot.name} acknowledged {header.file} up to {end}, beyond what was written")
        self.promised[header.file] = max(end, self.promised.get(header.file, 0))

    def put(self, key: str, body: bytes) -> None:
        """The store has taken an object."""
        name = layout.parse_claim(key)
        if name is None:
            return
        claim = claims.parse(body.decode())
        slot = self._world.slots[claim.host]
        below = [each for each in self._claims.values() if each.epoch < claim.epoch]
        newest = max(below, key=lambda each: each.epoch, default=None)
        if key not in self._claims and newest is not None and newest.owner != claim.owner:
            slot.foreign_claims += 1
            self._world.counts["claim above another owner's"] += 1
            if not slot.takeover:
                self._fail(f"P6: {slot.name} claimed {key} above another owner's, and was not told to take over")
            if slot.foreign_claims > 1:
                self._fail(f"takeover: {slot.name} claimed {key} above another owner's a second time by one flag")
        self._claims[key] = claim

    def unlinked(self, path: str) -> None:
        """A file is about to be removed."""
        folder, name = os.path.split(path)
        if folder == self._world.log and FORMAT.segment_order(name) is not None:
            self._read(name)

    def exited(self, slot: Slot, error: LitelogError | None) -> None:
        """A daemon has ended by itself."""
        if error is not None and not isinstance(error, (FencedError, FinalSyncError)) and not self._may_end():
            self._fail(f"P10: {slot.name} ended with {type(error).__name__}: {error}")

    def recovered(self, following: int) -> None:
        """The writer has opened the log."""
        if following < self._world.written:
            self._fail(f"the log begins at {following}, but {self._world.written} records were durable")

    def before_power_loss(self) -> None:
        """All processes have ended."""
        self.read_truth()

    def after_power_loss(self) -> None:
        """What the disk holds now is what the log holds."""
        for name, promised in self.promised.items():
            path = os.path.join(self._world.log, name)
            held = os.path.getsize(path) if os.path.exists(path) else None
            if held is not None and held < promised:
                self._fail(f"P4: {name} has {held} bytes left, and {promised} were acknowledged")
        self.read_truth()

    def _may_end(self) -> bool:
        return bool(self.lost) or self._world.counts["fault: disk full"] > 0

    # --- what is looked at

    def read_truth(self) -> None:
        """Look at the log's folder."""
        with suppress(FileNotFoundError):
            for name in os.listdir(self._world.log):
                if FORMAT.segment_order(name) is not None:
                    self._read(name)

    def _read(self, name: str) -> None:
        with suppress(FileNotFoundError), open(os.path.join(self._world.log, name), "rb") as file:
            self.truth[name] = file.read()

    def look_soon(self) -> None:
        """Restore the replica before long."""
        if self._looking:
            return
        self._looking = True

        def look() -> None:
            self._looking = False
            self.check_restore()

        self._world.scheduler.after(LOOK_SECONDS, look)

    def check_restore(self, *, whole: bool = False) -> None:
        """A default restore gives a run of the log that holds all that was acknowledged (P1, P2, P3)."""
        if self._world.bucket.is_away or (self.lost and not whole):
            return
        self.read_truth()
        store = SimulatedStore(self._world.bucket, self._world.scheduler, self._world.random)
        client = ObjectReplicaClient(store)
        output = os.path.join(self._world.desk.root, "restored")
        self._restores += 1
        self._world.counts["restores"] += 1
        try:
            plan = find_plan(client, Target(), FORMAT)
            restore(client, plan, output, log_format=FORMAT, parallelism=1)
        except NothingToRestoreError:
            if self.promised or whole:
                self._fail("P2: there is nothing to restore")
            return
        except LitelogError as error:
            self._fail(f"P2: a default restore ends with {type(error).__name__}: {error}")
            return
        try:
            self._compare(output, whole=whole)
        finally:
            shutil.rmtree(output)

    def _compare(self, output: str, *, whole: bool) -> None:
        names = sorted(name for name in os.listdir(output) if FORMAT.segment_order(name) is not None)
        known = sorted(self.truth)
        for name in names:
            with open(os.path.join(output, name), "rb") as file:
                restored = file.read()
            if not self.truth.get(name, b"").startswith(restored):
                lengths = f"{len(restored)} bytes, and {len(self.truth.get(name, b''))} were written"
                self._fail(f"P1: {name} was restored with other bytes than were written: {lengths}")
            if len(restored) < self.promised.get(name, 0):
                self._fail(
                    f"P2: {name} was restored up to {len(restored)}; {self.promised[name]} bytes were acknowledged"
                )
            if name != names[-1] and len(restored) < len(self.truth.get(name, b"").rstrip(b"\0")):
                self._fail(f"P1: {name} was restored up to {len(restored)}, and a later log segment, too")
        if names != known[known.index(names[0]) : known.index(names[0]) + len(names)]:
            self._fail(f"P1: a hole between {names[0]} and {names[-1]}: {len(names)} log segments were restored")
        for name in known[known.index(names[-1]) + 1 :]:
            if self.promised.get(name, 0):
                self._fail(f"P2: {name} was acknowledged, and a default restore ends with {names[-1]}")
        self._check_beginning(names[0], known)
        if whole and (names[-1] != known[-1]):
            self._fail(f"P10: {known[-1]} was not shipped; the replica ends with {names[-1]}")

    def _check_beginning(self, first: str, known: list[str]) -> None:
        """What a replica no longer holds is what its retention, or the policy ``mirror``, lets go."""
        settings = self._world.settings
        gone = known[: known.index(first)]
        if not gone:
            return
        still = [name for name in gone if os.path.exists(os.path.join(self._world.log, name))]
        if still:
            self._fail(f"P8: {still[0]} is still in the log, and not in a default restore")
        if settings["snapshot_policy"] == "keep" and settings["retention"] is None:
            self._fail(f"P8: {gone[0]} was truncated, and is not in the replica, which keeps all")

    def check_end(self) -> None:
        """Everything is shipped, and nothing is wrong with the replica (P5, P10)."""
        running = [slot for slot in self._world.slots.values() if slot.is_running]
        if not running:
            self._fail(f"P10: no daemon is left: {[str(slot.exit) for slot in self._world.slots.values()]}")
        self.read_truth()
        for name, body in self.truth.items():
            if os.path.exists(os.path.join(self._world.log, name)) and self.promised.get(name, 0) < len(body):
                self.promised[name] = min(len(body), max(self.promised.get(name, 0), _end_of_commits(name, body)))
        self.check_restore(whole=True)
        self._check_verify()

    def _check_verify(self) -> None:
        store = SimulatedStore(self._world.bucket, self._world.scheduler, self._world.random)
        report = verify(store, formats=lambda _: FORMAT, parallelism=1)
        harmful = [anomaly for anomaly in report.anomalies if anomaly.harmful]
        if harmful and not self.lost:
            self._fail(f"P5: verify finds {harmful[0]}")

    def _fail(self, what: str) -> None:
        violation = ViolationError(what)
        self._world.scheduler.fail(violation)
        if self._world.scheduler.current is None:
            raise violation


def _end_of_commits(name: str, body: bytes) -> int:
    return FORMAT.scan(name, memoryview(body), 0, Expectation()).end
