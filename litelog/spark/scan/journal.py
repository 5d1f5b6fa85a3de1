"""Reads the fragments of a Gazette journal in Spark: a task reads whole fragments, with every check of their names."""

from __future__ import annotations

import threading
from dataclasses import field
from typing import TYPE_CHECKING, Any

from litelog.dataclass import dataclass
from litelog.errors import ConfigError
from litelog.fragments.cover import find_cover, find_gaps, list_fragments
from litelog.fragments.reader import JournalGapError, read_span
from litelog.spark.options import Mode
from litelog.spark.scan.schema import RECORD, arrow_schema, log_columns
from litelog.spark.scan.task import open_client

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from litelog.fragments.cover import Span
    from litelog.spark.options import ReadOptions
    from litelog.spark.scan.schema import Column

GAZETTE = "gazette"
"""The option ``format`` of such a read."""


@dataclass(frozen=True, slots=True)
class JournalPartition:
    """The part that one task reads. The repr leaves out the URL, which may hold a secret."""

    url: str = field(repr=False)
    store: Mapping[str, str] = field(repr=False)
    spans: tuple[Span, ...]
    first: int
    """The first offset that is wanted."""
    stop: int | None


def is_journal(options: ReadOptions) -> bool:
    """Whether the options name a journal."""
    return options.format == GAZETTE


def journal_columns(options: ReadOptions) -> tuple[Column, ...]:
    """The columns of a journal. Makes no request. Raises ConfigError for an option that a journal does not have."""
    refused = {
        "several paths": options.has_several,
        "generation": options.generation is not None,
        "pattern": options.pattern is not None,
        "includeMetadata": options.include_metadata,
        "isolation": options.committed,
        "bounds by time": options.range.has_times,
        "bounds for single logs": bool(options.by_log.values),
        "mode": options.mode is not Mode.FAILFAST,
    }
    for what, given in refused.items():
        if given:
            raise ConfigError(f"format={GAZETTE}: the fragments of a journal are read without {what}")
    return log_columns(options, has_timestamps=False, has_generations=False)


def require_journal_columns(columns: Sequence[Column]) -> None:
    """Raise ConfigError for a column that only a replica has."""
    for column in columns:
        if column.name not in RECORD:
            raise ConfigError(f"format={GAZETTE}: a journal has no column {column.title!r}, only {', '.join(RECORD)}")


def plan_journal(options: ReadOptions) -> list[JournalPartition]:
    """The tasks of a read: neighbouring fragments of up to ``maxPartitionBytes``, or a single larger fragment.

    Costs a listing. Raises NothingToRestoreError without fragments, and JournalGapError for a gap if
    ``failOnDataLoss``.
    """
    journal_columns(options)
    (url,) = options.paths
    store = open_client(url, options.store, threading.Event()).store
    first, stop = options.range.first or 0, options.range.stop
    cover = [span for span in find_cover(list_fragments(store), stop=stop) if span.stop > first]
    asked = options.range.start
    gaps = find_gaps(cover)
    if asked is not None and cover and cover[0].start > asked:
        gaps.insert(0, (asked, cover[0].start))
    if gaps and options.fail_on_data_loss:
        raise JournalGapError(store.url, *gaps[0])
    return deal_spans(cover, options, first, stop)


def deal_spans(cover: Sequence[Span], options: ReadOptions, first: int, stop: int | None) -> list[JournalPartition]:
    """The tasks that read the records from ``first`` to ``stop`` in these spans."""
    (url,) = options.paths
    return [JournalPartition(url, options.store, tuple(part), first, stop) for part in _deal(cover, options)]


def _deal(cover: Sequence[Span], options: ReadOptions) -> list[list[Span]]:
    """The spans in tasks: about equal ones if ``numPartitions`` says how many, otherwise up to the size of a task."""
    total = sum(span.stop - span.start for span in cover)
    parts: list[list[Span]] = []
    done, room, last = 0, 0, -1
    for span in cover:
        size = span.stop - span.start
        number = done * options.num_partitions // total if options.num_partitions else last + (size > room)
        if number != last:
            parts.append([])
            room, last = options.max_partition_bytes, number
        parts[-1].append(span)
        done, room = done + size, room - size
    return parts


def read_journal(partition: JournalPartition, columns: Sequence[Column]) -> Iterator[Any]:
    """Yield the records of a partition as pyarrow.RecordBatches of ``arrow_schema(columns)``.

    Raises CorruptionError for a damaged fragment, and StoreError.
    """
    import pyarrow  # noqa: PLC0415  # an extra

    schema = arrow_schema(columns)
    store = open_client(partition.url, partition.store, threading.Event()).store
    names = [column.name for column in columns]
    for span in partition.spans:
        for piece in read_span(store, span, lines=True):
            found = piece.slice(piece.find(partition.first), len(piece))
            if partition.stop is not None:
                found = found.slice(0, found.find(partition.stop))
            if len(found):
                batch = found.to_arrow(names)
                yield pyarrow.RecordBatch.from_arrays([batch.column(name) for name in names], schema=schema)
