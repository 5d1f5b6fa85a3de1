"""The verdicts of the last day, and the rate of shipping: what the page shows besides the present."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from litelog.server.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from litelog.replicator.status import ReplicaStatus
    from litelog.server.verdict import Pair, ReplicaCondition

SLOT_SECONDS = 600.0
SLOTS = 144
"""A day, in slots of ten minutes: 144 bytes for each replica."""

RATE_SAMPLES = 4
"""Over how many samples the rate is taken."""

_CODES = {Verdict.SAFE: 1, Verdict.UNKNOWN: 2, Verdict.LATE: 3, Verdict.UNSAFE: 4}
"""What a slot holds, the worst last; 0: nothing was recorded."""
_VERDICTS = {code: verdict for verdict, code in _CODES.items()} | {0: Verdict.UNKNOWN}


class ShippingRate(NamedTuple):
    """How much is shipped a second, in the last minutes."""

    records: float
    log_bytes: float


class VerdictHistory:
    """The worst verdict on each replica in each slot since the daemon started. One thread records; any thread reads."""

    def __init__(self) -> None:
        self._slots: dict[Pair, bytearray] = {}
        self._newest = 0
        """The number of the newest slot."""
        self._samples: deque[tuple[float, dict[Pair, tuple[int, int]]]] = deque(maxlen=RATE_SAMPLES)

    def record(
        self, now: float, conditions: Mapping[Pair, ReplicaCondition], statuses: Iterable[ReplicaStatus]
    ) -> None:
        """Record the verdicts of now, in monotonic seconds, and how much was shipped. Replicas that are not in it are
        forgotten."""
        slot = int(now // SLOT_SECONDS)
        passed = slot - self._newest if self._slots else 0
        slots = {}
        for pair, condition in conditions.items():
            kept = self._slots.get(pair) or bytearray(SLOTS)
            if passed > 0:
                kept = kept[min(passed, SLOTS) :] + bytearray(min(passed, SLOTS))
            kept[-1] = max(kept[-1], _CODES[condition.verdict])
            slots[pair] = kept
        self._slots, self._newest = slots, slot
        shipped = {
            (status.log, status.replica): (status.sequence or 0, status.counters.counts.wal_log_bytes)
            for status in statuses
            if status.counters is not None
        }
        self._samples.append((now, shipped))

    def read(self, pair: Pair) -> Sequence[Verdict]:
        """The verdicts on a replica in the slots of a day, the oldest first."""
        return [_VERDICTS[code] for code in self._slots.get(pair, bytes(SLOTS))]

    @property
    def rate(self) -> ShippingRate | None:
        """The rate of all replicas together; None if it is not known yet. What a replica had before it was opened, or
        takes back in a new generation, does not count."""
        samples = list(self._samples)
        if len(samples) < 2 or samples[-1][0] <= samples[0][0]:
            return None
        (began, before), (ended, after) = samples[0], samples[-1]
        seconds = ended - began
        both = before.keys() & after.keys()
        records = sum(max(0, after[pair][0] - before[pair][0]) for pair in both)
        return ShippingRate(records / seconds, sum(max(0, after[pair][1] - before[pair][1]) for pair in both) / seconds)
