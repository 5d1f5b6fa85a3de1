"""A replicator with real threads in this process, its listener, and stores by URL."""

from __future__ import annotations

import threading
from random import Random
from typing import TYPE_CHECKING

from tests.waiting import WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from litelog.objects.claim import Claim
    from litelog.replicator import Replicator
    from litelog.shipping.events import SegmentSealed, SnapshotWritten, WalSegmentShipped
    from litelog.stores.object_store import ObjectStore
    from tests.builders.log_builder import LogBuilder

LONG_SECONDS = 3600.0
"""An interval that is longer than any test: an event that happens earlier has another cause."""

_stores: dict[str, ObjectStore] = {}


def open_store(url: str, options: Mapping[str, object]) -> ObjectStore:
    """The store that a test keeps under that URL. The entry point of ``testing://`` names this function."""
    assert not options
    return _stores[url]


def install_stores(folder: Path) -> dict[str, ObjectStore]:
    """The stores by URL. A test adds to them, and puts ``folder`` on the path.

    litelog then finds them as it finds the stores of third parties: by an entry point of an installed package."""
    package = folder / "litelog_testing-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: litelog-testing\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(f"[litelog.object_stores]\ntesting = {__name__}:open_store\n")
    return _stores


class Progress:
    """A listener that a test can wait on."""

    def __init__(self) -> None:
        self.shipped_events: list[WalSegmentShipped] = []
        self.claims: list[Claim] = []
        self.sealed_events: list[SegmentSealed] = []
        self.snapshots: list[SnapshotWritten] = []
        self.on_shipped: Callable[[WalSegmentShipped], None] | None = None
        self._changed = threading.Condition()

    def on_wal_segment_shipped(self, event: WalSegmentShipped) -> None:
        with self._changed:
            self.shipped_events.append(event)
            self._changed.notify_all()
        if self.on_shipped is not None:
            self.on_shipped(event)

    def on_generation_started(self, log: str, replica: str, claim: Claim) -> None:
        with self._changed:
            self.claims.append(claim)

    def on_segment_sealed(self, event: SegmentSealed) -> None:
        with self._changed:
            self.sealed_events.append(event)
            self._changed.notify_all()

    def on_snapshot_written(self, event: SnapshotWritten) -> None:
        with self._changed:
            self.snapshots.append(event)
            self._changed.notify_all()

    def wait(self, holds: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(holds, WAIT_SECONDS)

    def wait_for_end(self, log: LogBuilder, replica: str) -> None:
        """Wait until the replica has acknowledged the log's newest byte."""
        end = len(log.texts[log.name])
        self.wait(
            lambda: any(
                (event.log, event.replica, event.header.file, event.header.end) == (log.folder, replica, log.name, end)
                for event in self.shipped_events
            )
        )


class LowestRandom(Random):
    """Gives the shortest delays that jitter allows."""

    def uniform(self, a: float, b: float) -> float:
        return min(a, b)


class Running:
    """A replicator that runs in a thread."""

    def __init__(self, replicator: Replicator, *, once: bool = False) -> None:
        self.replicator = replicator
        self.error: BaseException | None = None
        self._once = once
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Running:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self.replicator.stop()
        self.join()

    def join(self) -> None:
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive()

    def phases(self) -> list[str]:
        return [status.phase for status in self.replicator.status()]

    def _run(self) -> None:
        try:
            self.replicator.run(once=self._once)
        except BaseException as error:  # noqa: BLE001
            self.error = error
