"""How many files a process may have open: a log segment has one descriptor for its life, so many logs need many."""

from __future__ import annotations

import logging
import resource
from contextlib import suppress

from litelog.events import fields

_logger = logging.getLogger(__name__)

FOR_EACH_REPLICA = 4
"""The lock of its state; the log segment that is written, the one before, and the one behind for a moment."""

FOR_THE_PROCESS = 256
"""Standard streams, events, connections, sockets, files that are open for a moment."""


def raise_limit() -> int:
    """Set the soft limit to the hard one; what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return read_limit()


def read_limit() -> int:
    """How many descriptors the process may have; as many as can be counted where there is no limit."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 62 if soft == resource.RLIM_INFINITY else soft


class DescriptorWatch:
    """Says, once for each doubling, that there are more replicas than descriptors for them."""

    def __init__(self) -> None:
        self._said_for = 0

    def check(self, replicas: int) -> None:
        """Tell where so many replicas may need more descriptors than there may be."""
        limit = read_limit()
        needed = FOR_THE_PROCESS + FOR_EACH_REPLICA * replicas
        if needed <= limit or replicas < 2 * self._said_for:
            return
        self._said_for = replicas
        said = (
            "%d replicas may need %d open files, and this process may have %d: beyond that, logs fail with 'Too many "
            "open files'; raise the hard limit (ulimit -Hn, LimitNOFILE= of the service)"
        )
        _logger.error(said, replicas, needed, limit, extra=fields("descriptor-limit", replicas=replicas, limit=limit))
