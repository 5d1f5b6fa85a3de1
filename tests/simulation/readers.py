"""Readers of the first replica: one follows its records, one keeps a restored copy up to date."""

from __future__ import annotations

import os
import shutil
from functools import partial
from typing import TYPE_CHECKING

from litelog.errors import (
    DivergedError,
    LitelogError,
    NothingToRestoreError,
    PrunedError,
    StoreError,
    TruncatedError,
)
from litelog.formats.litelog import LitelogFormat
from litelog.reading.replica_reader import ReplicaReader
from litelog.restore.execution import restore
from litelog.restore.follow import CopyFollower
from litelog.restore.history_plan import Target, find_plan
from litelog.stores.object_store import ObjectReplicaClient
from tests.simulation.records import record
from tests.simulation.scheduler import Process
from tests.simulation.threads import Event

if TYPE_CHECKING:
    from litelog.objects.position import Generation
    from tests.simulation.world import World

FORMAT = LitelogFormat()
AGAIN_SECONDS = 20.0
"""Seconds after which a reader that has ended begins again."""

POLL_SECONDS = 5.0
LOOK_SECONDS = 120.0
"""Seconds without news after which a reader checks that it is at the end."""


class Readers:
    """One process with both readers. Everything that they read is compared with the written records."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.process = Process("reader", "elsewhere")
        self.copy = os.path.join(world.desk.root, "copy")
        self._patience = world.settings.get("patience", 1)
        self.is_following = False
        """Whether the copy is whole, and kept up to date."""
        self.next: int | None = None
        """The sequence of the next record to read."""
        self._generation: Generation | None = None
        """The generation that it last read, by which it learns that the history of its records forks."""
        world.scheduler.spawn(self.process, "records", lambda: self._repeat("records", self._read))
        world.scheduler.spawn(self.process, "copy", lambda: self._repeat("copy", self._follow))

    def _repeat(self, what: str, work: object) -> None:
        while True:
            store = self._world.open_store(self._world.replicas[0].bucket.url)
            client = ObjectReplicaClient(self._world.decrypted(store))
            try:
                work(client)  # type: ignore[operator]
            except (NothingToRestoreError, PrunedError, TruncatedError, StoreError) as error:
                self._world.counts[f"reader of {what}: {type(error).__name__}"] += 1
            except LitelogError as error:
                self._world.counts[f"reader of {what}: {type(error).__name__}"] += 1
                self._world.oracle.reader_failed(what, error)
            self._world.scheduler.sleep(AGAIN_SECONDS)

    def _read(self, client: ObjectReplicaClient) -> None:
        reader = ReplicaReader(
            client,
            generation=self._generation,
            start=self.next,
            follow=True,
            poll_interval=POLL_SECONDS * self._patience,
            look_seconds=LOOK_SECONDS,
            formats=lambda _: FORMAT,
            clock=self._world.clock,
        )
        try:
            for batch in reader.batches():
                for each in batch.records():
                    if self.next is not None and each.sequence != self.next:
                        self._world.oracle.fail(f"P1: a reader was given {each.sequence}, not {self.next}")
                    if each.value != record(each.sequence):
                        self._world.oracle.fail(f"P3: a reader was given another record {each.sequence}")
                    self.next = each.sequence + 1
                if reader.position is not None and self._world.settings["fencing"] == "required":
                    self._generation = reader.position.generation
                self._world.counts["batches that a reader was given"] += 1
        except (DivergedError, PrunedError, TruncatedError):
            self.next = self._generation = None  # it begins with the oldest record of the latest generation
            raise
        finally:
            reader.close()

    def _follow(self, client: ObjectReplicaClient) -> None:
        self.is_following = False
        shutil.rmtree(self.copy, ignore_errors=True)
        plan = find_plan(client, Target(), FORMAT)
        clock = self._world.clock
        replan = partial(find_plan, client, Target(), FORMAT)
        restore(client, plan, self.copy, log_format=FORMAT, replan=replan, clock=clock)
        with CopyFollower(client, self.copy, plan, FORMAT, look_seconds=LOOK_SECONDS, clock=clock) as follower:
            self.is_following = True
            try:
                follower.run(Event(self._world.scheduler), POLL_SECONDS * self._patience)  # type: ignore[arg-type]
            finally:
                self.is_following = False
