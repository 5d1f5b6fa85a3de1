"""Deletes WAL segments that a durable snapshot covers: one by one and oldest first, as REPLICA.md's Writing 9 says.

Whoever was suspended finds its last WAL segment gone, or the slot behind it taken: that holds only as long as none is
deleted before all that are older.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from litelog.objects.position import Position, generation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from litelog.shipping.archive_state import Covered
    from litelog.stores.replica_client import ReplicaClient


def delete_covered(client: ReplicaClient, covered: Covered, may_go_on: Callable[[], bool]) -> tuple[int, bool]:
    """Delete WAL segments below ``covered.next``; how many, and whether that was all. Ends early once ``may_go_on()``
    is false.

    The generation's last WAL segment stays, and the terminal behind it. StoreError.
    """
    deleted = 0
    for position in _deletable(client, covered):
        if not may_go_on():
            return deleted, False
        client.delete_wal_segments([position])
        deleted += 1
    return deleted, True


def _deletable(client: ReplicaClient, covered: Covered) -> Iterator[Position]:
    """Each once two more are seen behind it: the last one, and a terminal, are never among them."""
    behind: deque[Position] = deque()
    for info in client.wal_segments(generation(covered.generation)):
        behind.append(info.position)
        if len(behind) > KEPT:
            position = behind.popleft()
            if position.index >= covered.next:
                return
            yield position


KEPT = 2
"""A generation's last WAL segment and the terminal that may lie behind it."""
