"""Columns as Arrow record batches: by one gather into memory of their own, or without a copy. pyarrow is optional."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from litelog.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from litelog.formats.columns import Columns

    Int64s = npt.NDArray[np.int64]

MAX_ARROW_BYTES = (1 << 31) - 1  # offsets of Arrow's binary type are int32
LONG_RUN_BYTES = 16 << 10
"""From this mean length on, runs are copied one by one, and are worth a batch of their own; measured."""


def copy_batch(columns: Columns) -> Any:
    """One pyarrow.RecordBatch that does not point into ``columns.data``."""
    pyarrow = _load_pyarrow()
    key = _key_lengths(columns)
    keys = pyarrow.nulls(len(columns), pyarrow.binary())
    if key is not None and columns.key_starts is not None:
        keys = _copy(pyarrow, columns.data, columns.key_starts, np.maximum(key, 0), key)
    values = _copy(pyarrow, columns.data, columns.value_starts, columns.value_lengths, None)
    return _batch(pyarrow, columns, keys, values)


def borrow_batches(columns: Columns) -> Iterator[Any]:
    """pyarrow.RecordBatches that point into ``columns.data``, one per run; one copied where runs are short or keyed."""
    pyarrow = _load_pyarrow()
    starts, lengths = columns.value_starts, columns.value_lengths
    breaks = _find_breaks(starts, lengths)
    if not len(columns):
        return
    if _key_lengths(columns) is not None or int(lengths.sum()) < LONG_RUN_BYTES * len(breaks):
        yield copy_batch(columns)
        return
    buffer = pyarrow.py_buffer(columns.data)
    firsts = breaks.tolist()
    for first, stop in zip(firsts, [*firsts[1:], len(columns)], strict=True):
        run = columns.slice(first, stop)
        offsets = np.empty(stop - first + 1, np.int32)
        begin = int(starts[first])
        np.subtract(run.value_starts, begin, out=offsets[:-1], casting="unsafe")
        end = int(starts[stop - 1] + lengths[stop - 1])
        offsets[-1] = end - begin
        values = _binary(pyarrow, None, offsets, buffer.slice(begin, end - begin))
        yield _batch(pyarrow, run, pyarrow.nulls(len(run), pyarrow.binary()), values)


def _load_pyarrow() -> Any:
    try:
        import pyarrow  # noqa: PLC0415  # an extra: only those who ask for batches need it
    except ImportError as error:
        raise ConfigError("Arrow record batches need pyarrow; run: pip install 'litelog[arrow]'") from error
    return pyarrow


def _key_lengths(columns: Columns) -> Int64s | None:
    lengths = columns.key_lengths
    return lengths if lengths is not None and len(lengths) and int(lengths.max()) >= 0 else None


def _batch(pyarrow: Any, columns: Columns, keys: Any, values: Any) -> Any:
    timestamp = pyarrow.timestamp("us", tz="UTC")
    count, buffer = len(columns), pyarrow.py_buffer
    stamps = pyarrow.nulls(count, timestamp)
    if columns.timestamps is not None:
        stamps = pyarrow.Array.from_buffers(timestamp, count, [None, buffer(columns.timestamps)], null_count=0)
    sequences = pyarrow.Array.from_buffers(pyarrow.int64(), count, [None, buffer(columns.sequences)], null_count=0)
    schema = pyarrow.schema(
        [("sequence", sequences.type), ("timestamp", timestamp), ("key", keys.type), ("value", values.type)]
    )
    return pyarrow.RecordBatch.from_arrays([sequences, stamps, keys, values], schema=schema)


def _binary(pyarrow: Any, valid: Any, offsets: npt.NDArray[np.int32], data: Any) -> Any:
    buffers = [valid, pyarrow.py_buffer(offsets), data]
    return pyarrow.Array.from_buffers(pyarrow.binary(), len(offsets) - 1, buffers)


def _copy(pyarrow: Any, data: memoryview, starts: Int64s, lengths: Int64s, nulls: Int64s | None) -> Any:
    """A binary array of the entries at ``starts``; null where ``nulls`` is negative."""
    total = int(lengths.sum())
    if total > MAX_ARROW_BYTES:
        raise ValueError(f"{total} bytes of values do not fit into one record batch; slice the columns")
    offsets = np.zeros(len(starts) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    valid = None if nulls is None else pyarrow.py_buffer(np.packbits(nulls >= 0, bitorder="little"))
    return _binary(pyarrow, valid, offsets, _compact(pyarrow, data, starts, lengths, total))


def _compact(pyarrow: Any, data: memoryview, starts: Int64s, lengths: Int64s, total: int) -> Any:
    """A buffer of Arrow's own with the entries back to back."""
    breaks = _find_breaks(starts, lengths)
    if not total:
        return pyarrow.py_buffer(b"")
    begins = starts[breaks]
    last = np.append(breaks[1:], len(starts)) - 1
    ends = starts[last] + lengths[last]
    if total >= LONG_RUN_BYTES * len(breaks):
        array = np.frombuffer(data, np.uint8)
        buffer = pyarrow.allocate_buffer(total)
        runs = [array[a:b] for a, b in zip(begins.tolist(), ends.tolist(), strict=True)]
        np.concatenate(runs, out=np.frombuffer(buffer, np.uint8))
        return buffer
    # Runs and the gaps between them are an array of 2n - 1 entries without a copy; Arrow takes every other one.
    bounds = np.stack([begins, ends], axis=1).ravel()
    order = np.arange(0, len(bounds) - 1, 2)
    origin = int(bounds[0])
    offsets = (bounds - origin).astype(np.int32)
    spans = _binary(pyarrow, None, offsets, pyarrow.py_buffer(data[origin : int(bounds[-1])]))
    return spans.take(pyarrow.array(order)).buffers()[2]


def _find_breaks(starts: Int64s, lengths: Int64s) -> Int64s:
    """The first entry of each run of entries that lie back to back."""
    if not len(starts):
        return np.empty(0, np.int64)
    inner = np.flatnonzero(starts[1:] != starts[:-1] + lengths[:-1]) + 1
    return np.concatenate([np.zeros(1, np.int64), inner])
