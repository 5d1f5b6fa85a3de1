"""Steps that disturb the store, or the network to it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from litelog.errors import StoreError
from litelog.objects import layout
from tests.simulation.store import Bucket, Folder, NetworkConditions, PlannedFault

if TYPE_CHECKING:
    from tests.simulation.world import World


class StoreFaults:
    """The faults of one world. Steps of a plan are its methods."""

    def __init__(self, world: World) -> None:
        self._world = world

    def disturb_network(self, replica: int = 0, **network: float) -> None:
        """Set the faults of requests from now on."""
        self._world.replicas[replica].bucket.network = NetworkConditions(**network)  # type: ignore[arg-type]

    def clear_network(self) -> None:
        """End all faults of requests."""
        for replica in self._world.replicas:
            replica.bucket.network = NetworkConditions()

    def outage(self, seconds: float, replica: int = 0) -> None:
        """The store answers nothing for a while."""
        network = self._world.replicas[replica].bucket.network
        network.down = True
        self._world.scheduler.after(seconds, lambda: setattr(network, "down", False))
        self._world.counts["fault: outage"] += 1

    def remove_root(self, seconds: float, replica: int = 0) -> None:
        """The disk of a folder replica is unmounted for ``seconds``. A daemon that never saw the replica would begin
        one in the folder that is left: only the person who mounts the disk can see that this is wrong."""
        world = self._world
        bucket = world.replicas[replica].bucket
        running = (slot for slot in world.slots.values() if slot.is_running)
        strangers = [slot for slot in running if bucket.url not in slot.has_claimed]
        if isinstance(bucket, Folder) and not (bucket.is_away or strangers):
            bucket.leave()
            world.scheduler.after(seconds, bucket.come_back)
            world.scheduler.after(seconds, world.oracle.look_soon)

    def lose_objects(self, choice: int, count: int, replica: int = 0) -> None:
        """The store loses some objects."""
        there = self._world.replicas[replica]
        keys = there.bucket.keys() if not there.bucket.is_away else []
        keys = [key for key in keys if key.startswith(layout.GENERATIONS) and layout.parse_generation(key) is not None]
        for number in range(min(count, len(keys))):
            key = keys.pop((choice * 7919 + number * 104729) % len(keys))
            there.bucket.lose(key)
            there.lose(key)

    def lose_object(self, request: str, which: int, replica: int = 0, *, is_looked_for: bool = True) -> None:
        """The store loses an object whose key matches: 0 the first match, -1 the last. ``is_looked_for``: the plan
        makes the owner look for it: the owner fails, restarts, or checks."""
        there = self._world.replicas[replica]
        keys = list(filter(re.compile(request).match, there.bucket.keys()))
        if keys:
            there.bucket.lose(keys[which])
            there.lose(keys[which], is_looked_for=is_looked_for)

    def steal(self, request: str, which: int, replica: int = 0, *, overwrites: bool = False) -> None:
        """Somebody who has the right to write and to delete harms an object whose key matches: 0 the first match, -1
        the last. Its versions are locked."""
        there = self._world.replicas[replica]
        bucket = there.bucket
        keys = list(filter(re.compile(request).match, bucket.keys())) if isinstance(bucket, Bucket) else []
        if not keys or not isinstance(bucket, Bucket):
            return
        key = keys[which % len(keys)]
        try:
            bucket.delete_versions(key)
        except StoreError:
            self._world.counts["thief: a locked version is not deleted"] += 1
        there.before_theft()
        if overwrites:
            bucket.overwrite(key, bucket.objects[key][:-1] + b"?")
        else:
            bucket.delete([key])
        self._world.counts["thief: " + ("overwritten" if overwrites else "deleted")] += 1
        there.after_theft(key)

    def fail_requests(
        self, who: str, request: str, kind: str, count: int, retry_after: float | None = None, replica: int = 0
    ) -> None:
        """Let the next of these requests fail in this way."""
        self._world.replicas[replica].bucket.faults.append(PlannedFault(who, request, kind, count, retry_after))
