"""Decoded records as columns: places in one buffer, so that no loop runs per record until somebody asks for records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


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
    timestamps: npt.NDArray[np.int64] | None
    """Microseconds since 1970; None where the format has none."""
    key_starts: npt.NDArray[np.int64] | None
    """None if no record has a key."""
    key_lengths: npt.NDArray[np.int64] | None
    """-1 for a record without a key."""
    value_starts: npt.NDArray[np.int64]
    value_lengths: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.sequences)
