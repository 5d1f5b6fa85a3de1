"""The job ``verify``: checks a whole replica; tasks read its sealed segments in parallel."""

from __future__ import annotations

import pickle
import threading
from typing import TYPE_CHECKING, Any

from litelog.spark.jobs.options import store_options
from litelog.spark.jobs.progress import watching
from litelog.spark.scan.task import open_log_format
from litelog.spark.store_options import replica_url
from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.opening import decrypting
from litelog.stores.registry import open_store
from litelog.stores.retrying_store import RetryingStore
from litelog.verify.execution import verify as verify_replica
from litelog.verify.findings import Scope
from litelog.verify.inventory import sealed_of
from litelog.verify.sealed import SealedRead, SealedVerifier

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from litelog.objects.position import Generation
    from litelog.spark.jobs.progress import Progress
    from litelog.stores.object_store import ObjectStore
    from litelog.verify.report import VerifyReport

TASK_BYTES = 256 << 20
"""Compressed bytes that a task reads, but at least one sealed segment."""

PARALLELISM = 16
"""Objects that the driver reads in parallel: claims, snapshots, WAL segments."""


def verify(
    spark: Any,
    url: str,
    *,
    share: float = 1.0,
    seed: int = 0,
    pattern: str | None = None,
    options: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> VerifyReport:
    """Check all that a replica holds, as ``litelog verify`` does, without changing anything.

    Args:
        spark: the SparkSession.
        url: URL of the replica.
        share: share of the contents of sealed and WAL segments to check, from 0 to 1; structure is always checked.
        seed: selects that share.
        pattern: names of the log segments, if the log's format requires a pattern.
        options: options of the store.
        progress: called with bytes done and total bytes.

    Returns:
        The report, which lists all anomalies.

    Raises:
        StoreError: the store cannot be listed.
        ConfigError: an option does not fit.
    """
    own = store_options(options, "verify")
    place, scope = replica_url(url), Scope(share, seed)
    stop = threading.Event()
    store = _open(place, own, stop)
    try:
        names = ObjectReplicaClient(store).generations()
        listed = [(name, index, size) for name in names for index, size in sealed_of(store, name)]
        with watching(spark, progress, sum(size for _, _, size in listed)):
            known = _read(spark, place, own, pattern, scope, listed)
        return verify_replica(
            store,
            formats=lambda name: open_log_format(name, pattern),
            scope=scope,
            parallelism=PARALLELISM,
            known=known,
        )
    finally:
        stop.set()
        store.close()


def _read(
    spark: Any,
    url: str,
    options: Mapping[str, str],
    pattern: str | None,
    scope: Scope,
    listed: Sequence[tuple[Generation, int, int]],
) -> dict[tuple[Generation, int, int], SealedRead]:
    """Let tasks verify sealed segments. Returns the results; the driver tries those that a task could not read."""
    bins = list(_bins(listed))

    def work(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow  # noqa: PLC0415 - in the worker

        stop = threading.Event()
        store = _open(url, options, stop)
        try:
            reader = SealedVerifier(store, scope, lambda name: open_log_format(name, pattern))
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    found = [read for read in map(reader.read, bins[number]) if read.failure is None]
                    yield pyarrow.RecordBatch.from_pydict({"found": [pickle.dumps(read) for read in found]})
        finally:
            stop.set()
            store.close()

    if not bins:
        return {}
    rows = spark.range(0, len(bins), 1, len(bins)).mapInArrow(work, "found binary").collect()
    reads: list[SealedRead] = [pickle.loads(row["found"]) for row in rows]  # noqa: S301 - litelog's own tasks wrote it
    return {(read.generation, read.index, read.size): read for read in reads}


def _bins(listed: Sequence[tuple[Generation, int, int]]) -> Iterator[list[tuple[Generation, int, int]]]:
    held: list[tuple[Generation, int, int]] = []
    size = 0
    for one in listed:
        if held and size + one[2] > TASK_BYTES:
            yield held
            held, size = [], 0
        held.append(one)
        size += one[2]
    if held:
        yield held


def _open(url: str, options: Mapping[str, str], stop: threading.Event) -> ObjectStore:
    return decrypting(RetryingStore(open_store(url, options), stop), options)
