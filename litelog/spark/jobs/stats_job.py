"""The job ``stats``: counts the records of a log. Tasks read it twice: first everything, then only the keys."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from litelog.dataclass import dataclass
from litelog.errors import ReplicaGapError
from litelog.formats.capabilities import is_divisible
from litelog.reading.wal_cursor import describe_sealed
from litelog.spark.jobs.options import require_records
from litelog.spark.jobs.progress import watching
from litelog.spark.jobs.ranges import find_held
from litelog.spark.options import format_options, parse_options, require_uncommitted
from litelog.spark.scan.packing import SealedItem, pack
from litelog.spark.scan.schema import log_columns
from litelog.spark.scan.task import open_log_format
from litelog.spark.spark_session import count_slots

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from litelog.spark.jobs.progress import Progress
    from litelog.spark.jobs.ranges import GenerationContent
    from litelog.spark.options import ReadOptions
    from litelog.spark.scan.packing import ReplicaItem

ATTEMPTS = 3
"""How often to list a replica again if listed objects were replaced meanwhile."""

MINUTE = 60_000_000
"""Microseconds: the smallest unit of rates."""

MAX_BUCKETS = 32
"""The most buckets of a report's rate; the width of a bucket follows from that."""

WIDTHS = (1, 5, 15, 60, 6 * 60, 24 * 60, 7 * 24 * 60)
"""Possible widths of buckets in minutes; beyond them, multiples of the last one."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """The records with timestamps in one interval."""

    start: int
    """Microseconds since 1970."""
    records: int
    bytes: int
    """Bytes of keys and values."""


@dataclass(frozen=True, slots=True)
class Stats:
    """Statistics of a log. Times are in microseconds since 1970; None without timestamps."""

    records: int
    bytes: int
    """Bytes of keys and values."""
    log_bytes: int
    """Uncompressed bytes of all data that may hold counted records, according to snapshots, names and headers."""
    stored_bytes: int
    """Bytes of the objects with these data."""
    first: int | None
    """The lowest sequence."""
    last: int | None
    gaps: int
    """How often sequences are skipped. In the format ``raw``, sequences count bytes, so these are gaps in bytes."""
    missing: int
    """How many sequences are skipped in total; 0 for a dense log."""
    duplicates: int
    """How many sequences occur again."""
    lowest: int | None
    highest: int | None
    keys: int
    """Number of distinct keys, accurate to about 5 %."""
    without_key: int
    bucket_seconds: int
    rate: tuple[Bucket, ...]

    @property
    def ratio(self) -> float | None:
        """Bytes of the log for each stored byte."""
        return self.log_bytes / self.stored_bytes if self.stored_bytes else None

    def as_json(self) -> dict[str, Any]:
        """As JSON values, for programs."""
        return {
            "records": self.records,
            "record_bytes": self.bytes,
            "log_bytes": self.log_bytes,
            "stored_bytes": self.stored_bytes,
            "ratio": self.ratio,
            "first": self.first,
            "next": None if self.last is None else self.last + 1,
            "gaps": self.gaps,
            "missing_sequences": self.missing,
            "duplicates": self.duplicates,
            "lowest_timestamp": self.lowest,
            "highest_timestamp": self.highest,
            "keys": self.keys,
            "without_key": self.without_key,
            "bucket_seconds": self.bucket_seconds,
            "rate": [{"time": each.start, "records": each.records, "record_bytes": each.bytes} for each in self.rate],
        }


def stats(
    spark: Any, url: str, *, options: Mapping[str, object] | None = None, progress: Progress | None = None
) -> Stats:
    """Count the records of the replica ``url``, and compute further statistics.

    Args:
        spark: the SparkSession.
        url: URL of the replica.
        options: options of the data source; bounds limit what is counted.
        progress: called with bytes done and total bytes.

    Returns:
        The numbers.

    Raises:
        ConfigError: an option does not fit.
        NothingToRestoreError: the replica does not exist or is empty.
        CorruptionError: an object is damaged.
        StoreError: a request to the store failed.
    """
    reading = parse_options({**format_options(options), "path": url})
    require_uncommitted(reading, "a job for statistics")
    require_records(reading.mode)
    held, log_bytes, stored_bytes = _measure(reading)
    partitions = pack(held.items, reading.max_partition_bytes, reading.num_partitions, count_slots(spark))
    spans = is_divisible(open_log_format(held.claim.format, reading.pattern))
    columns = log_columns(reading, has_timestamps=False, names=["sequence", "timestamp", "key", "value"])

    def work(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow  # noqa: PLC0415 - in the worker

        from litelog.spark.scan.decoding import read_partition  # noqa: PLC0415 - in the worker

        for batch in batches:
            for number in batch.column(0).to_pylist():
                for row in _count(number, read_partition(partitions[number], columns), spans=spans):
                    yield pyarrow.RecordBatch.from_pylist([row], schema=_schema(pyarrow))

    from pyspark.sql import functions  # noqa: PLC0415 - an extra

    from litelog.spark.query.dataframe import read  # noqa: PLC0415

    count = len(partitions)
    kinds = "partition bigint, bucket bigint, " + ", ".join(f"{name} bigint" for name in _NUMBERS)
    size = sum(partition.raw_bytes for partition in partitions)
    with watching(spark, progress, size, after=size):
        rows = spark.range(0, count, 1, max(count, 1)).mapInArrow(work, kinds).collect()
    with watching(spark, progress, size, before=size):
        keyed = read(spark, url, columns=["key"], options=options)
        keys = keyed.agg(functions.approx_count_distinct("key").alias("keys")).collect()[0]["keys"]
    return _sum_up([row.asDict() for row in rows], keys, log_bytes=log_bytes, stored_bytes=stored_bytes)


def _measure(reading: ReadOptions) -> tuple[GenerationContent, int, int]:
    """(contents of the replica, its bytes of the log, bytes of its objects).

    Lists again if WAL segments were removed meanwhile, because sealed segments replaced them.
    """
    stop = threading.Event()
    try:
        for attempt in range(ATTEMPTS):
            held = find_held(reading, stop)
            try:
                sizes = [_sizes(held, item) for item in held.items]
            except ReplicaGapError:
                if attempt + 1 == ATTEMPTS:
                    raise
            else:
                break
    finally:
        stop.set()
    return held, sum(length for length, _ in sizes), sum(stored for _, stored in sizes)


def _sizes(held: GenerationContent, item: ReplicaItem) -> tuple[int, int]:
    """(bytes of the log, bytes of objects) of an item."""
    if isinstance(item, SealedItem):
        return item.piece.entry.length, item.piece.entry.size
    at, following = item.info.position, item.following
    if following is not None and following.index == at.index:
        return following.offset - at.offset, item.info.size
    header = held.headers([at])[0]
    if header.sealed is None:
        return header.length, item.info.size
    entry = describe_sealed(held.client, header)
    return entry.length, entry.size + item.info.size


_NUMBERS = (
    *("records", "bytes", "first", "last", "next", "gaps", "missing", "duplicates"),
    *("lowest", "highest", "without_key"),
)


def _schema(pyarrow: Any) -> Any:
    return pyarrow.schema([(name, pyarrow.int64()) for name in ("partition", "bucket", *_NUMBERS)])


def _count(partition: int, batches: Iterable[Any], *, spans: bool = False) -> Iterator[dict[str, int | None]]:
    """Yield a row for each minute (``bucket``), and one for the whole partition, without a bucket.

    ``spans``: a record takes as many sequences as its value has bytes, instead of one.
    """
    import numpy as np  # noqa: PLC0415
    from pyarrow import compute  # noqa: PLC0415 - an extra

    total: dict[str, int | None] = dict.fromkeys(_NUMBERS, 0)
    total |= {"first": None, "last": None, "next": None, "lowest": None, "highest": None}
    minutes: dict[int, list[int]] = {}
    sums = dict.fromkeys(("records", "bytes", "gaps", "missing", "duplicates", "without_key"), 0)
    for batch in batches:
        sequences = batch.column("sequence").to_numpy()
        lengths = compute.binary_length(batch.column("value")).to_numpy().astype(np.int64)
        following = sequences + (lengths if spans else 1)
        lengths = lengths + compute.fill_null(compute.binary_length(batch.column("key")), 0).to_numpy()
        reached = sequences[:1] if total["next"] is None else np.array([total["next"]])
        skipped = sequences - np.concatenate([reached, following[:-1]])
        sums["records"] += len(batch)
        sums["bytes"] += int(lengths.sum())
        sums["gaps"] += int((skipped > 0).sum())
        sums["missing"] += int(skipped[skipped > 0].sum())
        sums["duplicates"] += int((skipped < 0).sum())
        sums["without_key"] += batch.column("key").null_count
        total["first"] = int(sequences[0]) if total["first"] is None else total["first"]
        total["last"], total["next"] = int(sequences[-1]), int(following[-1])
        if batch.column("timestamp").null_count == len(batch):
            continue
        stamps = batch.column("timestamp").cast("int64").to_numpy()
        low, high = int(stamps.min()), int(stamps.max())
        total["lowest"] = low if total["lowest"] is None else min(low, total["lowest"])
        total["highest"] = high if total["highest"] is None else max(high, total["highest"])
        found, places = np.unique(stamps // MINUTE, return_inverse=True)
        counts, sizes = np.bincount(places), np.bincount(places, weights=lengths)
        for minute, records, size in zip(found.tolist(), counts.tolist(), sizes.tolist(), strict=True):
            held = minutes.setdefault(minute, [0, 0])
            held[0] += records
            held[1] += int(size)
    nothing: dict[str, int | None] = dict.fromkeys(_NUMBERS)
    for minute, (records, size) in minutes.items():
        yield {**nothing, "partition": partition, "bucket": minute, "records": records, "bytes": size}
    yield {**total, **sums, "partition": partition, "bucket": None}


def _sum_up(rows: list[dict[str, Any]], keys: int, *, log_bytes: int, stored_bytes: int) -> Stats:
    parts = sorted((row for row in rows if row["bucket"] is None and row["records"]), key=lambda row: row["partition"])
    gaps, missing, duplicates = (sum(row[name] for row in parts) for name in ("gaps", "missing", "duplicates"))
    for before, after in pairwise(parts):
        skipped = after["first"] - before["next"]
        gaps += skipped > 0
        missing += max(0, skipped)
        duplicates += skipped < 0
    minutes: dict[int, list[int]] = {}
    for row in rows:
        if row["bucket"] is not None:
            held = minutes.setdefault(row["bucket"], [0, 0])
            held[0] += row["records"]
            held[1] += row["bytes"]
    width, rate = _rate(minutes)
    return Stats(
        records=sum(row["records"] for row in parts),
        bytes=sum(row["bytes"] for row in parts),
        log_bytes=log_bytes,
        stored_bytes=stored_bytes,
        first=parts[0]["first"] if parts else None,
        last=parts[-1]["last"] if parts else None,
        gaps=gaps,
        missing=missing,
        duplicates=duplicates,
        lowest=min((row["lowest"] for row in parts if row["lowest"] is not None), default=None),
        highest=max((row["highest"] for row in parts if row["highest"] is not None), default=None),
        keys=keys,
        without_key=sum(row["without_key"] for row in parts),
        bucket_seconds=width * 60,
        rate=rate,
    )


def _rate(minutes: dict[int, list[int]]) -> tuple[int, tuple[Bucket, ...]]:
    """(minutes of a bucket, the non-empty buckets in order of time)."""
    if not minutes:
        return 1, ()
    span = max(minutes) - min(minutes) + 1
    width = next((width for width in WIDTHS if span <= width * MAX_BUCKETS), 0)
    width = width or -(-span // (WIDTHS[-1] * MAX_BUCKETS)) * WIDTHS[-1]
    wide: dict[int, list[int]] = {}
    for minute, (records, size) in minutes.items():
        held = wide.setdefault(minute // width * width, [0, 0])
        held[0] += records
        held[1] += size
    return width, tuple(Bucket(start * MINUTE, *held) for start, held in sorted(wide.items()))
