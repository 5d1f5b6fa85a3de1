"""The names of a generation's WAL segments, as columns: a generation may have a million of them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from operator import eq
from typing import TYPE_CHECKING, overload

from litelog.objects.position import Position
from litelog.stores.replica_client import WalSegmentInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from litelog.objects.position import Generation


class WalNames(Sequence[WalSegmentInfo]):
    """WAL segments of one generation, in order, in 24 bytes each. Makes the value of one when a caller takes it."""

    __slots__ = ("generation", "indexes", "offsets", "sizes")

    def __init__(self, generation: Generation, infos: Iterable[WalSegmentInfo] = ()) -> None:
        self.generation = generation
        self.indexes = array("Q")
        self.offsets = array("Q")
        self.sizes = array("Q")
        for info in infos:
            self.append(info)

    def append(self, info: WalSegmentInfo) -> None:
        """Add one after the last."""
        self.indexes.append(info.position.index)
        self.offsets.append(info.position.offset)
        self.sizes.append(info.size)

    def __len__(self) -> int:
        return len(self.indexes)

    @overload
    def __getitem__(self, number: int) -> WalSegmentInfo: ...

    @overload
    def __getitem__(self, number: slice) -> WalNames: ...

    def __getitem__(self, number: int | slice) -> WalSegmentInfo | WalNames:
        if isinstance(number, slice):
            some = WalNames(self.generation)
            some.indexes, some.offsets, some.sizes = self.indexes[number], self.offsets[number], self.sizes[number]
            return some
        return WalSegmentInfo(Position(self.generation, self.indexes[number], self.offsets[number]), self.sizes[number])

    def __iter__(self) -> Iterator[WalSegmentInfo]:
        for index, offset, size in zip(self.indexes, self.offsets, self.sizes, strict=True):
            yield WalSegmentInfo(Position(self.generation, index, offset), size)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WalNames | tuple):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))
