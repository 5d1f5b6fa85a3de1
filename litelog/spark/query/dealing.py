"""Deals the partitions of a plan to tasks, one to each, and makes Spark's optimizer assume that they are large.

A small plan travels in the function that all tasks run. The parts of a larger one are rows, which Spark distributes so
that each task receives one.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np

from litelog.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy.typing as npt

CLOSURE_BYTES = 128 << 10
"""The largest plan that travels in the function. Distributing rows costs a shuffle, about as much as two tasks."""

_SEED = 42
"""The seed of the hash by which Spark distributes rows."""


@dataclass(frozen=True, slots=True)
class DealtWork:
    """The function that ``mapInArrow`` runs in each task. It calls ``work`` on each part that the task receives."""

    work: Callable[[Any], Iterator[Any]]
    parts: tuple[bytes, ...] | None
    """The parts, if the rows hold only their numbers; None if the rows hold the parts themselves."""

    @classmethod
    def of(cls, work: Callable[[Any], Iterator[Any]], parts: Sequence[bytes], most_bytes: int) -> DealtWork:
        """Create the work of tasks on ``parts``. It holds the parts if they have at most ``most_bytes``."""
        return cls(work, tuple(parts) if sum(map(len, parts)) <= most_bytes else None)

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches of ``work`` for the parts in the first column."""
        for batch in batches:
            for given in batch.column(0).to_pylist():
                dealt = given if self.parts is None else self.parts[given]
                yield from self.work(pickle.loads(dealt))  # noqa: S301 - the driver wrote it


def deal(
    spark: Any,
    parts: Sequence[Any],
    work: Callable[[Any], Iterator[Any]],
    schema: Any,
    most_bytes: int = CLOSURE_BYTES,
) -> Any:
    """A DataFrame of the batches that ``work`` yields, with one task for each part, in the order of the parts.

    Spark assumes that it is too large to be broadcast in a join. ``most_bytes``: the most that travels in the function.
    """
    pickled = [pickle.dumps(part) for part in parts]
    count = max(len(pickled), 1)
    dealt = DealtWork.of(work, pickled, most_bytes)
    if dealt.parts is not None:
        return _as_large(spark, spark.range(0, len(pickled), 1, count)).mapInArrow(dealt, schema)
    import pyarrow  # noqa: PLC0415 - an extra

    slots = pyarrow.array(slot_keys(count))
    rows = spark.createDataFrame(pyarrow.table({"slot": slots, "part": pyarrow.array(pickled, pyarrow.binary())}))
    return _as_large(spark, rows).repartition(count, "slot").select("part").mapInArrow(dealt, schema)


def slot_keys(count: int) -> npt.NDArray[np.int32]:
    """For each of ``count`` tasks, a number that Spark's hash assigns to this task.

    If Spark hashes differently, tasks get more than one part, or none.
    """
    keys = np.full(count, -1, np.int32)
    start, step = 0, 4 * count + 64
    while (keys < 0).any():
        numbers = np.arange(start, start + step, dtype=np.int32)
        keys[_hash(numbers).astype(np.int64) % count] = numbers
        start += step
    return keys


def _hash(numbers: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Murmur3 of 32-bit integers, as ``hash`` in Spark's SQL."""
    mixed = numbers.astype(np.uint32) * np.uint32(0xCC9E2D51)
    mixed = (mixed << np.uint32(15) | mixed >> np.uint32(17)) * np.uint32(0x1B873593)
    value = mixed ^ np.uint32(_SEED)
    value = (value << np.uint32(13) | value >> np.uint32(19)) * np.uint32(5) + np.uint32(0xE6546B64)
    value ^= np.uint32(4)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        value = (value ^ value >> np.uint32(shift)) * np.uint32(factor)
    value ^= value >> np.uint32(16)
    return value.view(np.int32)


def _as_large(spark: Any, frame: Any) -> Any:
    """The rows of ``frame``, in a DataFrame of unknown size. Spark then assumes the largest possible size.

    Otherwise it would assume that the log is as small as the rows that name its parts, and broadcast the log.
    """
    return frame.union(_nothing(spark, frame.schema))


def _nothing(spark: Any, schema: Any) -> Any:
    """An empty DataFrame whose size Spark does not know."""
    context = getattr(spark, "sparkContext", None)
    if context is not None:
        return spark.createDataFrame(context.emptyRDD(), schema)
    from litelog.spark.query.nothing import NothingSource  # noqa: PLC0415 - it imports PySpark

    spark.dataSource.register(NothingSource)  # Spark Connect has no RDDs
    return spark.read.format(NothingSource.name()).schema(schema).load()
