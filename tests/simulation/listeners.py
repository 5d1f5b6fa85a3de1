"""Stand-ins that wake a simulated daemon or listen to it: for inotify, for its listener, for its log."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.objects.claim import Claim
    from litelog.shipping.events import ScrubFinished, SegmentSealed, SnapshotWritten, WalSegmentShipped
    from tests.simulation.scheduler import Process
    from tests.simulation.world import Slot, World


class Watcher:
    """Replaces ``litelog.system.inotify.Watcher``."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self.available = bool(world.settings["watched"])

    def arm(self, folder: str, wake: Callable[[], None]) -> bool:
        if not self.available or not os.path.isdir(folder):
            return False
        entry = (self._process, folder, wake)
        if entry not in self._world.armed:
            self._world.armed.append(entry)
        return True

    def disarm(self, folder: str, wake: Callable[[], None]) -> None:
        entry = (self._process, folder, wake)
        if entry in self._world.armed:
            self._world.armed.remove(entry)

    def close(self) -> None:
        self.available = False
        self._world.armed = [each for each in self._world.armed if each[0] is not self._process]


class DaemonListener:
    """The listener of one daemon."""

    def __init__(self, world: World, slot: Slot) -> None:
        self._oracle, self._counts, self._slot = world.oracle, world.counts, slot
        self._replicas = {replica.bucket.url: replica for replica in world.replicas}

    def on_wal_segment_shipped(self, event: WalSegmentShipped) -> None:
        self._replicas[event.replica].acknowledged(self._slot, event)

    def on_generation_started(self, log: str, replica: str, claim: Claim) -> None:
        self._counts[f"began: {claim.relation}{f' ({claim.reason})' if claim.reason else ''}"] += 1
        self._oracle.look_soon()

    def on_segment_sealed(self, event: SegmentSealed) -> None:
        self._replicas[event.replica].sealed.add(event.entry.file)

    def on_snapshot_written(self, event: SnapshotWritten) -> None: ...

    def on_scrub_finished(self, event: ScrubFinished) -> None: ...


class EventCounter(logging.Handler):
    """Counts the log lines by their event, and prints them on request."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        event = getattr(record, "event", "none")
        self._world.counts[f"event: {event}"] += 1
        for replica in self._world.replicas:
            if replica.bucket.url == getattr(record, "replica", ""):
                replica.log_line_written(event, record.getMessage())
        task = self._world.scheduler.current
        self._world.say(f"{task.process.name if task is not None else '-'}: {record.getMessage()}")
