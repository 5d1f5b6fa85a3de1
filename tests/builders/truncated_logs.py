"""For tests of truncation: a log of five log segments, notes of what replicas hold, and a disk that dies."""

from __future__ import annotations

import os

from litelog.codec.checksum import crc32c
from litelog.log.disk import LocalDisk
from litelog.log.recovery import list_segments
from litelog.log.replica_registry import (
    ReplicaSet,
    ReplicatedSegment,
    log_state_folder,
    save_replicated,
)
from litelog.log.writer import LogWriter

NOW = 10**15


def fill_log(folder: str) -> None:
    """Append 50 records, to log segments that begin with the sequences 0, 10, 20, 30 and 40."""
    with LogWriter(folder) as writer:
        for number in range(50):
            if number % 10 == 0:
                writer.roll()
            writer.append(b"%d:" % number + bytes(600))
    assert [int(name[:20]) for name in list_segments(folder)] == [0, 10, 20, 30, 40]


def note_replica(log: str, state: str, name: str = "r", **changes: dict[str, object]) -> None:
    """Note that a replica holds a whole log. ``changes``: fields that the note has instead, by log segment."""
    folder = log_state_folder(state, log)
    ReplicaSet(folder).add(name, "memory://r")
    held = []
    for file in list_segments(log):
        with open(os.path.join(log, file), "rb") as opened:
            data = opened.read()
        facts = {"file": file, "first": int(file[:20]), "length": len(data), "crc": crc32c(data), "shipped": NOW}
        held.append(ReplicatedSegment(**{**facts, **changes.get(f"s{int(file[:20])}", {})}))  # type: ignore[arg-type]
    os.makedirs(os.path.join(folder, name), exist_ok=True)
    save_replicated(os.path.join(folder, name), "g", held)


class CrashingDisk(LocalDisk):
    """Dies after ``at`` syncs. A truncation syncs between any two of its steps."""

    def __init__(self, at: int) -> None:
        self.left = at

    def sync(self, descriptor: int) -> None:
        self._step()
        super().sync(descriptor)

    def sync_folder(self, path: str) -> None:
        self._step()
        super().sync_folder(path)

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(5, "died")
