"""Records the verdicts of the last day, and the rate of shipping, for the page.

<state folder>/verdicts.json holds the verdicts, so that they outlast a restart. Daemons that share the folder share the
file: each one replaces only its own verdicts. No decision depends on it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from litelog.dataclass import dataclass
from litelog.events import fields
from litelog.replicator.snapshot_requests import VERDICTS_FILE, VERDICTS_LOCK
from litelog.server.verdict import Verdict
from litelog.system.checked_files import NoteFile
from litelog.system.private_files import open_lock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from litelog.server.status_view import StatusView
    from litelog.server.verdict import Pair, ReplicaCondition

SLOT_SECONDS = 600
SLOTS = 144
"""A day has this many slots of ten minutes, with a byte for each replica."""

RATE_SAMPLES = 4
"""The number of samples from which the rate is computed."""

_CODES = {Verdict.SAFE: 1, Verdict.UNKNOWN: 2, Verdict.LATE: 3, Verdict.UNSAFE: 4}
"""The values in a slot, the worst last; 0: nothing was recorded."""
_VERDICTS = {code: verdict for verdict, code in _CODES.items()} | {0: Verdict.UNKNOWN}
_DIGITS = re.compile(f"[0-4]{{{SLOTS}}}")

_Slots = dict["Pair", bytearray]
"""The codes of each replica's slots, the oldest first."""

_logger = logging.getLogger(__name__)


class ShippingRate(NamedTuple):
    """How much was shipped a second in the last minutes."""

    records: float
    log_bytes: float


class VerdictHistory:
    """The worst verdict on each replica in each slot of the last day. One thread records; any thread reads.

    Slots follow the wall clock. If it jumps back, the records of times that come again are deleted. A slot that no
    daemon recorded is unknown. A replica that is gone is forgotten after a day.
    """

    def __init__(self, state_dir: str | None = None) -> None:
        """``state_dir``: the daemon's state folder, which must exist when something is recorded; None: keep nothing."""
        self._keeper = None if state_dir is None else _Keeper(state_dir)
        self._slots: _Slots = {}
        self._newest: int | None = None
        """The number of the newest slot since 1970; None before the first record."""
        self._judged: set[Pair] = set()
        """The replicas that this daemon judged. Others in ``_slots`` may be another daemon's."""
        self._samples: deque[tuple[float, dict[Pair, tuple[int, int]]]] = deque(maxlen=RATE_SAMPLES)

    def record(self, view: StatusView, conditions: Mapping[Pair, ReplicaCondition]) -> None:
        """Record the current conditions, and how much was shipped."""
        newest = int(view.time_of(0.0) // 1_000_000 // SLOT_SECONDS)
        slots, passed = self._slots, 0 if self._newest is None else newest - self._newest
        if self._newest is None and self._keeper is not None:
            slots = self._keeper.read(newest)
        slots = _shift(slots, passed)
        changed = passed != 0
        for pair, condition in conditions.items():
            kept = slots.setdefault(pair, bytearray(SLOTS))
            code = max(kept[-1], _CODES[condition.verdict])
            changed |= code != kept[-1]
            kept[-1] = code
        self._slots, self._newest = slots, newest
        self._judged = (self._judged | conditions.keys()) & slots.keys()
        if changed and self._keeper is not None and self._judged:
            self._keeper.replace(newest, {pair: slots[pair] for pair in self._judged})
        shipped = {
            (status.log, status.replica): (status.sequence or 0, status.counters.counts.wal_log_bytes)
            for status in view.statuses
            if status.counters is not None
        }
        self._samples.append((view.now, shipped))

    def read(self, pair: Pair) -> Sequence[Verdict]:
        """The verdicts on a replica in the slots of a day, the oldest first."""
        return [_VERDICTS[code] for code in self._slots.get(pair, bytes(SLOTS))]

    @property
    def rate(self) -> ShippingRate | None:
        """The rate of all replicas together; None if it is not known yet. Does not count data that a replica held
        before the daemon opened it, or that a new generation takes back."""
        samples = list(self._samples)
        if len(samples) < 2 or samples[-1][0] <= samples[0][0]:
            return None
        (began, before), (ended, after) = samples[0], samples[-1]
        seconds = ended - began
        both = before.keys() & after.keys()
        records = sum(max(0, after[pair][0] - before[pair][0]) for pair in both)
        return ShippingRate(records / seconds, sum(max(0, after[pair][1] - before[pair][1]) for pair in both) / seconds)


@dataclass(frozen=True, slots=True)
class _Day:
    log: str
    replica: str
    slots: str
    """A digit for each slot, the oldest first."""


@dataclass(frozen=True, slots=True)
class _Note:
    newest: int
    """The number of the newest slot since 1970."""
    replicas: tuple[_Day, ...] = ()


class _Keeper:
    """Keeps the slots in a state folder."""

    def __init__(self, state_dir: str) -> None:
        loss = "verdicts from before the start are not known"
        self._file = NoteFile(os.path.join(state_dir, VERDICTS_FILE), _Note, loss)
        self._lock = os.path.join(state_dir, VERDICTS_LOCK)
        self._failed = False

    def read(self, newest: int) -> _Slots:
        """Read the kept slots, moved so that ``newest`` is the newest one."""
        note = self._file.read()
        if note is None:
            return {}
        days = (each for each in note.replicas if _DIGITS.fullmatch(each.slots))
        slots = {(each.log, each.replica): bytearray(map(int, each.slots)) for each in days}
        return _shift(slots, newest - note.newest)

    def replace(self, newest: int, slots: _Slots) -> None:
        """Replace the slots of these replicas. Logs a failure once."""
        try:
            lock = open_lock(self._lock)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)  # brief: held while one small file is read and written
                kept = self.read(newest) | slots
                days = (_Day(*pair, "".join(map(str, each))) for pair, each in sorted(kept.items()))
                self._file.write(_Note(newest, tuple(days)))
            finally:
                os.close(lock)
        except OSError as error:
            if not self._failed:
                extra = fields("state-not-kept", path=self._file.path)
                _logger.warning("%s: cannot be kept: %s", self._file.path, error.strerror, extra=extra)
            self._failed = True
        else:
            self._failed = False


def _shift(slots: _Slots, passed: int) -> _Slots:
    """Move slots by ``passed`` into the past; into the future if negative. Leaves out replicas without a record."""
    if not passed:
        return slots
    count = min(abs(passed), SLOTS)
    empty = bytearray(count)
    moved = {
        pair: each[count:] + empty if passed > 0 else empty + each[: SLOTS - count] for pair, each in slots.items()
    }
    return {pair: each for pair, each in moved.items() if any(each)}
