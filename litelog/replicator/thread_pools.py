"""Threads by destination: a store that hangs holds up the replicas that are there, and no others."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from litelog.stores.registry import destination_of

SYNCING_THREADS = 32
"""For each destination: as many logs are shipped at a time, each waiting for disks and networks. File systems make what
many wait for durable together, and a store that takes 30 ms for a PUT takes a thousand a second."""

THREADS = 4
"""For each destination and other kind of work: more than cores."""

SEALING_THREADS = 2


class DestinationThreads:
    """Bounded pools, made when a destination is first named; a pool starts threads only as it needs them."""

    def __init__(self) -> None:
        self._syncing: dict[str, ThreadPoolExecutor] = {}
        self._putting: dict[str, ThreadPoolExecutor] = {}
        self._sealing: dict[str, ThreadPoolExecutor] = {}
        self._contacting: dict[str, ThreadPoolExecutor] = {}
        self._scrubbing: dict[str, ThreadPoolExecutor] = {}

    def syncing(self, url: str) -> ThreadPoolExecutor:
        """For the syncs of the replica at ``url``, as its client spells it."""
        return _pool(self._syncing, url, "sync", SYNCING_THREADS)

    def putting(self, url: str) -> ThreadPoolExecutor:
        """For puts beside its syncs, which wait for them."""
        return _pool(self._putting, url, "put")

    def sealing(self, url: str) -> ThreadPoolExecutor:
        """For what no WAL segment waits for: fewer, so that the others have the processors and the network."""
        return _pool(self._sealing, url, "seal", SEALING_THREADS)

    def contacting(self, url: str) -> ThreadPoolExecutor:
        """For what goes up sealed before anything else of its log: a log segment at a time, so that logs take turns."""
        return _pool(self._contacting, url, "contact")

    def scrubbing(self, url: str) -> ThreadPoolExecutor:
        """For what nobody waits for: one at a time."""
        return _pool(self._scrubbing, url, "scrub", 1)

    def shutdown(self, *, wait: bool) -> None:
        """End them all; with ``wait``, once what they do is done."""
        pools = (self._syncing, self._putting, self._sealing, self._contacting, self._scrubbing)
        for pool in (pool for by_place in pools for pool in by_place.values()):
            pool.shutdown(wait=wait, cancel_futures=True)


def _pool(pools: dict[str, ThreadPoolExecutor], url: str, name: str, threads: int = THREADS) -> ThreadPoolExecutor:
    place = destination_of(url)
    if place not in pools:
        pools[place] = ThreadPoolExecutor(threads, name)
    return pools[place]
