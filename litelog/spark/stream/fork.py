"""Finds where the history of a log forked: the first sequence at which two generations hold different records."""

from __future__ import annotations

from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any

from litelog.dataclass import dataclass
from litelog.errors import (
    CorruptionError,
    DivergedError,
    NotFoundError,
    NothingToRestoreError,
    PrunedError,
    ReplicaGapError,
    TruncatedError,
)
from litelog.formats.capabilities import is_divisible
from litelog.formats.columns import copy_batch
from litelog.objects.claim import open_claimed_format
from litelog.reading.contents import list_pieces
from litelog.reading.replica_reader import ReplicaReader
from litelog.spark.scan.task import open_log_format

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from litelog.formats.columns import Columns
    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.stores.replica_client import ReplicaClient

_ENDS = (
    *(CorruptionError, DivergedError, NotFoundError, NothingToRestoreError),
    *(PrunedError, ReplicaGapError, TruncatedError),
)
"""Errors after which a history cannot be read any further."""


@dataclass(frozen=True, slots=True)
class Fork:
    """The place at which a new history begins to differ from the records that a stream has read of an old one."""

    old: Generation
    new: Generation
    sequence: int | None
    """The first sequence that differs, or that only one generation has. None: nothing is known to be the same."""
    stop: int | None
    """The sequence after the last record that the stream has read; None if that is not known."""

    def __str__(self) -> str:
        if self.sequence is None:
            until = "" if self.stop is None else f" up to {self.stop - 1}"
            return (
                f"generation {self.new} forks from generation {self.old}, of which too little is left to say where: "
                f"any sequence{until} may now differ"
            )
        fork = f"generation {self.new} forks from generation {self.old} at sequence {self.sequence}"
        if self.stop is not None and self.stop <= self.sequence:
            return f"{fork}: no sequence differs that the stream has read"
        last = "the end" if self.stop is None else str(self.stop - 1)
        return f"{fork}: sequences {self.sequence} to {last} now differ from what the stream has read"


def find_fork(client: ReplicaClient, old: Claim, new: Claim, stop: int | None, pattern: str | None = None) -> Fork:
    """Compare two generations up to the sequence ``stop``; None: up to the end of the old one.

    Log segments with the same digest are not read. From the first differing log segment on, the records of both are
    read. Raises StoreError.
    """
    known, fresh = _entries(client, old), _entries(client, new)
    after = _after_same(known, fresh)
    firsts = [next((entry.first for entry in some if entry.first is not None), None) for some in (known, fresh)]
    start = after if after is not None or None in firsts else max(first for first in firsts if first is not None)
    divisible = is_divisible(open_claimed_format(new, partial(open_log_format, pattern=pattern)))
    left, right = (_History(client, claim, start, stop, pattern, divisible) for claim in (old, new))
    reached = _compare(left, right)
    oldest = right.first if firsts[1] is None else firsts[1]
    is_proven = (
        after is not None or left.has_equal or (reached is not None and oldest is not None and reached <= oldest)
    )
    return Fork(old.generation, new.generation, reached if is_proven else None, stop)


def _entries(client: ReplicaClient, claim: Claim) -> Sequence[SnapshotEntry]:
    try:
        return [entry for entry in list_pieces(client, claim).base.entries if entry.records]
    except _ENDS:
        return ()


def _after_same(old: Sequence[SnapshotEntry], new: Sequence[SnapshotEntry]) -> int | None:
    """The sequence after the first log segments that are the same in both; None if there are none."""
    others = {entry.first: entry for entry in new}
    after: int | None = None
    for entry in old:
        other = others.get(entry.first)
        if other is not None and (other.digest, other.length) == (entry.digest, entry.length):
            after = entry.next
        elif other is not None or after is not None:
            break
    return after


def _compare(left: _History, right: _History) -> int | None:
    """The sequence up to which both hold the same records; the first common sequence if that record already differs.

    None if either holds no records.
    """
    low = max((first for first in (left.begin(), right.begin()) if first is not None), default=None)
    if low is None or left.first is None or right.first is None:
        return None
    left.drop_before(low)
    right.drop_before(low)
    reached = low
    while count := min(left.available(), right.available()):
        same = _count_same(left.take(count), right.take(count))
        if same:
            reached, left.has_equal = left.sequence_after(same), True
        if same < count:
            break
        left.drop(count)
        right.drop(count)
    return reached


def _count_same(one: Any, other: Any) -> int:
    """How many records, or bytes, at the start of two runs of the same length are equal."""
    low, high = 0, len(one)
    if one == other:
        return high
    while high - low > 1:  # the first ``low`` are equal, and the first ``high`` are not
        middle = (low + high) // 2
        if _first(one, middle) == _first(other, middle):
            low = middle
        else:
            high = middle
    return low


def _first(run: Any, count: int) -> Any:
    return run[:count] if isinstance(run, memoryview) else run.slice(0, count)


@dataclass(slots=True)
class _History:
    """The records of a generation, a run at a time: Arrow batches or, if sequences count bytes, bytes."""

    client: ReplicaClient
    claim: Claim
    start: int | None
    stop: int | None
    pattern: str | None
    divisible: bool
    first: int | None = None
    """The sequence of the first record that was read."""
    has_equal: bool = False
    _runs: Iterator[tuple[int, Any]] = field(init=False)
    _at: int = 0
    """The sequence of the first byte of the run, if sequences count bytes."""
    _run: Any = None

    def begin(self) -> int | None:
        """Read the first run. Returns its sequence; None if there is none."""
        self._runs = self._read()
        if self.available():
            self.first = self._at
        return self.first

    def available(self) -> int:
        """How many records, or bytes, the current run holds; 0 at the end."""
        while self._run is None or not len(self._run):
            found = next(self._runs, None)
            if found is None:
                return 0
            self._at, self._run = found
        return len(self._run)

    def take(self, count: int) -> Any:
        """The first ``count`` records, or bytes, of the current run."""
        return _first(self._run, count)

    def sequence_after(self, count: int) -> int:
        """The sequence after the first ``count`` records, or bytes, of the current run."""
        return self._at + count if self.divisible else int(self._run.column(0)[count - 1].as_py()) + 1

    def drop(self, count: int) -> None:
        """Drop the first ``count`` records, or bytes, of the current run."""
        self._at += count
        self._run = self._run[count:] if self.divisible else self._run.slice(count)

    def drop_before(self, sequence: int) -> None:
        """Drop everything before ``sequence``."""
        while self.available():
            if self.divisible:
                before = max(0, sequence - self._at)
            else:
                before = int((self._run.column(0).to_numpy() < sequence).sum())
            count = min(before, len(self._run))
            self.drop(count)
            if len(self._run):
                return

    def _read(self) -> Iterator[tuple[int, Any]]:
        formats = partial(open_log_format, pattern=self.pattern)
        name = self.claim.generation
        reader = ReplicaReader(self.client, generation=name, start=self.start, end=self.stop, formats=formats)
        try:
            with reader:
                for columns in reader.batches():
                    yield int(columns.sequences[0]), _bytes(columns) if self.divisible else copy_batch(columns)
        except _ENDS:
            return


def _bytes(columns: Columns) -> memoryview:
    """The bytes of contiguous values."""
    start, end = int(columns.value_starts[0]), int(columns.value_starts[-1] + columns.value_lengths[-1])
    return memoryview(columns.data)[start:end]
