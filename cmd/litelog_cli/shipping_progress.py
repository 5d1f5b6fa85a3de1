"""How far ``litelog replicate --once`` is: what became durable, and what the logs' folders hold beyond it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from litelog.replicator import Replicator


class ShippingProgress:
    """The bytes of all logs, once for each replica. One thread."""

    def __init__(self, replicator: Replicator) -> None:
        self._replicator = replicator
        self._whole = 0

    def look(self) -> tuple[int, int | None]:
        """What is done and what there was to do; None for that until the folders have been looked at."""
        self._replicator.measure()
        statuses = self._replicator.status()
        behind = sum(status.lag_bytes for status in statuses)
        counts = [status.tallies.counts for status in statuses if status.tallies is not None]
        durable = sum(each.wal_log_bytes + each.sealed_log_bytes for each in counts)
        self._whole = max(self._whole, behind)
        if not self._whole:
            return durable, None
        # A first contact seals before anything is acknowledged; what was shipped first may be sealed, too.
        return min(self._whole, max(durable, self._whole - behind)), self._whole
