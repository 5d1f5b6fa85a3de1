"""A stream with ``isolation=read_committed`` has, at each time, the rows that a consumer of Kafka would have got."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow")

from hypothesis import given, settings
from hypothesis import strategies as st

from litelog.errors import ConfigError
from litelog.formats.kafka import KafkaFormat
from litelog.spark.stream import follower as stream_follower
from litelog.stores.registry import open_store
from tests.builders.daemon_builder import Daemon
from tests.builders.kafka_log import HEADER, find_stable, recording, write_transactions
from tests.builders.log_builder import LogBuilder
from tests.builders.manual_clock import ManualClock
from tests.builders.replica_builder import make_log
from tests.builders.spark_streaming import Query, live_builder
from tests.sampling import examples

if TYPE_CHECKING:
    from pathlib import Path

    from _pytest.monkeypatch import MonkeyPatch

pytestmark = pytest.mark.slow

STEPS = st.lists(
    st.tuples(st.sampled_from(["plain", "write", "write", "commit", "abort"]), st.integers(1, 3)),
    min_size=1,
    max_size=24,
)


class Partition:
    """A partition that grows, and its replica."""

    def __init__(self, folder: Path) -> None:
        (folder / "orders-0").mkdir(parents=True)
        self.url = f"file://{folder}/replica"
        self.log = LogBuilder(str(folder / "orders-0"), KafkaFormat())
        self.daemon = Daemon(self.log, open_store(self.url), str(folder / "state"), clock=ManualClock())
        self.written = 0
        self.name = f"{0:020d}.log"

    def grow(self, data: bytes, end: int) -> None:
        """Write the log, whose bytes are ``data``, up to ``end``, and ship it."""
        self.log.write(data[self.written : end], self.name)
        self.written = end
        self.daemon.sync()

    def roll(self, offset: int) -> None:
        """Begin another log segment with this offset."""
        self.name = f"{offset:020d}.log"

    def lose_daemon(self) -> None:
        """Let another daemon continue, in a new generation."""
        self.daemon.lose_state()
        self.daemon.start(takeover=True)
        self.daemon.sync()

    def query(self, **options: object) -> Query:
        return Query(self.url, isolation="read_committed", recordSchema="log", **options)


def test_the_recorded_log_is_read_up_to_the_stable_offset_as_it_grows(tmp_path: Path) -> None:
    recorded = recording("transactions")
    data = b"".join(body for _, body in recorded.segments)
    firsts = {HEADER.unpack_from(body)[0] for _, body in recorded.segments}
    served = [(row["offset"], base64.b64decode(row["value"])) for row in recorded.served["read_committed"]]
    partition = Partition(tmp_path)
    ends = find_stable(data)
    assert any(stable < later for (_, stable), later in zip(ends, [offset for offset, _ in served], strict=False))
    query = None
    for end, stable in ends:
        base = HEADER.unpack_from(data, partition.written)[0]
        if base in firsts:
            partition.roll(base)
        partition.grow(data, end)
        query = query or partition.query()
        query.run()
        found = [(row["sequence"], row["value"]) for row in query.all_rows()]
        assert found == [row for row in served if row[0] < stable]
        query.restart(forget=len(query.offsets))


@given(STEPS, st.data())
@settings(max_examples=examples(40))
def test_any_transactions_in_any_batches(
    tmp_path_factory: pytest.TempPathFactory, todo: list[tuple[str, int]], data: st.DataObject
) -> None:
    partition = Partition(tmp_path_factory.mktemp("partition"))
    limits = data.draw(st.sampled_from([{}, {"maxFilesPerTrigger": 1}, {"maxRecordsPerTrigger": 2}]))
    content, _ = write_transactions(todo)
    query = None
    for number, (end, _) in enumerate(find_stable(content), 1):
        if number < len(todo) and data.draw(st.booleans()):
            continue
        partition.grow(content, end)
        match data.draw(st.sampled_from(["go on", "go on", "roll", "lose the daemon"])):
            case "roll":
                partition.roll(number)
            case "lose the daemon":
                partition.lose_daemon()
        query = query or partition.query(**limits)
        query.run()
        assert query.sequences() == write_transactions(todo[:number])[1]
        if data.draw(st.booleans()):
            query.restart(forget=data.draw(st.integers(0, len(query.offsets))))
    again = partition.query(**limits).run()
    assert again.sequences() == write_transactions(todo)[1]


def test_a_stream_of_what_exists_ends_before_an_open_transaction(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    content, committed = write_transactions([("plain", 1), ("write", 1), ("plain", 1), ("commit", 1)])
    ends = [end for end, _ in find_stable(content)]
    partition.grow(content, ends[2])
    query = partition.query(available_now=True).run()
    assert query.sequences() == [0]
    partition.grow(content, ends[3])
    query.restart()
    assert query.run().sequences() == committed == [0, 1, 2]


def test_a_repeated_batch_has_the_same_rows_after_its_log_segment_was_sealed(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    content, committed = write_transactions([("plain", 1)] * 6)
    ends = [end for end, _ in find_stable(content)]
    partition.grow(content, ends[1])
    query = partition.query().run()
    partition.grow(content, ends[4])
    query.run()
    partition.roll(5)
    partition.grow(content, ends[5])
    partition.daemon.clock.advance(3600)
    partition.daemon.sync()
    assert partition.daemon.snapshots
    query.restart(forget=len(query.offsets)).run()
    assert query.sequences() == committed


def test_a_transaction_over_many_objects_does_not_stop_the_stream(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(stream_follower, "AHEAD_STEPS", 3)
    partition = Partition(tmp_path)
    content, committed = write_transactions([*[("write", 1)] * 12, ("commit", 1)])
    ends = [end for end, _ in find_stable(content)]
    for end in ends[:-1]:
        partition.grow(content, end)
    query = partition.query(maxFilesPerTrigger=1).run()
    assert query.sequences() == []
    partition.grow(content, ends[-1])
    assert query.run().sequences() == committed == list(range(12))


def test_what_is_known_of_an_open_transaction_is_not_read_again(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    content, _ = write_transactions([("write", 1)] * 5)
    for end, _ in find_stable(content):
        partition.grow(content, end)
    query = partition.query().run()
    follower = query.follower._begun
    (begun,) = follower.values()
    assert begun.stable is not None
    known = begun.stable._reading
    query.run()
    assert begun.stable._reading is known is not None


def test_a_log_without_transactions_is_refused(tmp_path: Path) -> None:
    builder, url = live_builder()
    builder.add().ship_segment(make_log([[1]])[0], final=None)
    with pytest.raises(ConfigError, match="format litelog have no transactions"):
        Query(url, isolation="read_committed").run()
