"""S3 fails in every way, before and after it applies a request: nothing is lost, and no failure fences an owner."""

from __future__ import annotations

import hashlib
import threading

import pytest

pytest.importorskip("boto3")
pytest.importorskip("moto.server")

from litelog.config import make_config
from litelog.errors import CorruptObjectError, FencedError, StoreError
from litelog.objects.layout import claim_key, wal_key
from litelog.reading.replica_reader import ReplicaReader
from litelog.replicator import Replicator
from litelog.replicator.task import Phase, terminal_phase
from litelog.shipping.claiming import LostRaceError, NotCreateOnlyError
from tests.builders.fault_proxy import BODY_FAULTS, EVERY_FAULT, Fault, When
from tests.builders.independent_reader import read_replica
from tests.builders.servers import REGION
from tests.faults.figures import report
from tests.faults.s3_replicas import LONG, SHORT_WAITS, Bench
from tests.sampling import at_night, times

ROUNDS = times(40, at_night=60)
"""The number of appends, each followed by a sync."""

RESTART_EVERY = 15
RATE = 0.3
LOST_ANSWERS = [
    (Fault.INTERNAL_ERROR, When.AFTER),
    (Fault.SLOW_DOWN, When.AFTER),
    (Fault.RESET, When.AFTER),
    (Fault.HANG, When.AFTER),
    (Fault.HANG, When.LATE),
]


def assert_whole(bench: Bench, acknowledged: int) -> None:
    """Assert that the replica holds the whole log, for a restore and for the independent reader."""
    assert bench.restored() == bench.written()
    generations = read_replica(bench.open(direct=True))
    assert list(generations.values())[-1].files() == bench.written()
    assert bench.writer.next_sequence == acknowledged


@pytest.mark.parametrize("seed", [1, *at_night(2)])
def test_nothing_is_lost_while_a_third_of_all_requests_fail(bench: Bench, seed: int) -> None:
    proxy = bench.proxy
    bench.read_timeout = SHORT_WAITS
    bench.append()
    proxy.plan.at_random(RATE, seed)
    daemon = bench.daemon()
    failures = bench.sync(daemon)
    for number in range(1, ROUNDS):
        bench.append(20)
        failures += bench.sync(daemon)
        if number % RESTART_EVERY == 0:
            daemon.restart()
    client = bench.client(bench.open())  # a restore under the same faults
    assert bench.restored("under faults", client) == bench.written()
    with ReplicaReader(client) as reader:
        assert sum(len(batch) for batch in reader.batches()) == bench.writer.next_sequence

    proxy.plan.enabled = False
    bench.sync(daemon)
    assert_whole(bench, daemon.acknowledged[-1].header.next or 0)
    ends = [event.end for event in daemon.acknowledged]
    assert ends == sorted(ends)
    assert len({claim.generation for claim in daemon.claims}) == 1, "a fault began a generation"
    injected = proxy.injected
    assert {(fault, when) for _, fault, when in injected} == set(EVERY_FAULT)
    report(
        f"s3_faults_{seed}",
        requests=proxy.operations.total(),
        faults=injected.total(),
        faults_before=sum(count for (_, _, when), count in injected.items() if when is When.BEFORE),
        faults_after=sum(count for (_, _, when), count in injected.items() if when is When.AFTER),
        failed_syncs=failures,
        acknowledged_wal_segments=len(daemon.acknowledged),
        bytes_lost=0,
        false_fences=0,
    )


def test_every_fault_is_an_error_once_and_none_is_hidden_by_the_sdk(bench: Bench) -> None:
    # Only the objects' own checks can see a flip. A hang would need a time-out that a slow answer may also reach.
    visible = [pair for pair in EVERY_FAULT if pair[0] not in {Fault.FLIP, Fault.HANG}]
    bench.read_timeout = LONG
    bench.append()
    bench.proxy.plan.at_random(RATE, 3, visible)
    daemon = bench.daemon()
    for _ in range(25):
        bench.append()
        bench.sync(daemon)
    daemon.restart()
    bench.sync(daemon)
    assert daemon.store.errors.total() == bench.proxy.injected.total() > 10  # type: ignore[attr-defined]


def test_the_replicator_survives_random_faults(bench: Bench) -> None:
    bench.append()
    bench.proxy.plan.retry_after = 0
    bench.proxy.plan.at_random(RATE / 3, 4)  # after a failure, several in a row must succeed
    bench.proxy.plan.enabled = False  # until the trial of the store, which takes many requests, has ended
    query = f"endpoint={bench.proxy.endpoint}&region={REGION}&read-timeout={SHORT_WAITS}"
    log = {"path": bench.log.folder, "replicas": [{"url": f"s3://{bench.bucket}/replica?{query}"}]}
    config = make_config("test", {"sync_interval": "20ms", "shutdown_timeout": "240s", "logs": [log]})
    replicator = Replicator(config, state_dir=str(bench.folder / "state"), host="here")
    thread = threading.Thread(target=replicator.run)
    thread.start()
    pause = threading.Event()
    while not replicator.is_ready():
        pause.wait(0.02)
    bench.proxy.plan.enabled = True
    for _ in range(times(50, at_night=100)):
        bench.append()
        pause.wait(0.02)
    replicator.stop()
    thread.join()
    (status,) = replicator.status()
    assert status.phase == Phase.DONE.value
    assert status.sequence == bench.writer.next_sequence
    assert bench.proxy.injected.total() > 0
    assert bench.restored() == bench.written()
    assert len(read_replica(bench.open(direct=True))) == 1


@pytest.mark.parametrize(("fault", "when"), LOST_ANSWERS)
def test_a_wal_segment_whose_answer_was_lost_is_adopted(bench: Bench, fault: Fault, when: When) -> None:
    bench.append()
    daemon = bench.daemon()
    bench.sync(daemon)
    before = len(daemon.acknowledged)
    puts = times(1, at_night=3) if fault is Fault.HANG else 3  # a hang takes the whole time-out
    for _ in range(puts):
        bench.append()
        bench.proxy.plan.next("PUT", fault, when)
        assert bench.sync(daemon) <= 1
    assert bench.proxy.injected == {("PUT", fault, when): puts}
    assert len(daemon.acknowledged) - before == puts
    assert len(daemon.claims) == 1
    assert_whole(bench, daemon.acknowledged[-1].header.next or 0)
    report(f"s3_ambiguous_{fault.name.lower()}_{when.value}", ambiguous_puts=puts, adopted=puts, false_fences=0)


def test_a_retry_sends_identical_bytes_and_the_stored_object_has_their_digest(bench: Bench) -> None:
    bench.append()
    daemon = bench.daemon()
    bench.sync(daemon)
    bench.proxy.reset_counts()
    bench.append()
    for fault in (Fault.RESET, Fault.SLOW_DOWN, Fault.HANG):
        bench.proxy.plan.next("PUT", fault, When.BEFORE)
    bench.proxy.plan.next("PUT", Fault.INTERNAL_ERROR, When.AFTER)
    assert bench.sync(daemon) == 4
    puts = [request for request in bench.proxy.requests if request.operation == "PUT"]
    assert len(puts) == 5
    assert all(request.create_only for request in puts)
    assert len({(request.key, request.digest) for request in puts}) == 1
    stored = bench.server.admin.get_object(Bucket=bench.bucket, Key=puts[0].key)
    body = stored["Body"].read()
    assert hashlib.sha256(body).hexdigest() == puts[0].digest
    assert stored["ETag"] == f'"{hashlib.md5(body).hexdigest()}"'


@pytest.mark.parametrize(("fault", "when"), LOST_ANSWERS)
@pytest.mark.parametrize("number", [1, 2])
def test_a_claim_whose_answer_was_lost_is_ones_own(bench: Bench, fault: Fault, when: When, number: int) -> None:
    bench.append()
    if number == 2:
        bench.proxy.plan.next("PUT", None, key_part="epochs/")
    bench.proxy.plan.next("PUT", fault, when, key_part="epochs/")
    daemon = bench.daemon()
    bench.sync(daemon)
    assert bench.proxy.plan.unused == 0
    assert [claim.epoch for claim in daemon.claims] == [1]
    assert_whole(bench, daemon.acknowledged[-1].header.next or 0)


@pytest.mark.parametrize("fault", [None, Fault.INTERNAL_ERROR, Fault.RESET, Fault.HANG])
def test_a_slot_that_a_successor_took_meanwhile_fences(bench: Bench, fault: Fault | None) -> None:
    bench.read_timeout = bench.read_timeout if fault is Fault.HANG else LONG  # the successor may be slow
    bench.append()
    daemon = bench.daemon()
    bench.sync(daemon)
    successor = bench.daemon("two", takeover=True, direct=True)
    bench.append()
    bench.proxy.plan.next("PUT", fault, When.AFTER, meanwhile=lambda: bench.sync(successor) and None)
    told = len(daemon.acknowledged)
    with pytest.raises(FencedError):
        bench.sync(daemon)
    assert len(daemon.acknowledged) == told
    bench.append()
    with pytest.raises(FencedError):  # for good
        bench.sync(daemon)
    assert len(daemon.acknowledged) == told
    bench.sync(successor)
    assert_whole(bench, successor.acknowledged[-1].header.next or 0)


@pytest.mark.parametrize("fault", [None, Fault.INTERNAL_ERROR, Fault.RESET])
def test_an_epoch_that_another_took_meanwhile_is_a_lost_race(bench: Bench, fault: Fault | None) -> None:
    bench.read_timeout = LONG  # the winner may be slow
    bench.append()
    winner = bench.daemon("two", direct=True)
    bench.proxy.plan.next("PUT", fault, When.AFTER, key_part="epochs/", meanwhile=lambda: bench.sync(winner) and None)
    loser = bench.daemon()
    with pytest.raises(LostRaceError):
        bench.sync(loser)
    assert not loser.acknowledged
    assert_whole(bench, winner.acknowledged[-1].header.next or 0)


def test_a_flipped_answer_about_ones_own_slot_or_claim_fences_no_owner(bench: Bench) -> None:
    bench.append()
    plan = bench.proxy.plan
    plan.next("GET", Fault.FLIP, times=2, key_part="epochs/")
    daemon = bench.daemon()
    bench.sync(daemon)
    for _ in range(8):
        bench.append()
        plan.next("PUT", Fault.RESET, When.AFTER)
        plan.next("GET", Fault.FLIP, times=2)
        bench.sync(daemon)
        daemon.restart()
        plan.next("GET", Fault.FLIP, key_part="/wal/")
    assert bench.proxy.injected_of(Fault.FLIP) >= 16 + 2
    assert len({claim.generation for claim in daemon.claims}) == 1
    bench.sync(daemon)
    assert_whole(bench, daemon.acknowledged[-1].header.next or 0)


def test_a_damaged_listing_fails_or_lists_the_same_keys(bench: Bench) -> None:
    daemon = bench.daemon()
    for _ in range(4):
        bench.append()
        bench.sync(daemon)
    through, keys = bench.open(), list(bench.open(direct=True).list(""))
    may_pass: list[bool] = []
    flips = times(80, at_night=200)
    for _ in range(flips):
        bench.proxy.plan.next("LIST", Fault.FLIP)
        try:
            assert list(through.list("")) == keys
        except StoreError as error:
            may_pass.append(error.retryable)
    assert bench.proxy.injected_of(Fault.FLIP) == flips
    assert len(may_pass) > flips / 2
    assert all(may_pass)


@pytest.mark.parametrize("fault", sorted(BODY_FAULTS, key=str))
def test_a_damaged_body_is_fetched_again_and_reported_by_name_if_it_stays_so(bench: Bench, fault: Fault) -> None:
    daemon = bench.daemon()
    for _ in range(4):
        bench.append(200)
        bench.sync(daemon)
    key = wal_key(daemon.acknowledged[1].header.position)
    client = bench.client(bench.open())
    for damaged in (1, 2):
        bench.proxy.reset_counts()
        bench.proxy.plan.next("GET", fault, times=damaged, key_part=key)
        assert bench.restored(f"after {damaged}", client) == bench.written()
        assert bench.proxy.injected == {("GET", fault, When.AFTER): damaged}
    bench.proxy.plan.next("GET", fault, times=100, key_part=key)
    with pytest.raises(CorruptObjectError if fault is Fault.FLIP else StoreError, match=key):
        bench.restored("never", client)
    assert not (bench.folder / "never").exists()
    assert 100 - bench.proxy.plan.unused < 30, "a damaged object was fetched again and again"


def test_a_store_that_ignores_if_none_match_is_found_and_refused(bench: Bench) -> None:
    bench.append()
    bench.proxy.dropped_headers.add("if-none-match")
    daemon = bench.daemon()
    with pytest.raises(NotCreateOnlyError, match="cannot fence writers") as caught:
        bench.sync(daemon)
    assert claim_key(1) in str(caught.value)
    assert terminal_phase(caught.value) is Phase.REJECTED
    assert not daemon.acknowledged
    assert [request.key for request in bench.proxy.requests if request.operation == "PUT"] == [
        f"replica/{claim_key(1)}"
    ] * 2
