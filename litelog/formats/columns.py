"""Decoded records as columns: places in one buffer, so that no loop runs per record until somebody asks for records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from litelog.formats import arrow_batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

RECORDS_AT_A_TIME = 4096  # places that are turned into Python numbers at once, so that iteration takes little memory


class Record(NamedTuple):
    """One entry of a log. ``timestamp`` is in microseconds since 1970, None where the format has none."""

    sequence: int
    timestamp: int | None
    key: bytes | None
    value: bytes


@dataclass(frozen=True, slots=True)
class Columns:
    """n records of a log, as int64 arrays of length n that point into ``data``. Bytes are not copied."""

    data: memoryview
    sequences: npt.NDArray[np.int64]
    """Strictly rising."""
    timestamps: npt.NDArray[np.int64] | None
    """Microseconds since 1970; None where the format has none."""
    key_starts: npt.NDArray[np.int64] | None
    """None if no record has a key."""
    key_lengths: npt.NDArray[np.int64] | None
    """-1 for a record without a key."""
    value_starts: npt.NDArray[np.int64]
    value_lengths: npt.NDArray[np.int64]
    runs: npt.NDArray[np.int64] | None = None
    """The first record of each run whose values lie back to back in ``data``; None where that is not known."""

    def __len__(self) -> int:
        return len(self.sequences)

    @classmethod
    def empty(cls, data: memoryview, *, has_timestamps: bool) -> Columns:
        """No record of ``data``."""
        none = np.empty(0, np.int64)
        return cls(data, none, none if has_timestamps else None, None, None, none, none)

    def slice(self, start: int, stop: int) -> Columns:
        """The records from the ``start``-th up to, not with, the ``stop``-th."""
        part = slice(start, stop)
        return Columns(
            self.data,
            self.sequences[part],
            None if self.timestamps is None else self.timestamps[part],
            None if self.key_starts is None else self.key_starts[part],
            None if self.key_lengths is None else self.key_lengths[part],
            self.value_starts[part],
            self.value_lengths[part],
        )

    def find(self, sequence: int) -> int:
        """How many records lie before the first one whose sequence is ``sequence`` or higher."""
        return int(np.searchsorted(self.sequences, sequence))

    def records(self) -> Iterator[Record]:
        """The records one by one, their bytes copied: for people and small logs."""
        for start in range(0, len(self), RECORDS_AT_A_TIME):
            part = self.slice(start, start + RECORDS_AT_A_TIME)
            count, data = len(part), self.data
            stamps = [None] * count if part.timestamps is None else part.timestamps.tolist()
            keys: list[bytes | None] = [None] * count
            if part.key_starts is not None and part.key_lengths is not None:
                places = zip(part.key_starts.tolist(), part.key_lengths.tolist(), strict=True)
                keys = [None if length < 0 else bytes(data[at : at + length]) for at, length in places]
            places = zip(part.value_starts.tolist(), part.value_lengths.tolist(), strict=True)
            values = [bytes(data[at : at + length]) for at, length in places]
            yield from map(Record, part.sequences.tolist(), stamps, keys, values)

    def to_arrow(self, names: Sequence[str] = arrow_batch.NAMES) -> Any:
        """All records as one pyarrow.RecordBatch with memory of its own: ``data`` may be reused afterwards.

        Columns, of which ``names`` says the wanted ones, in this order: sequence int64, timestamp timestamp[us, UTC]
        (null where the format has none), key binary, value binary. ConfigError if pyarrow is not installed; ValueError
        if the values are 2 GiB or more.
        """
        return arrow_batch.copy_batch(self, names)

    def to_arrow_batches(self, names: Sequence[str] = arrow_batch.NAMES) -> Iterator[Any]:
        """The same records as pyarrow.RecordBatches whose values and keys are not copied: ``data`` must not change.

        One batch for each run of values that lie back to back, where these runs are long; else as ``to_arrow``.
        """
        return arrow_batch.borrow_batches(self, names)
