"""A table of integers that grows by single rows, and by blocks of many rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]


class Rows:
    """n rows of ``width`` numbers each. Each number takes eight bytes, except those of the newest single rows."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._blocks: list[Int64s] = []
        self._before = 0
        """How many rows the blocks hold."""
        self._singles: list[tuple[int, ...]] = []

    def __len__(self) -> int:
        return self._before + len(self._singles)

    def add(self, row: tuple[int, ...]) -> None:
        """Append a row."""
        self._singles.append(row)

    def extend(self, columns: Int64s) -> None:
        """Append rows, given as an array of ``width`` columns."""
        self._join_singles()
        self._blocks.append(columns)
        self._before += columns.shape[1]

    def cut(self, count: int) -> None:
        """Drop all rows but the first ``count``. Rows that came in blocks, or before one, cannot be dropped."""
        del self._singles[count - self._before :]

    def columns(self) -> Int64s:
        """All rows, as an array of ``width`` columns."""
        self._join_singles()
        if len(self._blocks) != 1:
            none = np.empty((self._width, 0), np.int64)
            self._blocks = [np.concatenate([none, *self._blocks], axis=1)]
        return self._blocks[0]

    def _join_singles(self) -> None:
        if self._singles:
            self._blocks.append(np.array(self._singles, np.int64).T)
            self._before += len(self._singles)
            self._singles = []
