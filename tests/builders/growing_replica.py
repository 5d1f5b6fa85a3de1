"""A replica of sealed log segments that grows, and that retention prunes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.registry import open_store
from tests.builders.replica_builder import FORMAT, ReplicaBuilder, make_log

if TYPE_CHECKING:
    from pathlib import Path

    from litelog.formats import LogFormat


class GrowingReplica:
    """A replica of sealed log segments with a given number of records each."""

    def __init__(self, folder: Path, log_format: LogFormat = FORMAT) -> None:
        builder = ReplicaBuilder(log_format)
        builder.store = open_store(str(folder))  # type: ignore[assignment]
        builder.client = ObjectReplicaClient(builder.store)
        self.url = str(folder)
        self.builder = builder
        self.generation = builder.add()
        self._next = self._count = 0

    def grow(self, *counts: int, first: int = 0) -> GrowingReplica:
        """Add log segments with these numbers of records. Delete those before ``first``, as retention does."""
        for segment in make_log([[count] for count in counts], self._next):
            self.generation.ship_segment(segment)
            self._next, self._count = segment.next, self._count + 1
        self.generation.snapshot(self._count, first)
        self.generation.prune(self._count)
        self.generation.client.delete_sealed_segments((self.generation.name, index) for index in range(first))
        return self
