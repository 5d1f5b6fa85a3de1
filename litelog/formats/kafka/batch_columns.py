"""Kafka's batches as columns: decompressed, and with what the batch says of all its records."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from litelog.dataclass import dataclass
from litelog.errors import CorruptCommitError
from litelog.formats.columns import Columns
from litelog.formats.kafka.batch_header import (
    APPEND_TIME,
    CODEC_BITS,
    CONTROL,
    HEADER_BYTES,
    MAX_MILLISECONDS,
    NO_PRODUCER,
    TRANSACTIONAL,
)
from litelog.formats.kafka.committed import MARKER, NO_MARKER, OTHER_MARKER, PRODUCER
from litelog.formats.kafka.compression import MAX_BATCH_BYTES, MAX_RUN_BYTES, NONE, decompress
from litelog.formats.kafka.headers import HeadersColumn, find_headers
from litelog.formats.kafka.record_columns import find_records

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow

    from litelog.formats.extra_columns import ExtraColumn
    from litelog.formats.kafka.batch_header import RecordBatches
    from litelog.formats.kafka.batch_walk import BatchWalk
    from litelog.formats.kafka.record_columns import Records
    from litelog.native.batch_rows import TakenBatches

    Int64s = npt.NDArray[np.int64]

MARKER_KEY_BYTES = 4
_BROKEN_HEADERS = ("headers of a record", "some that fill the record", "others")


@dataclass(frozen=True, slots=True)
class BatchNumbers:
    """A column whose value is the same for all records of a batch."""

    values: npt.NDArray[np.int64] | npt.NDArray[np.int32]
    after: Int64s
    """The number of records up to the end of each batch."""
    chosen: range | Int64s
    """Which of all these records the column is for."""

    @classmethod
    def of_all(cls, values: npt.NDArray[np.int64] | npt.NDArray[np.int32], after: Int64s) -> BatchNumbers:
        """The column of all records."""
        return cls(values, after, range(int(after[-1]) if len(after) else 0))

    def slice(self, start: int, stop: int) -> BatchNumbers:
        return BatchNumbers(self.values, self.after, self.chosen[start:stop])

    def take(self, chosen: Int64s) -> BatchNumbers:
        before = self.chosen
        numbers = chosen + before.start if isinstance(before, range) else before[chosen]
        return BatchNumbers(self.values, self.after, numbers)

    def to_list(self) -> list[Any]:
        found: list[Any] = self._expand().tolist()
        return found

    def to_arrow(self) -> pyarrow.Array:
        import pyarrow  # noqa: PLC0415  # an extra

        return pyarrow.array(self._expand())

    def _expand(self) -> npt.NDArray[Any]:
        """The value of each record."""
        chosen, every = self.chosen, np.repeat(self.values, np.diff(self.after, prepend=0))
        return every[chosen.start : chosen.stop] if isinstance(chosen, range) else every[chosen]


@dataclass(frozen=True, slots=True)
class _Run:
    """The batches of a run that hold records, and where those lie in ``data``."""

    name: str
    data: memoryview
    batches: RecordBatches
    offsets: Int64s
    """Each batch's place in the log segment."""
    begins: Int64s
    ends: Int64s
    counts: Int64s
    starts: Int64s | None
    """The beginning of each batch in the decoded piece; None if ``data`` is that piece."""

    def refuse(self, number: int, what: str, expected: object, actual: object) -> CorruptCommitError:
        """The error that reports a batch as malformed."""
        return CorruptCommitError(self.name, int(self.offsets[number]), what, expected, actual)


def decode_batches(name: str, data: memoryview, offset: int, found: BatchWalk, *, markers: bool = False) -> Columns:
    """The records of the batches that ``walk`` found in ``data``. Control batches have none.

    ``markers``: records of control batches are records, too, and the columns MARKER and PRODUCER describe them.
    Raises CorruptCommitError if records are malformed, and ConfigError if they are compressed and a package is missing.
    """
    if (rows := found.rows) is not None and not markers and len(found) and rows.rows_after[len(found) - 1]:
        return _use_rows(name, data, offset, found, rows)
    batches = found.batches
    filled = batches.get("records") > 0
    if not markers:
        filled &= ~batches.have(CONTROL)
    if not filled.any():
        return _empty(data, markers=markers)
    run = _take_records(name, data, offset, batches if filled.all() else batches.take(filled))
    records, malformed = find_records(run.data, run.begins, run.ends, run.counts)
    if malformed:
        number = malformed[0]
        raise run.refuse(number, "records", f"{run.counts[number]} that fill the batch", "others")
    owners = np.repeat(np.arange(len(run.counts)), run.counts)
    headers, broken = find_headers(run.data, records.header_counts, records.header_starts, records.ends)
    if len(broken):
        raise run.refuse(int(owners[broken[0]]), *_BROKEN_HEADERS)
    columns = _make_columns(run, records, headers, owners)
    return _with_markers(run, columns) if markers else columns


def _use_rows(name: str, data: memoryview, offset: int, found: BatchWalk, rows: TakenBatches) -> Columns:
    """The columns of the rows that were taken in the same pass as the batches."""
    count = len(found)
    total = int(rows.rows_after[count - 1])
    sequences, times, value_starts, value_lengths, places, key_starts, key_lengths = rows.rows[:, :total]
    headers = HeadersColumn.empty(total)
    if rows.headed.size:
        numbers, *columns = rows.headed[:, rows.headed[0] < total]
        starts, ends, header_counts = (np.zeros(total, np.int64) for _ in columns)
        for column, values in zip((starts, ends, header_counts), columns, strict=True):
            column[numbers] = values
        headers, broken = find_headers(data, header_counts, starts, ends)
        if len(broken):
            batch = int(np.searchsorted(rows.rows_after, broken[0], side="right"))
            raise CorruptCommitError(name, offset + int(found.bounds[batch]), *_BROKEN_HEADERS)
    return Columns(
        data=rows.content,
        sequences=sequences,
        timestamps=times,
        key_starts=key_starts if rows.has_keys else None,
        key_lengths=key_lengths if rows.has_keys else None,
        value_starts=value_starts,
        value_lengths=np.maximum(value_lengths, 0) if rows.has_nulls else value_lengths,
        value_nulls=value_lengths < 0 if rows.has_nulls else None,
        runs=np.zeros(1, np.int64),
        extra=_extra_columns(headers, rows.attributes[:count], rows.producers[:count], rows.rows_after[:count]),
        commit_starts=places,
    )


def _extra_columns(
    headers: HeadersColumn, attributes: Int64s, producers: Int64s, after: Int64s
) -> dict[str, ExtraColumn]:
    """The format's own columns. ``after``: how many records there are up to the end of each batch."""
    return {
        "headers": headers,
        "timestampType": BatchNumbers.of_all((attributes & APPEND_TIME != 0).astype(np.int32), after),
        "producerId": BatchNumbers.of_all(producers, after),
    }


def _take_records(name: str, data: memoryview, offset: int, batches: RecordBatches) -> _Run:
    """The records of the batches in one buffer: as they lie in ``data``, or decompressed."""
    offsets = offset + batches.places
    begins, ends = batches.places + HEADER_BYTES, batches.ends
    starts, codecs = None, batches.get("attributes") & CODEC_BITS
    if codecs.any():
        starts = batches.places
        parts, left = list[memoryview | bytes](), MAX_RUN_BYTES
        for codec, place, begin, end in zip(*(each.tolist() for each in (codecs, offsets, begins, ends)), strict=True):
            part: memoryview | bytes = data[begin:end]
            if codec != NONE:
                part = decompress(name, place, codec, data[begin:end], min(left, MAX_BATCH_BYTES))
            left -= len(part)
            parts.append(part)
        sizes = np.array([len(part) for part in parts], np.int64)
        ends = np.cumsum(sizes)
        begins, data = ends - sizes, memoryview(b"".join(parts))
    return _Run(name, data, batches, offsets, begins, ends, batches.get("records"), starts)


def _make_columns(run: _Run, records: Records, headers: HeadersColumn, owners: Int64s) -> Columns:
    """The columns of all records. Raises CorruptCommitError if a record's offset is not its batch's."""
    batches = run.batches
    sequences = np.repeat(batches.get("base"), run.counts)
    sequences += records.offset_deltas
    _check_offsets(run, sequences, owners)
    appended = batches.have(APPEND_TIME)
    stamps = np.repeat(np.where(appended, batches.get("highest_time"), batches.get("base_time")), run.counts)
    stamps += np.where(appended[owners], 0, records.time_deltas) if appended.any() else records.time_deltas
    if int(stamps.min()) < -MAX_MILLISECONDS or int(stamps.max()) > MAX_MILLISECONDS:
        np.clip(stamps, -MAX_MILLISECONDS, MAX_MILLISECONDS, out=stamps)
    stamps *= 1000
    keyed = int(records.key_lengths.max()) >= 0
    has_nulls = int(records.value_lengths.min()) < 0
    nulls = records.value_lengths < 0 if has_nulls else None
    return Columns(
        data=run.data,
        sequences=sequences,
        timestamps=stamps,
        key_starts=records.key_starts if keyed else None,
        key_lengths=records.key_lengths if keyed else None,
        value_starts=records.value_starts,
        value_lengths=np.maximum(records.value_lengths, 0) if has_nulls else records.value_lengths,
        value_nulls=nulls,
        extra=_extra_columns(headers, batches.get("attributes"), batches.get("producer"), np.cumsum(run.counts)),
        commit_starts=None if run.starts is None else run.starts[owners],
    )


def _check_offsets(run: _Run, sequences: Int64s, owners: Int64s) -> None:
    """Check that the offsets rise, and that none is after its batch's last one."""
    lasts = run.batches.last
    if (sequences[1:] > sequences[:-1]).all() and (sequences[np.cumsum(run.counts) - 1] <= lasts).all():
        return
    wrong = sequences > lasts[owners]
    wrong[1:] |= sequences[1:] <= sequences[:-1]
    if wrong.any():
        number = int(wrong.argmax())
        batch = int(owners[number])
        expected = f"rising, up to {lasts[batch]}"
        raise run.refuse(batch, "offset of a record", expected, int(sequences[number]))


def _with_markers(run: _Run, columns: Columns) -> Columns:
    """The columns, and those that show transactions."""
    kinds, firsts = np.full(len(run.batches), NO_MARKER, np.int32), np.cumsum(run.counts) - run.counts
    for number in np.flatnonzero(run.batches.have(CONTROL)).tolist():
        kinds[number] = _read_marker(columns, int(firsts[number]))
    producers = np.where(run.batches.have(TRANSACTIONAL), run.batches.get("producer"), NO_PRODUCER)
    after = np.cumsum(run.counts)
    more = {MARKER: BatchNumbers.of_all(kinds, after), PRODUCER: BatchNumbers.of_all(producers, after)}
    return replace(columns, extra={**(columns.extra or {}), **more})


def _read_marker(columns: Columns, number: int) -> int:
    """The type of a control record: the second 16 bits of its key, after a version."""
    if columns.key_starts is None or columns.key_lengths is None or columns.key_lengths[number] < MARKER_KEY_BYTES:
        return OTHER_MARKER
    start = int(columns.key_starts[number])
    return int.from_bytes(columns.data[start + 2 : start + MARKER_KEY_BYTES], "big")


def _empty(data: memoryview, *, markers: bool) -> Columns:
    none = np.empty(0, np.int64)
    numbers = BatchNumbers.of_all(none, none)
    small = BatchNumbers.of_all(none.astype(np.int32), none)
    extra: dict[str, ExtraColumn] = {
        "headers": HeadersColumn.empty(0),
        "timestampType": small,
        "producerId": numbers,
    }
    if markers:
        extra |= {MARKER: small, PRODUCER: numbers}
    return Columns(data, none, none, None, None, none, none, extra=extra)
