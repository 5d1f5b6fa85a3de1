"""The side files of a copy that follows its replica: those of the newest snapshot, which comes after the WAL segments.

Specified in litelog/restore/README.md#side-files-of-a-copy-that-follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.reading.contents import find_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.objects.claim import Claim
    from litelog.objects.side_files import SideFile
    from litelog.objects.snapshot import Snapshot
    from litelog.stores.replica_client import ReplicaClient


class FollowedSideFiles:
    """Writes the side files of each later snapshot. One thread.

    A finished log segment announces a snapshot, which the owner writes sooner or later. The follower looks for
    it after one, two, four polls and so on, so that an idle follower asks less and less often.
    """

    def __init__(self, client: ReplicaClient, write: Callable[[SideFile], None]) -> None:
        """``write`` replaces a file of the copy, unless it has that content."""
        self._client = client
        self._write = write
        self._taken = ""
        """The key of the last snapshot whose side files were written."""
        self._awaited: int | None = None
        """The index that a snapshot is to reach; None if none is expected."""
        self._polls = self._due = 0

    def take(self, snapshot: Snapshot | None, end: int) -> None:
        """Write what a plan's snapshot holds. ``end``: the index that the copy has come to."""
        if snapshot is not None:
            self._write_all(snapshot)
        if end > (0 if snapshot is None else snapshot.next):
            self.expect(end)

    def expect(self, index: int) -> None:
        """Look for a snapshot of all log segments before ``index`` from now on."""
        self._awaited, self._polls, self._due = index, 0, 1

    def poll(self, claim: Claim) -> None:
        """Write the side files of the newest snapshot of the claim's generation, if one is expected and due.

        Raises StoreError; OutputError if a file cannot be written.
        """
        if self._awaited is None:
            return
        self._polls += 1
        if self._polls < self._due:
            return
        self._polls, self._due = 0, 2 * self._due
        found = find_snapshot(self._client, claim)
        if found is not None:
            self._write_all(found)
            if found.next >= self._awaited:
                self._awaited = None

    def _write_all(self, snapshot: Snapshot) -> None:
        if snapshot.key == self._taken:
            return
        for file in snapshot.side_files:
            self._write(file)
        self._taken = snapshot.key
