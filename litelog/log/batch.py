"""The records of one append, as a batch that is cut into commits and encoded. Takes lists of bytes or Arrow columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from litelog.dataclass import dataclass
from litelog.formats import MAX_COMMIT_BYTES
from litelog.formats.columns import Columns, load_pyarrow
from litelog.formats.litelog.encoding import MAX_RECORDS, MAX_TIMESTAMP, commit_bytes, encode_columns, encode_commit
from litelog.units import Time, to_microseconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]


class ArrowArray(Protocol):
    """An array or record batch of any Arrow library."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Export it through Arrow's C data interface."""


class ArrowStream(Protocol):
    """Several arrays or record batches: a table or a data frame of any Arrow library."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export it through Arrow's C stream interface."""


Values = bytes | bytearray | memoryview | Sequence[bytes] | Columns | ArrowArray | ArrowStream
Keys = bytes | Iterable[bytes | None] | ArrowArray | ArrowStream
Timestamps = Time | Iterable[Time] | ArrowArray | ArrowStream


class Batch(Protocol):
    """n records, in the order of their sequences."""

    def __len__(self) -> int: ...

    def cut(self) -> list[tuple[int, int]]:
        """Return (start, stop) of each commit that the records need. Raises ValueError if a record fits into none."""

    def highest(self, start: int, stop: int, commit_time: int) -> int:
        """Return the highest timestamp of records [start, stop), in microseconds since 1970."""

    def encode(self, start: int, stop: int, first: int, epoch: int, commit_time: int) -> bytearray:
        """Encode records [start, stop) as one commit."""


def batch_of(values: Any, keys: Any, timestamps: Any) -> Batch:
    """Return a batch of ``values`` with their keys and timestamps, as LogWriter.append takes them.

    Raises TypeError and ValueError for arguments that are not records.
    """
    timestamps = to_microseconds(timestamps) if isinstance(timestamps, datetime) else timestamps
    if isinstance(values, (bytes, bytearray, memoryview)):
        stamps = timestamps if timestamps is None or isinstance(timestamps, int) else _listed(timestamps)
        if isinstance(stamps, list):
            _check_length("timestamps", stamps, [values])
        return BytesBatch([bytes(values)], None if keys is None else _single_key(keys), stamps)
    if isinstance(values, Columns):
        values = values.to_arrow()
    if hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__"):
        return _arrow_batch(values, keys, timestamps)
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"values are bytes, a list of bytes or Arrow columns, not {type(values).__name__}")
    if timestamps is not None and not isinstance(timestamps, int):
        timestamps = _whole(timestamps).tolist() if isinstance(timestamps, np.ndarray) else _listed(timestamps)
        _check_length("timestamps", timestamps, values)
    if keys is not None:
        keys = keys if isinstance(keys, (list, tuple)) else list(keys)
        _check_length("keys", keys, values)
    return BytesBatch(values, keys, timestamps)


def encode_batch(batch: Batch, first: int, epoch: int, commit_time: int) -> list[tuple[int, int, bytearray]]:
    """Return (start, stop, bytes) of each commit of a batch whose first sequence is ``first``.

    Raises ValueError as ``Batch.cut`` and ``Batch.encode`` do.
    """
    count = len(batch)
    if not count:
        return []
    if count <= MAX_RECORDS:
        try:  # encoding adds up the lengths anyway; adding them up here as well would cost a seventh of an append
            return [(0, count, batch.encode(0, count, first, epoch, commit_time))]
        except ValueError:
            if len(batch.cut()) == 1:
                raise
    return [(start, stop, batch.encode(start, stop, first + start, epoch, commit_time)) for start, stop in batch.cut()]


@dataclass(frozen=True, slots=True)
class BytesBatch:
    """Python bytes. No Python loop runs over them if they fit into one commit."""

    values: Sequence[bytes]
    keys: Sequence[bytes | None] | None
    timestamps: int | list[int] | None
    """Microseconds since 1970: one for all records, or one for each; None: the commit's time."""

    def __len__(self) -> int:
        return len(self.values)

    def cut(self) -> list[tuple[int, int]]:
        count = len(self.values)
        data = sum(map(len, self.values))
        if self.keys is not None:
            data += sum(map(len, filter(None, self.keys)))
        if _fits(count, data):
            return [(0, count)]
        sizes = np.fromiter(map(len, self.values), np.int64, count)
        if self.keys is not None:
            sizes += np.fromiter((len(key) if key else 0 for key in self.keys), np.int64, count)
        return list(_cut(sizes))

    def highest(self, start: int, stop: int, commit_time: int) -> int:
        if self.timestamps is None:
            return commit_time
        return self.timestamps if isinstance(self.timestamps, int) else max(self.timestamps[start:stop])

    def encode(self, start: int, stop: int, first: int, epoch: int, commit_time: int) -> bytearray:
        whole = stop - start == len(self.values)
        stamps: int | Sequence[int] = commit_time
        if self.timestamps is not None:
            stamps = self.timestamps if isinstance(self.timestamps, int) else self.timestamps[start:stop]
        keys = self.keys if self.keys is None or whole else self.keys[start:stop]
        return encode_commit(first, epoch, stamps, self.values if whole else self.values[start:stop], keys)


@dataclass(frozen=True, slots=True)
class ColumnBatch:
    """Arrow columns: n + 1 rising offsets into each buffer of bytes. No step runs record by record."""

    value_places: Int64s
    value_data: memoryview
    key_places: Int64s | None
    key_data: memoryview
    key_nulls: npt.NDArray[np.bool_] | None
    timestamps: int | Int64s | None
    """Microseconds since 1970: one for all records, or one for each; None: the commit's time."""

    def __len__(self) -> int:
        return len(self.value_places) - 1

    def cut(self) -> list[tuple[int, int]]:
        data = int(self.value_places[-1] - self.value_places[0])
        if self.key_places is not None:
            data += int(self.key_places[-1] - self.key_places[0])
        if _fits(len(self), data):
            return [(0, len(self))]
        sizes = np.diff(self.value_places)
        return list(_cut(sizes if self.key_places is None else sizes + np.diff(self.key_places)))

    def highest(self, start: int, stop: int, commit_time: int) -> int:
        if self.timestamps is None:
            return commit_time
        return self.timestamps if isinstance(self.timestamps, int) else int(self.timestamps[start:stop].max())

    def encode(self, start: int, stop: int, first: int, epoch: int, commit_time: int) -> bytearray:
        stamps: int | Int64s = commit_time
        if self.timestamps is not None:
            stamps = self.timestamps if isinstance(self.timestamps, int) else self.timestamps[start:stop]
        values = self.value_places[start : stop + 1]
        key_lengths, key_data = None, self.key_data[:0]
        if self.key_places is not None and self.key_nulls is not None:
            keys = self.key_places[start : stop + 1]
            key_lengths = np.where(self.key_nulls[start:stop], -1, np.diff(keys))
            key_data = self.key_data[int(keys[0]) : int(keys[-1])]
        value_data = self.value_data[int(values[0]) : int(values[-1])]
        return encode_columns(first, epoch, stamps, np.diff(values), value_data, key_lengths, key_data)


def _fits(count: int, data_bytes: int) -> bool:
    """Whether one commit holds ``count`` records with ``data_bytes`` bytes, even if each has a key and a timestamp."""
    return count <= MAX_RECORDS and commit_bytes(count, data_bytes, keyed=True, stamped=True) <= MAX_COMMIT_BYTES


def _cut(sizes: Int64s) -> Iterator[tuple[int, int]]:
    """Cut records with ``sizes`` bytes of data into commits, each as large as possible."""
    fixed = commit_bytes(1, 0, keyed=True, stamped=True)  # the most that a record needs in addition to its data
    if len(sizes) and commit_bytes(1, int(sizes.max()), keyed=True, stamped=True) > MAX_COMMIT_BYTES:
        record = int(sizes.argmax())
        raise ValueError(f"record {record} has {int(sizes[record])} bytes: more than a commit of {MAX_COMMIT_BYTES}")
    ends = np.cumsum(sizes + (fixed - commit_bytes(0, 0) + 8))
    room = MAX_COMMIT_BYTES - fixed
    start, passed = 0, 0
    while start < len(sizes):
        stop = int(np.searchsorted(ends, passed + room, side="right"))
        stop = max(start + 1, min(stop, start + MAX_RECORDS))
        yield start, stop
        start, passed = stop, int(ends[stop - 1])


def _single_key(keys: Any) -> list[bytes | None]:
    if isinstance(keys, (bytes, bytearray, memoryview)):
        return [bytes(keys)]
    if not isinstance(keys, (list, tuple)) or len(keys) != 1:
        raise ValueError("one value takes one key")
    return list(keys)


def _listed(timestamps: Iterable[Any]) -> list[Any]:
    """One timestamp for each record. A datetime becomes microseconds. The encoder refuses all that is not a time."""
    return [to_microseconds(time) if isinstance(time, datetime) else time for time in timestamps]


def _check_length(what: str, column: Any, values: Any) -> None:
    if len(column) != len(values):
        raise ValueError(f"{len(column)} {what} for {len(values)} values")


def _arrow_batch(values: Any, keys: Any, timestamps: Any) -> ColumnBatch:
    pa = load_pyarrow()
    values = _imported(pa, values)
    if isinstance(values, (pa.RecordBatch, pa.Table)):
        names = values.schema.names
        keys = values.column("key") if keys is None and "key" in names else keys
        timestamps = values.column("timestamp") if timestamps is None and "timestamp" in names else timestamps
        if "value" not in names:
            raise ValueError("a batch of records needs a column named value")
        values = values.column("value")
    places, data, nulls = _bytes_column(pa, values)
    if nulls is not None and nulls.any():
        raise ValueError("a value may not be null (it may be empty)")
    key_places, key_data, key_nulls = None, memoryview(b""), None
    if keys is not None:
        key_places, key_data, key_nulls = _bytes_column(pa, keys)
        _check_length("keys", key_places, places)
        if key_nulls is not None and key_nulls.all():
            key_places, key_data, key_nulls = None, memoryview(b""), None
        elif key_nulls is None:
            key_nulls = np.zeros(len(key_places) - 1, np.bool_)
    stamps = _timestamps(pa, timestamps)
    if stamps is not None and not isinstance(stamps, int):
        _check_length("timestamps", stamps, places[1:])
    return ColumnBatch(places, data, key_places, key_data, key_nulls, stamps)


def _imported(pa: Any, values: Any) -> Any:
    """``values`` of any Arrow library as pyarrow's own, without a copy."""
    if isinstance(values, (pa.RecordBatch, pa.Table, pa.Array, pa.ChunkedArray)):
        return values
    array = pa.chunked_array(values) if hasattr(values, "__arrow_c_stream__") else pa.array(values)
    if not pa.types.is_struct(array.type):
        return array
    return pa.Table.from_struct_array(array)  # the rows of a table or a data frame


def _bytes_column(pa: Any, column: Any) -> tuple[Int64s, memoryview, npt.NDArray[np.bool_] | None]:
    """Return (n + 1 offsets, bytes, mask of nulls) of a binary or string column. Null entries hold no bytes."""
    array = column if isinstance(column, (pa.Array, pa.ChunkedArray)) else pa.array(column, pa.large_binary())
    try:
        array = array.cast(pa.large_binary())
    except pa.ArrowException as error:
        raise TypeError(f"not a column of bytes: {array.type}") from error
    nulls = None
    if array.null_count:
        nulls = np.asarray(array.is_null())
        array = array.fill_null(b"")
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    _, offsets, data = array.buffers()
    if not len(array):
        return np.zeros(1, np.int64), memoryview(b""), nulls
    places = np.frombuffer(offsets, np.int64, len(array) + 1, array.offset * 8)
    return places, memoryview(b"" if data is None else data).cast("B"), nulls


def _timestamps(pa: Any, timestamps: Any) -> int | Int64s | None:
    if timestamps is None or isinstance(timestamps, int):
        return timestamps
    if isinstance(timestamps, pa.ChunkedArray):
        timestamps = timestamps.combine_chunks()
    if isinstance(timestamps, pa.Array):
        if timestamps.null_count == len(timestamps):
            return None
        if timestamps.null_count:
            raise ValueError("give timestamps for all records, or for none")
        if pa.types.is_timestamp(timestamps.type):
            timestamps = timestamps.cast(pa.timestamp("us", tz=timestamps.type.tz)).cast(pa.int64())
        elif not pa.types.is_integer(timestamps.type):  # NumPy takes days for integers, too
            raise TypeError(f"timestamps are microseconds, not {timestamps.type}")
        timestamps = timestamps.to_numpy(zero_copy_only=False)
    if not isinstance(timestamps, np.ndarray):
        timestamps = _listed(timestamps)
    stamps = _whole(np.asarray(timestamps))
    if stamps.size and int(stamps.max()) > MAX_TIMESTAMP:
        raise ValueError(f"timestamp {int(stamps.max())} is out of range")
    return stamps.astype(np.int64, copy=False)


def _whole(stamps: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if stamps.size and stamps.dtype.kind not in "iu":  # NumPy would turn floats, days and nanoseconds into integers
        raise TypeError(f"timestamps are whole microseconds, of 64 bits, not {stamps.dtype}")
    return stamps
