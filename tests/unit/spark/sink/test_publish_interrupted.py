"""An append that is killed, or meets a rival, at any of its requests leaves a replica of whole appends."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow")

import pyarrow

from litelog.errors import FencedError, StoreError
from litelog.formats.registry import open_format
from litelog.objects.claim import Claim, Relation
from litelog.objects.position import new_generation
from litelog.reading.generations import newest_claims, read_claim
from litelog.reading.replica_reader import ReplicaReader
from litelog.shipping.claiming import close_below, create_claim
from litelog.spark.sink.options import parse_write_options
from litelog.spark.sink.plan import OvertakenError, plan_write
from litelog.spark.sink.publish import discard, publish, require_begun
from litelog.spark.sink.segments import SegmentWriter
from litelog.stores.object_store import ObjectReplicaClient
from litelog.verify.execution import verify
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon, InlineExecutor
from tests.builders.manual_clock import ManualClock
from tests.builders.many_generations import CountedReplica, start_log, taken_over
from tests.builders.stores import CountingStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from typing_extensions import Buffer

    from litelog.stores.object_store import ObjectStore

REQUESTS = 20
"""At least as many as an append makes. A later step is never reached, and the append succeeds."""


class Killed(BaseException):
    """Ends an append as SIGKILL does: nothing of it runs afterwards."""


class SteppingStore(CountingStore):
    """Calls ``act`` once, before the request of that number."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.step = 0
        self.act: Callable[[], object] | None = None

    def plan(self, step: int, act: Callable[[], object]) -> None:
        self.step, self.act = self.total() + step, act

    def _count(self, operation: str) -> None:
        super()._count(operation)
        act = self.act
        if act is not None and self.total() > self.step:
            self.act = None
            act()


class LateStore(SteppingStore):
    """Can hold back the put of a snapshot until a test lets it arrive. Its writer is killed meanwhile."""

    holds = False

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        if self.holds and "/snapshots/" in key:
            self.holds = False
            self.held = key, b"".join(body)
            raise Killed
        super().put(key, body, create_only=create_only)

    def arrive(self) -> None:
        """Carry out the put that was held back."""
        key, body = self.held
        self.inner.put(key, [body])


def kill() -> None:
    raise Killed


def claim_and_close(store: ObjectStore) -> None:
    """Claim the replica as another owner does, and end the generations below. It puts nothing else."""
    client = ObjectReplicaClient(store)
    names = client.claims()
    newest = read_claim(client, names[-1])
    claim = Claim(
        log=newest.log,
        format=newest.format,
        owner="0f" * 16,
        host="elsewhere",
        generation=new_generation(names[-1].epoch + 1, 0xF),
        first=0,
        relation=Relation.FIRST,
        time=newest.time,
    )
    create_claim(client, claim)
    close_below(client, claim, newest_claims(client, names), ManualClock())


def values(store: ObjectStore) -> list[bytes]:
    """All values of the replica. Its sequences are dense, and nothing harmful is in it."""
    with ReplicaReader(ObjectReplicaClient(store)) as reader:
        found = [record for columns in reader.batches() for record in columns.records()]
    assert [record.sequence for record in found] == list(range(len(found)))
    report = verify(store, formats=open_format)
    assert [str(anomaly) for anomaly in report.anomalies if anomaly.harmful] == []
    return [record.value for record in found]


@pytest.fixture(params=["Spark", "a daemon"])
def replica(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CountedReplica]:
    """A replica of a few records, whose store a test can interrupt. Spark or a daemon wrote it last."""
    if request.param == "Spark":
        made = CountedReplica(SteppingStore(MemoryStore("stepping")))
        made.append(tag=b"before ")
        yield made
    else:
        yield CountedReplica(SteppingStore(taken_over(2, tmp_path).inner))


def stepping(replica: CountedReplica) -> SteppingStore:
    assert isinstance(replica.inner, SteppingStore)
    return replica.inner


@pytest.mark.slow
@pytest.mark.parametrize("step", range(REQUESTS))
def test_an_append_that_is_killed_is_in_the_log_as_a_whole_or_not_at_all(replica: CountedReplica, step: int) -> None:
    before = values(replica.inner)
    stepping(replica).plan(step, kill)
    with suppress(Killed):
        replica.append(takeover=True, tag=b"killed ")
    stepping(replica).act = None
    held = values(replica.inner)
    killed = [b"killed %d" % number for number in range(len(before), len(before) + 2)]
    assert held in (before, before + killed)
    replica.append(takeover=True, tag=b"later ")
    assert values(replica.inner) == [*held, *(b"later %d" % number for number in range(len(held), len(held) + 2))]


@pytest.mark.slow
@pytest.mark.parametrize("step", range(REQUESTS))
def test_of_two_appends_at_once_each_that_succeeds_is_in_the_log_once(replica: CountedReplica, step: int) -> None:
    before = values(replica.inner)
    stepping(replica).plan(step, partial(replica.append, takeover=True, tag=b"rival "))
    tags = [b"rival"]
    try:
        replica.append(takeover=True, tag=b"own ")
        tags.append(b"own")
    except OvertakenError:
        pass
    if stepping(replica).act is not None:  # the append had ended before
        stepping(replica).act = None
        tags.remove(b"rival")
    held = values(replica.inner)[len(before) :]
    assert sorted(value.split()[0] for value in held) == sorted(2 * tags)


@pytest.mark.slow
@pytest.mark.parametrize("step", range(REQUESTS))
def test_an_append_whose_snapshot_arrives_late_is_in_the_log_if_it_succeeds(step: int) -> None:
    store = LateStore(MemoryStore("stepping"))
    replica = CountedReplica(store)
    replica.append(tag=b"before ")
    before, client = values(store.inner), ObjectReplicaClient(store.inner)
    store.holds = True
    with suppress(Killed):
        replica.append(tag=b"late ")
    late, tags = read_claim(client, client.claims()[-1]), []
    doubtful = False

    def arrive() -> None:
        nonlocal doubtful
        store.arrive()
        try:
            require_begun(client, late)
            tags.append(b"late")
        except OvertakenError as error:
            doubtful = "may be in the log" in str(error)

    store.plan(step, arrive)
    with suppress(OvertakenError):
        replica.append(tag=b"own ")
        tags.append(b"own")
    if store.act is not None:  # the append had ended before
        store.act = None
        arrive()
    held = sorted(value.split()[0] for value in values(store.inner)[len(before) :])
    assert held == sorted(2 * tags) or (doubtful and held == sorted(2 * [*tags, b"late"]))


@pytest.mark.slow
@pytest.mark.parametrize("step", range(REQUESTS))
def test_an_append_that_another_owner_fences_says_so(replica: CountedReplica, step: int) -> None:
    before = values(replica.inner)
    stepping(replica).plan(step, partial(claim_and_close, replica.inner))
    try:
        replica.append(takeover=True, tag=b"own ")
    except OvertakenError:
        assert values(replica.inner) == before
    else:
        stepping(replica).act = None
        assert len(values(replica.inner)) == len(before) + 2


@pytest.mark.slow
@pytest.mark.parametrize("step", range(REQUESTS))
def test_an_append_continues_all_that_a_daemon_acknowledged_meanwhile(tmp_path: Path, step: int) -> None:
    store = SteppingStore(MemoryStore("stepping"))
    replica, log = CountedReplica(store), start_log(tmp_path)
    log.append(1)
    daemon = Daemon(log, store.inner, str(tmp_path / "state"))
    daemon.sync()
    held = [len(values(store.inner))]

    def ship() -> None:
        log.append(1)
        with suppress(FencedError):
            daemon.sync()
            held.append(len(values(store.inner)))

    store.plan(step, ship)
    replica.append(takeover=True)
    store.act = None
    assert len(values(store.inner)) == held[-1] + 2


def test_writes_at_once_delete_their_own_objects_alone() -> None:
    replica = CountedReplica()
    replica.append()
    options = parse_write_options({"path": replica.url})
    clock, client = ManualClock(), ObjectReplicaClient(replica.store)
    first, second = (plan_write(options, clock, overwrite=False) for _ in range(2))
    assert first.staging.claim == second.staging.claim
    written = []
    for plan in (first, second):
        writer = SegmentWriter(client, plan.staging, plan.next, 0, options.segment_bytes, InlineExecutor())
        writer.write([pyarrow.RecordBatch.from_pydict({"value": [b"%d" % plan.staging.indexes.start]})], clock)
        written.append(writer.entries)
    publish(client, first, [written[0]], clock)
    with pytest.raises(OvertakenError):
        publish(client, second, [written[1]], clock)
    assert discard(client, second) == 1
    assert values(replica.inner)[2:] == [b"%d" % first.staging.indexes.start]
    assert not verify(replica.inner, formats=open_format).anomalies


def test_a_write_that_draws_the_number_of_another_does_not_take_its_objects() -> None:
    replica = CountedReplica()
    replica.append()
    clock, client = ManualClock(), ObjectReplicaClient(replica.store)
    staging = plan_write(parse_write_options({"path": replica.url}), clock, overwrite=False).staging

    def write(value: bytes) -> None:
        writer = SegmentWriter(client, staging, 2, 0, 1 << 20, InlineExecutor())
        writer.write([pyarrow.RecordBatch.from_pydict({"value": [value]})], clock)

    write(b"one")
    write(b"one")  # its own put, whose answer was lost
    with pytest.raises(StoreError, match="another write has put other bytes there"):
        write(b"two")
