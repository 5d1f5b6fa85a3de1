"""Thread pools by destination, and the limit of open files.

A store that hangs delays only the replicas at the same destination. Each log keeps the descriptor of one log segment
open. Many logs therefore need a high limit.
"""

from __future__ import annotations

import logging
import resource
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from litelog.events import fields
from litelog.stores.registry import destination_of

SYNCING_THREADS = 32
"""For each destination: how many logs are shipped at the same time. Each waits for disks and networks. File systems
sync many files together, and a store that takes 30 ms for a PUT takes a thousand a second."""

THREADS = 4
"""For each destination and any other kind of work: more than most machines have cores."""

SEALING_THREADS = 2


class DestinationThreads:
    """Bounded pools, made when a destination is first named; a pool starts threads only as it needs them."""

    def __init__(self) -> None:
        self._syncing: dict[str, ThreadPoolExecutor] = {}
        self._putting: dict[str, ThreadPoolExecutor] = {}
        self._sealing: dict[str, ThreadPoolExecutor] = {}
        self._backlog_pools: dict[str, ThreadPoolExecutor] = {}
        self._scrubbing: dict[str, ThreadPoolExecutor] = {}
        self._locking: dict[str, ThreadPoolExecutor] = {}

    def syncing(self, url: str) -> ThreadPoolExecutor:
        """Return the pool for the syncs of the replica at ``url``, as its client gives it."""
        return _pool(self._syncing, url, "sync", SYNCING_THREADS)

    def putting(self, url: str) -> ThreadPoolExecutor:
        """Return the pool for puts next to its syncs, which wait for them."""
        return _pool(self._putting, url, "put")

    def sealing(self, url: str) -> ThreadPoolExecutor:
        """Return the pool for work that no WAL segment waits for. It is smaller, so that syncs get the processors and
        the network."""
        return _pool(self._sealing, url, "seal", SEALING_THREADS)

    def backlog_pool(self, url: str) -> ThreadPoolExecutor:
        """Return the pool for sealing before a log's WAL segments: a log segment at a time, so that logs share it."""
        return _pool(self._backlog_pools, url, "backlog", SEALING_THREADS)

    def scrubbing(self, url: str) -> ThreadPoolExecutor:
        """Return the pool for scrubs, for which no caller waits: one thread."""
        return _pool(self._scrubbing, url, "scrub", 1)

    def locking(self, url: str) -> ThreadPoolExecutor:
        """Return the pool for the extension of locks: one thread. Locks end while a scrub takes days."""
        return _pool(self._locking, url, "lock", 1)

    def shutdown(self, *, wait: bool) -> None:
        """Shut down all pools; with ``wait``, once their work is done."""
        background = (self._sealing, self._backlog_pools, self._scrubbing, self._locking)
        pools = (self._syncing, self._putting, *background)
        for pool in (pool for by_destination in pools for pool in by_destination.values()):
            pool.shutdown(wait=wait, cancel_futures=True)


def _pool(pools: dict[str, ThreadPoolExecutor], url: str, name: str, threads: int = THREADS) -> ThreadPoolExecutor:
    place = destination_of(url)
    if place not in pools:
        pools[place] = ThreadPoolExecutor(threads, name)
    return pools[place]


_logger = logging.getLogger(__name__)

FOR_EACH_REPLICA = 4
"""The lock of its state; the current log segment, the one before, and for a moment the next one."""

FOR_THE_PROCESS = 256
"""Standard streams, events, connections, sockets, files that are open for a moment."""


def raise_limit() -> int:
    """Raise the soft limit to the hard one. Return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return read_limit()


def read_limit() -> int:
    """Return how many descriptors the process may have; a huge number without a limit."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 62 if soft == resource.RLIM_INFINITY else soft


class DescriptorWatch:
    """Logs, once for each doubling, that there are more replicas than descriptors for them."""

    def __init__(self) -> None:
        self._logged_for = 0

    def check(self, replicas: int) -> None:
        """Log an error if ``replicas`` replicas may need more descriptors than the process may have."""
        limit = read_limit()
        needed = FOR_THE_PROCESS + FOR_EACH_REPLICA * replicas
        if needed <= limit or replicas < 2 * self._logged_for:
            return
        self._logged_for = replicas
        message = (
            "%d replicas may need %d open files, and this process may have %d: beyond that, logs fail with 'Too many "
            "open files'; raise the hard limit (ulimit -Hn, LimitNOFILE= of the service)"
        )
        _logger.error(
            message, replicas, needed, limit, extra=fields("descriptor-limit", replica_count=replicas, limit=limit)
        )
