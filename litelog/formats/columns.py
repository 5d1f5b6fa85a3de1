"""Decoded records as columns that point into one buffer, and their conversion to Arrow.

No loop runs per record until a caller asks for records. pyarrow is optional: it is imported on first use.
"""

from __future__ import annotations

from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from litelog.dataclass import dataclass
from litelog.errors import ConfigError
from litelog.formats.extra_columns import NO_COLUMNS
from litelog.installation import install_command
from litelog.native import walks
from litelog.units import EPOCH

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    import numpy.typing as npt
    import pyarrow

    from litelog.formats.extra_columns import ColumnType, ExtraColumn

    Int64s = npt.NDArray[np.int64]

NAMES = ["sequence", "timestamp", "key", "value"]
"""The columns that every log has. Those of ``Columns.extra`` follow them."""

MAX_ARROW_BYTES = (1 << 31) - 1  # offsets of Arrow's binary type are int32
MOST_SHARED_NULLS = 1 << 16  # they take 0.5 MiB
LONG_RUN_BYTES = 16 << 10
"""From this mean length in bytes, runs are copied one by one, and are worth a batch of their own; measured."""


def copy_batch(columns: Columns, names: Sequence[str] = NAMES) -> pyarrow.RecordBatch:
    """One pyarrow.RecordBatch that does not point into ``columns.data``. ``names`` are the columns, in NAMES' order."""
    pyarrow = load_pyarrow()
    arrays = _fixed_columns(pyarrow, columns)
    if "key" in names:
        arrays["key"] = _nulls(pyarrow.binary(), len(columns))
        key = _key_lengths(columns)
        if key is not None and columns.key_starts is not None:
            arrays["key"] = _copy_keys(pyarrow, columns, key)
    if "value" in names:
        starts, lengths, nulls = columns.value_starts, columns.value_lengths, None
        if columns.value_nulls is not None:
            nulls = -columns.value_nulls.astype(np.int64)
        arrays["value"] = _copy(pyarrow, columns.data, columns.runs, starts, lengths, nulls)
    return _batch(pyarrow, arrays, columns, names)


def stream_arrow(batches: Iterator[Columns], extra: Mapping[str, ColumnType] = NO_COLUMNS) -> pyarrow.RecordBatchReader:
    """All ``batches`` as an Arrow stream. Each of its batches owns its memory.
    Raises ConfigError if pyarrow is missing.

    ``extra``: the format's columns that follow the others.
    """
    loaded = load_pyarrow()
    binary = loaded.binary()
    types = (loaded.int64(), loaded.timestamp("us", tz="UTC"), binary, binary)
    more = [(name, kind.arrow()) for name, kind in extra.items()]
    schema = loaded.schema([*zip(NAMES, types, strict=True), *more])
    return loaded.RecordBatchReader.from_batches(schema, (columns.to_arrow(schema.names) for columns in batches))


def borrow_batches(columns: Columns, names: Sequence[str] = NAMES) -> Iterator[pyarrow.RecordBatch]:
    """pyarrow.RecordBatches that point into ``columns.data``, one per run; a single copy if runs are short or keyed.
    Keys that do not lie back to back are copied.

    ``names`` as in ``copy_batch``: a column that is left out costs nothing.
    """
    pyarrow = load_pyarrow()
    if not len(columns):
        return
    starts, lengths = columns.value_starts, columns.value_lengths
    end = int(starts[-1] + lengths[-1])
    most = max(0, end - int(starts[0])) // LONG_RUN_BYTES + 2  # with more runs, their mean is short
    breaks = _find_breaks(starts, lengths, most) if columns.runs is None else columns.runs
    one = len(breaks) == 1 and end <= MAX_ARROW_BYTES and columns.value_nulls is None
    if one:
        yield _borrow_run(pyarrow, columns, names)
        return
    if (
        ("key" in names and _key_lengths(columns) is not None)
        or "value" not in names
        or end - int(starts[0]) < LONG_RUN_BYTES * len(breaks)
        or end > MAX_ARROW_BYTES
        or columns.value_nulls is not None
    ):
        yield copy_batch(columns, names)
        return
    # An array of offsets holds a run's end where the next run's start would be. So even and odd runs have their own.
    stops = np.empty_like(breaks)
    stops[:-1] = breaks[1:]
    stops[-1] = len(columns)
    even = np.empty(len(columns) + 1, np.int32)
    even[:-1] = starts
    even[-1] = end
    odd = even.copy()
    ends = starts[stops - 1] + lengths[stops - 1]
    even[stops[::2]], odd[stops[1::2]] = ends[::2], ends[1::2]
    others = {**_fixed_columns(pyarrow, columns), "key": _nulls(pyarrow.binary(), len(columns))}
    data = pyarrow.py_buffer(columns.data)
    batches = [
        _batch(pyarrow, {**others, "value": _binary(pyarrow, None, offsets, data)}, columns, names)
        for offsets in (even, odd)
    ]
    for run, (first, stop) in enumerate(zip(breaks.tolist(), stops.tolist(), strict=True)):
        yield batches[run & 1].slice(first, stop - first)


def _borrow_run(pyarrow: Any, columns: Columns, names: Sequence[str]) -> Any:
    """The batch of one run of values. Keys that do not lie back to back are copied."""
    data = pyarrow.py_buffer(columns.data)
    arrays = _fixed_columns(pyarrow, columns)
    if "value" in names:
        arrays["value"] = _binary(pyarrow, None, _ends(columns.value_starts, columns.value_lengths), data)
    if "key" in names:
        arrays["key"] = _nulls(pyarrow.binary(), len(columns))
        key = _key_lengths(columns)
        if key is not None and columns.key_starts is not None:
            sizes, valid = key, None
            if int(key.min()) < 0:
                sizes = np.maximum(key, 0)
                valid = pyarrow.py_buffer(np.packbits(key >= 0, bitorder="little"))
            if len(_find_breaks(columns.key_starts, sizes, 2)) == 1:
                arrays["key"] = _binary(pyarrow, valid, _ends(columns.key_starts, sizes), data)
            else:
                arrays["key"] = _copy_keys(pyarrow, columns, key)
    return _batch(pyarrow, arrays, columns, names)


def _ends(starts: Int64s, lengths: Int64s) -> npt.NDArray[np.int32]:
    """The offsets of entries that lie back to back: where each starts, and where the last one ends."""
    offsets = np.empty(len(starts) + 1, np.int32)
    offsets[:-1] = starts
    offsets[-1] = starts[-1] + lengths[-1]
    return offsets


def load_pyarrow() -> Any:
    """The module pyarrow. Raises ConfigError if it is not installed."""
    try:
        import pyarrow  # noqa: PLC0415  # an extra that only Arrow batches need
    except ImportError as error:
        raise ConfigError(f"Arrow record batches need pyarrow; run: {install_command('arrow')}") from error
    return pyarrow


def _key_lengths(columns: Columns) -> Int64s | None:
    lengths = columns.key_lengths
    return lengths if lengths is not None and len(lengths) and int(lengths.max()) >= 0 else None


def _batch(pyarrow: Any, arrays: Mapping[str, Any], columns: Columns, names: Sequence[str]) -> Any:
    """The batch of the arrays and extra columns that are in ``names``: first those of NAMES, in their order."""
    wanted = [name for name in NAMES if name in names]
    found = [arrays[name] for name in wanted]
    if columns.extra:
        more = [name for name in columns.extra if name in names]
        wanted += more
        found += [columns.extra[name].to_arrow() for name in more]
    return pyarrow.RecordBatch.from_arrays(found, names=wanted)


def _fixed_columns(pyarrow: Any, columns: Columns) -> dict[str, Any]:
    """The arrays of sequences and timestamps."""
    timestamp, count, buffer = pyarrow.timestamp("us", tz="UTC"), len(columns), pyarrow.py_buffer
    sequences = pyarrow.Array.from_buffers(pyarrow.int64(), count, [None, buffer(columns.sequences)], null_count=0)
    if columns.timestamps is None:
        return {"sequence": sequences, "timestamp": _nulls(timestamp, count)}
    stamps = pyarrow.Array.from_buffers(timestamp, count, [None, buffer(columns.timestamps)], null_count=0)
    return {"sequence": sequences, "timestamp": stamps}


@lru_cache(maxsize=4)
def _every_null(kind: Any, count: int) -> Any:
    return load_pyarrow().nulls(count, kind)


def _nulls(kind: Any, count: int) -> Any:
    """As many nulls of a type: a part of an array that is made once, up to a size."""
    most = MOST_SHARED_NULLS
    return _every_null(kind, most)[:count] if count <= most else load_pyarrow().nulls(count, kind)


def _binary(pyarrow: Any, valid: Any, offsets: npt.NDArray[np.int32], data: Any) -> Any:
    buffers = [valid, pyarrow.py_buffer(offsets), data]
    return pyarrow.Array.from_buffers(pyarrow.binary(), len(offsets) - 1, buffers)


def _copy_keys(pyarrow: Any, columns: Columns, lengths: Int64s) -> Any:
    """A binary array of the keys."""
    assert columns.key_starts is not None
    return _copy(pyarrow, columns.data, None, columns.key_starts, np.maximum(lengths, 0), lengths)


def _copy(
    pyarrow: Any,
    data: memoryview,
    runs: Int64s | None,
    starts: Int64s,
    lengths: Int64s,
    nulls: Int64s | None = None,
) -> Any:
    """A binary array of the entries at ``starts``. An entry is null if its ``nulls`` is negative. ``runs``: the first
    of each run of entries that lie back to back, if that is known."""
    total = int(lengths.sum())
    if total > MAX_ARROW_BYTES:
        raise ValueError(f"{total} bytes of values do not fit into one record batch; slice the columns")
    offsets = np.zeros(len(starts) + 1, np.int32)
    valid = None if nulls is None else pyarrow.py_buffer(np.packbits(nulls >= 0, bitorder="little"))
    if not total:
        return _binary(pyarrow, valid, offsets, pyarrow.py_buffer(b""))
    buffer = pyarrow.allocate_buffer(total)
    if walks.gather(data, starts, lengths, offsets, buffer):
        return _binary(pyarrow, valid, offsets, buffer)
    np.cumsum(lengths, out=offsets[1:])
    runs = _find_breaks(starts, lengths, len(starts)) if runs is None else runs
    last = np.append(runs[1:], len(starts)) - 1
    return _binary(pyarrow, valid, offsets, _compact(pyarrow, data, starts[runs], starts[last] + lengths[last], total))


def _compact(pyarrow: Any, data: memoryview, begins: Int64s, ends: Int64s, total: int) -> Any:
    """A buffer that Arrow owns, with the runs from ``begins`` to ``ends`` back to back."""
    if total >= LONG_RUN_BYTES * len(begins):
        array = np.frombuffer(data, np.uint8)
        buffer = pyarrow.allocate_buffer(total)
        runs = [array[a:b] for a, b in zip(begins.tolist(), ends.tolist(), strict=True)]
        np.concatenate(runs, out=np.frombuffer(buffer, np.uint8))
        return buffer
    # Runs and the gaps between them are an array of 2n - 1 entries without a copy; Arrow takes every second one.
    bounds = np.stack([begins, ends], axis=1).ravel()
    origin = int(bounds[0])
    data = data[origin : int(bounds[-1])]
    if len(data) > MAX_ARROW_BYTES:
        raise ValueError(f"{len(data)} bytes do not fit into one record batch; slice the columns")
    spans = _binary(pyarrow, None, (bounds - origin).astype(np.int32), pyarrow.py_buffer(data))
    return spans.take(pyarrow.array(np.arange(0, len(spans), 2))).buffers()[2]


def _find_breaks(starts: Int64s, lengths: Int64s, most: int) -> Int64s:
    """The first entry of each run of entries that lie back to back: of ``most`` runs at least, if there are as many."""
    if not len(starts):
        return np.empty(0, np.int64)
    found = walks.find_breaks(starts, lengths, most)
    if found is not None:
        return found
    inner = np.flatnonzero(starts[1:] != starts[:-1] + lengths[:-1]) + 1
    return np.concatenate([np.zeros(1, np.int64), inner])


RECORDS_AT_A_TIME = 4096  # converted to Python numbers at once, so that iteration takes little memory


class Record(NamedTuple):
    """One entry of a log. ``timestamp`` is in microseconds since 1970; None if the format has none."""

    sequence: int
    timestamp: int | None
    key: bytes | None
    value: bytes
    """Empty for a null."""
    extra: Mapping[str, object] | None = None
    """The format's own columns under their names; None if it has none."""
    is_null: bool = False
    """Whether the value is null, which it is only in some formats."""

    @property
    def time(self) -> datetime | None:
        """``timestamp`` as a datetime in UTC; None if the format has none."""
        return None if self.timestamp is None else EPOCH + timedelta(microseconds=self.timestamp)


@dataclass(frozen=True, slots=True)
class Columns:
    """n records of a log, as int64 arrays of length n that point into ``data``. Bytes are not copied."""

    data: memoryview
    sequences: npt.NDArray[np.int64]
    """Strictly rising."""
    timestamps: npt.NDArray[np.int64] | None
    """Microseconds since 1970; None if the format has none."""
    key_starts: npt.NDArray[np.int64] | None
    """None if no record has a key."""
    key_lengths: npt.NDArray[np.int64] | None
    """-1 for a record without a key."""
    value_starts: npt.NDArray[np.int64]
    value_lengths: npt.NDArray[np.int64]
    runs: npt.NDArray[np.int64] | None = None
    """The first record of each run whose values lie back to back in ``data``; None if that is not known."""
    value_nulls: npt.NDArray[np.bool_] | None = None
    """Which values are null; their length is 0. None if no value is. Only with ``extra``."""
    extra: Mapping[str, ExtraColumn] | None = None
    """The format's own columns under their names; None if it has none."""

    commit_starts: npt.NDArray[np.int64] | None = None
    """The place of each record in the decoded piece, its value or at least its commit, if ``data`` is another buffer,
    of copied or decompressed bytes. None if ``data`` is that piece."""

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def places(self) -> npt.NDArray[np.int64]:
        """The place of each record in the decoded piece: its value, or at least its commit."""
        return self.value_starts if self.commit_starts is None else self.commit_starts

    @classmethod
    def empty(cls, data: memoryview, *, has_timestamps: bool) -> Columns:
        """Columns over ``data`` without records. ``has_timestamps``: as those of other records of the log."""
        none = np.empty(0, np.int64)
        return cls(data, none, none if has_timestamps else None, None, None, none, none)

    def slice(self, start: int, stop: int) -> Columns:
        """Return the records with the numbers [start, stop), counted from 0. They share the bytes."""
        if start <= 0 and stop >= len(self):
            return self
        part = slice(start, stop)
        return Columns(
            self.data,
            self.sequences[part],
            None if self.timestamps is None else self.timestamps[part],
            None if self.key_starts is None else self.key_starts[part],
            None if self.key_lengths is None else self.key_lengths[part],
            self.value_starts[part],
            self.value_lengths[part],
            value_nulls=None if self.value_nulls is None else self.value_nulls[part],
            extra=None if self.extra is None else {name: each.slice(start, stop) for name, each in self.extra.items()},
            commit_starts=None if self.commit_starts is None else self.commit_starts[part],
        )

    def take(self, chosen: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> Columns:
        """The records of these numbers, which ascend, or those that are marked."""
        numbers: Int64s = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen.astype(np.int64)

        def of(column: npt.NDArray[np.int64] | None) -> npt.NDArray[np.int64] | None:
            return None if column is None else column[numbers]

        return Columns(
            self.data,
            self.sequences[numbers],
            of(self.timestamps),
            of(self.key_starts),
            of(self.key_lengths),
            self.value_starts[numbers],
            self.value_lengths[numbers],
            value_nulls=None if self.value_nulls is None else self.value_nulls[numbers],
            extra=None if self.extra is None else {name: each.take(numbers) for name, each in self.extra.items()},
            commit_starts=of(self.commit_starts),
        )

    def find(self, sequence: int) -> int:
        """The number of records before the first one with this sequence or a higher one."""
        return int(np.searchsorted(self.sequences, sequence))

    def find_time(self, time: int) -> int:
        """The number of records before the first one with this timestamp or a later one, in microseconds since 1970:
        all of them if there is none. Only for a format with timestamps. They may be in any order."""
        late = np.asarray(self.timestamps) >= time
        return int(late.argmax()) if late.any() else len(self)

    def records(self) -> Iterator[Record]:
        """Yield the records one by one, with their bytes copied: for people and small logs."""
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
            if part.extra is None:
                yield from map(Record, part.sequences.tolist(), stamps, keys, values)
            else:
                names, lists = list(part.extra), [each.to_list() for each in part.extra.values()]
                more = (dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True))
                nulls = [False] * count if part.value_nulls is None else part.value_nulls.tolist()
                yield from map(Record, part.sequences.tolist(), stamps, keys, values, more, nulls)

    def to_arrow(self, names: Sequence[str] = NAMES) -> pyarrow.RecordBatch:
        """Return all records as one pyarrow.RecordBatch with its own memory, so that ``data`` may be reused.

        Args:
            names: The columns to include. Their order is always: sequence int64, timestamp timestamp[us, UTC] (null
                if the format has none), key binary, value binary, and then the format's own.

        Raises:
            ConfigError: pyarrow is not installed.
            ValueError: The values are 2 GiB or more.
        """
        return copy_batch(self, names)

    def to_arrow_batches(self, names: Sequence[str] = NAMES) -> Iterator[pyarrow.RecordBatch]:
        """Yield the same records as pyarrow.RecordBatches without copying values: ``data`` must not change.

        Yields one batch for each run of values that lie back to back, if these runs are long; otherwise one batch, as
        ``to_arrow`` does. Raises as ``to_arrow``.
        """
        return borrow_batches(self, names)
