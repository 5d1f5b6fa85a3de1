"""A micro-batch is in the log once, whatever ends the driver while it is written, and even if Spark runs it again."""

from __future__ import annotations

import itertools
import pickle
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow
from pyspark.sql.types import LongType, StringType, StructType

from litelog.errors import ConfigError, FencedError
from litelog.formats.registry import open_format
from litelog.reading.replica_reader import ReplicaReader
from litelog.spark.maintenance.execution import maintain
from litelog.spark.maintenance.plan import MaintenanceOptions
from litelog.spark.sink.options import parse_write_options
from litelog.spark.sink.plan import OvertakenError
from litelog.spark.sink.stream_writer import LitelogStreamWriter, StreamedTask, make_stream_writer
from litelog.spark.sink.writer import LitelogWriter, RunningTask, make_writer
from litelog.stores.object_store import ObjectReplicaClient
from litelog.verify.execution import verify
from tests.builders.manual_clock import ManualClock
from tests.builders.many_generations import CountedReplica
from tests.builders.stores import CountingStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ATTEMPTS = itertools.count()

SCHEMA = StructType().add("value", StringType())
ONCE = {"txnAppId": "a", "txnVersion": "1"}
NUMBERS = StructType().add("value", LongType())

REQUESTS = 50
"""More than two micro-batches make. A later kill is never reached."""


class Killed(BaseException):
    """Ends a driver as SIGKILL does: nothing of it runs afterwards."""


class KillingStore(CountingStore):
    """Raises Killed once, before its request number ``at``, or after it has been carried out."""

    at: int | None = None
    after = False

    def _count(self, operation: str) -> None:
        super()._count(operation)
        if self.at is not None and self.total() > self.at:
            self.at = None
            raise Killed


def writer(replica: CountedReplica, **options: str) -> LitelogStreamWriter:
    given = {"path": replica.url, "checkpointlocation": "/checkpoint", **options}
    return make_stream_writer(given, SCHEMA, overwrite=False)


def tasks(
    sent: LitelogStreamWriter, partitions: Sequence[Sequence[str]], query: str = "q"
) -> list[StreamedTask | None]:
    """The answers of the tasks of a micro-batch: each has its own instance, which Spark sends it."""
    messages: list[StreamedTask | None] = []
    for number, values in enumerate(partitions):
        received = pickle.loads(pickle.dumps(sent))
        batches = [pyarrow.RecordBatch.from_pydict({"value": list(values)})] if values else []
        done = received.write_as(RunningTask(number, next(_ATTEMPTS), query), batches)
        messages.append(pickle.loads(pickle.dumps(done)))
    return messages


def run_batch(replica: CountedReplica, number: int, partitions: Sequence[Sequence[str]], **options: str) -> None:
    """A micro-batch as Spark runs it: one instance for the tasks, another one for the commit."""
    messages = tasks(writer(replica, **options), partitions)
    writer(replica, **options).commit(messages, number)


def values(replica: CountedReplica) -> list[str]:
    """All values of the replica. Its sequences are dense, and nothing harmful is in it."""
    with ReplicaReader(ObjectReplicaClient(replica.inner)) as reader:
        found = [record for columns in reader.batches() for record in columns.records()]
    assert [record.sequence for record in found] == list(range(len(found)))
    report = verify(replica.inner, formats=open_format)
    assert [str(anomaly) for anomaly in report.anomalies if anomaly.harmful] == []
    return [record.value.decode() for record in found]


def test_micro_batches_follow_each_other_in_the_order_of_their_partitions() -> None:
    replica = CountedReplica()
    run_batch(replica, 0, [["a", "b"], ["c"]])
    run_batch(replica, 1, [[], []])
    run_batch(replica, 2, [["d"], [], ["e"]])
    assert values(replica) == ["a", "b", "c", "d", "e"]


def test_a_micro_batch_that_spark_runs_again_is_discarded() -> None:
    replica = CountedReplica()
    run_batch(replica, 0, [["a"]])
    run_batch(replica, 1, [["b"], ["c"]])
    run_batch(replica, 1, [["b"], ["c"]])
    run_batch(replica, 0, [["a"]])
    assert values(replica) == ["a", "b", "c"]
    staged = [key for key in replica.inner.list("") if "segments" in key.key]
    assert len(staged) == 3, "the objects of the batches that were run again are deleted"


def test_each_query_counts_its_own_micro_batches() -> None:
    replica = CountedReplica()
    for query in ("first", "second"):
        writer(replica).commit(tasks(writer(replica), [[query]], query), 0)
    run_batch(replica, 0, [["third"]])
    writer(replica).commit(tasks(writer(replica), [["first again"]], "first"), 0)
    assert values(replica) == ["first", "second", "third"]


def test_what_a_batch_appends_in_between_is_kept() -> None:
    replica = CountedReplica()
    run_batch(replica, 0, [["a"]])
    replica.append(tag=b"batch ")
    run_batch(replica, 0, [["a"]])
    run_batch(replica, 1, [["b"]])
    assert values(replica) == ["a", "batch 1", "batch 2", "b"]


def test_maintenance_in_between_forgets_no_micro_batch() -> None:
    replica = CountedReplica()
    for number, value in enumerate("abc"):
        run_batch(replica, number, [[value]])
    clock = ManualClock()
    clock.advance(7 * 86_400)
    merged = maintain(ObjectReplicaClient(replica.inner), MaintenanceOptions(), clock)
    assert merged.generation is not None
    run_batch(replica, 2, [["c"]])
    run_batch(replica, 3, [["d"]])
    assert values(replica) == ["a", "b", "c", "d"]


@pytest.mark.slow
@pytest.mark.parametrize("step", range(REQUESTS))
def test_a_driver_that_is_killed_at_any_request_leaves_each_batch_in_the_log_once(step: int) -> None:
    store = KillingStore(CountedReplica().inner)
    replica = CountedReplica(store)
    run_batch(replica, 0, [["a"], ["b", "c"]])
    store.at = store.total() + step
    batches = [[["d", "e"], ["f"]], [["g"], ["h"]]]
    for number, partitions in enumerate(batches, 1):
        with suppress(Killed):
            run_batch(replica, number, partitions)
            continue
        run_batch(replica, number, partitions)
    store.at = None
    assert values(replica) == list("abcdefgh")


def test_of_two_drivers_that_run_the_same_batch_one_succeeds() -> None:
    replica = CountedReplica()
    run_batch(replica, 0, [["a"]])
    late = tasks(writer(replica), [["b"]])
    run_batch(replica, 1, [["b"]])
    with pytest.raises(OvertakenError):
        writer(replica).commit(late, 1)
    run_batch(replica, 2, [["c"]])
    assert values(replica) == ["a", "b", "c"]


def test_tasks_of_a_batch_that_failed_leave_nothing() -> None:
    replica = CountedReplica()
    run_batch(replica, 0, [["a"]])
    before = sorted(info.key for info in replica.inner.list(""))
    messages = tasks(writer(replica), [["b"], ["c"]])
    writer(replica).abort([*messages[:1], None], 1)
    assert sorted(info.key for info in replica.inner.list("")) == before
    writer(replica).abort([None], 2)
    run_batch(replica, 1, [["b"], ["c"]])
    assert values(replica) == ["a", "b", "c"]


def test_tasks_without_a_query_are_refused() -> None:
    replica = CountedReplica()
    with pytest.raises(ConfigError, match="do not know their streaming query"):
        writer(replica).commit(tasks(writer(replica), [["a"]], query=""), 0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_stream_writer({"path": "/x"}, SCHEMA, overwrite=True), 'outputMode\\("append"\\)'),
        (
            lambda: make_stream_writer({"path": "/x", **ONCE}, SCHEMA, overwrite=False),
            "of a",
        ),
        (lambda: make_stream_writer({"path": "/x", "other": "1"}, SCHEMA, overwrite=False), "no option 'other'"),
        (lambda: make_stream_writer({"path": "/x"}, NUMBERS, overwrite=False), "BIGINT"),
        (lambda: parse_write_options({"path": "/x", "txnappid": "a"}), "belong together"),
        (lambda: parse_write_options({"path": "/x", "txnversion": "1"}), "belong together"),
        (lambda: parse_write_options({"path": "/x", "compression": "gzip"}), "must be lz4, lz4hc or zstd"),
        (lambda: parse_write_options({"path": "/x", "txnappid": "a", "txnversion": "-1"}), "whole number"),
        (lambda: parse_write_options({"path": "/x", "txnappid": "a" * 201, "txnversion": "1"}), "200 characters"),
        (lambda: parse_write_options({"path": "/x", "txnappid": "a", "txnversion": "9" * 30}), "below 2"),
    ],
)
def test_what_cannot_be_written_once_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def append_once(replica: CountedReplica, version: int, *found: str, overwrite: bool = False) -> None:
    """A batch whose version of application ``a`` counts once."""
    options = {"path": replica.url, "txnappid": "a", "txnversion": str(version)}
    made: LitelogWriter = make_writer(options, SCHEMA, overwrite=overwrite)
    made.commit([made.write(iter([pyarrow.RecordBatch.from_pydict({"value": list(found)})]))])


def test_a_batch_that_states_its_version_is_written_once() -> None:
    replica = CountedReplica()
    append_once(replica, 5, "a")
    append_once(replica, 5, "a")
    append_once(replica, 4, "older")
    append_once(replica, 6, "b", overwrite=True)
    append_once(replica, 6, "b", overwrite=True)
    append_once(replica, 5, "a")
    assert values(replica) == ["b"]


def test_another_owner_in_between_fences_the_stream() -> None:
    """A daemon has taken over: the query fails, and says how to go on."""
    replica = CountedReplica()
    run_batch(replica, 0, [["a"]])
    sent = writer(replica)
    messages = tasks(sent, [["b"]])
    replica.append()
    with pytest.raises(FencedError, match="write again"):
        writer(replica).commit(messages, 1)
