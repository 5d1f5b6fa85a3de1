"""Columns that a format has in addition to sequence, timestamp, key and value.

Specified in litelog/formats/README.md#columns-of-the-formats-own.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, Self

from litelog.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import numpy.typing as npt
    import pyarrow


class ColumnType(Enum):
    """The type of such a column, which the format states before there are records."""

    INT32 = "int32"
    INT64 = "int64"
    TEXT = "string"
    BYTES_LIST = "bytes list"
    """A list of bytes."""
    HEADERS = "headers"
    """A list of pairs of a text and bytes, both in order and with repetitions; null if there are none."""

    def arrow(self) -> Any:
        """The type in Arrow."""
        import pyarrow  # noqa: PLC0415  # an extra

        if self is ColumnType.HEADERS:
            pair = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
            return pyarrow.list_(pair)
        if self is ColumnType.BYTES_LIST:
            return pyarrow.list_(pyarrow.binary())
        return pyarrow.type_for_alias(self.value)


NO_COLUMNS: Mapping[str, ColumnType] = MappingProxyType({})


class ExtraColumn(Protocol):
    """The values of such a column, for as many records as the ``Columns`` that hold it."""

    def slice(self, start: int, stop: int) -> Self:
        """Return the values from number ``start`` to ``stop``, exclusive."""

    def take(self, chosen: npt.NDArray[np.int64]) -> Self:
        """Return the values of these numbers, which ascend."""

    def to_list(self) -> list[Any]:
        """Return the values as Python objects: numbers or None, texts, lists of bytes, or lists of (text, bytes or
        None)."""

    def to_arrow(self) -> pyarrow.Array:
        """Return the values as an Arrow array with its own memory, of the type that the format states."""


@dataclass(frozen=True, slots=True)
class NumberColumn:
    """Numbers: an array of int32 or int64."""

    values: npt.NDArray[np.int64] | npt.NDArray[np.int32]
    nulls: npt.NDArray[np.bool_] | None = None
    """Which values are null; None if none is."""

    def slice(self, start: int, stop: int) -> NumberColumn:
        return NumberColumn(self.values[start:stop], None if self.nulls is None else self.nulls[start:stop])

    def take(self, chosen: npt.NDArray[np.int64]) -> NumberColumn:
        return NumberColumn(self.values[chosen], None if self.nulls is None else self.nulls[chosen])

    def to_list(self) -> list[Any]:
        found: list[Any] = self.values.tolist()
        if self.nulls is not None:
            return [None if is_null else each for each, is_null in zip(found, self.nulls.tolist(), strict=True)]
        return found

    def to_arrow(self) -> pyarrow.Array:
        import pyarrow  # noqa: PLC0415  # an extra

        return pyarrow.array(self.values, mask=self.nulls)
