"""The fault proxy injects the faults of its script, counts them, and passes everything else on unchanged."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("boto3")
pytest.importorskip("moto.server")

from litelog.errors import ExistsError, NotFoundError, StoreError
from replica_clients.s3 import S3Store, open_store
from tests.builders.fault_proxy import EVERY_FAULT, Fault, FaultProxy, When, fault_proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.builders.servers import S3Server

ANSWERS = {
    Fault.SLOW_DOWN: "SlowDown",
    Fault.INTERNAL_ERROR: "InternalError",
    Fault.TOO_MANY_REQUESTS: "TooManyRequests",
    Fault.CONFLICT: "ConditionalRequestConflict",
    Fault.RESET: "onnection",
    Fault.HANG: "imeout",
}
BODY = bytes(range(256)) * 16


@pytest.fixture
def proxy(server: S3Server) -> Iterator[FaultProxy]:
    with fault_proxy(server.endpoint) as started:
        yield started


@pytest.fixture
def bucket(server: S3Server) -> str:
    return server.make_bucket()


@pytest.fixture
def direct(server: S3Server, bucket: str) -> Iterator[S3Store]:
    store = open_store(f"s3://{bucket}", server.options())
    yield store
    store.close()


@pytest.fixture
def store(server: S3Server, proxy: FaultProxy, bucket: str) -> Iterator[S3Store]:
    options = server.options(endpoint=proxy.endpoint, **{"read-timeout": "1s"})
    store = open_store(f"s3://{bucket}", options)
    yield store
    store.close()


def read(store: S3Store, key: str) -> bytes:
    with store.open(key) as stream:
        return stream.read()


def test_without_a_plan_all_passes_and_is_counted(store: S3Store, direct: S3Store, proxy: FaultProxy) -> None:
    store.put("a/b c%+", [BODY])
    with pytest.raises(ExistsError):
        store.put("a/b c%+", [BODY])
    assert read(store, "a/b c%+") == read(direct, "a/b c%+") == BODY
    assert [(info.key, info.size) for info in store.list("a/")] == [("a/b c%+", len(BODY))]
    with pytest.raises(NotFoundError):
        store.open("missing")
    store.delete(["a/b c%+"])
    assert not list(direct.list(""))
    assert proxy.operations == {"PUT": 2, "GET": 2, "LIST": 1, "DELETE": 1}
    assert [request.key for request in proxy.requests][:3] == ["a/b c%+"] * 3
    assert [request.create_only for request in proxy.requests][:3] == [True, True, False]
    assert not proxy.injected


@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
@pytest.mark.parametrize("fault", ANSWERS)
def test_a_put_fails_before_or_after_the_server_applied_it(
    store: S3Store, direct: S3Store, proxy: FaultProxy, fault: Fault, when: When
) -> None:
    proxy.plan.next("PUT", fault, when)
    with pytest.raises(StoreError, match=ANSWERS[fault]) as caught:
        store.put("key", [BODY])
    assert caught.value.retryable
    assert caught.value.retry_after == (1.0 if fault is Fault.TOO_MANY_REQUESTS else None)
    assert [info.key for info in direct.list("")] == (["key"] if when is When.AFTER else [])
    assert proxy.injected == {("PUT", fault, when): 1}
    store.put("next", [BODY])
    assert proxy.plan.unused == 0


def test_a_late_put_reaches_the_server_when_its_client_has_given_up(
    store: S3Store, direct: S3Store, proxy: FaultProxy
) -> None:
    proxy.plan.next("PUT", Fault.HANG, When.LATE)
    with pytest.raises(StoreError):
        store.put("key", [BODY])
    store.put("behind", [BODY])
    while not list(direct.list("key")):  # the test's time-out ends this loop
        pass
    assert read(direct, "key") == BODY


def test_bodies_are_truncated_and_flipped(store: S3Store, proxy: FaultProxy) -> None:
    store.put("key", [BODY])
    proxy.plan.next("GET", Fault.FLIP)
    flipped = read(store, "key")
    assert sum((one ^ two).bit_count() for one, two in zip(flipped, BODY, strict=True)) == 1
    proxy.plan.next("GET", Fault.TRUNCATE)
    with store.open("key") as stream, pytest.raises((StoreError, OSError)):
        stream.read()
    assert read(store, "key") == BODY
    assert proxy.injected == {("GET", Fault.FLIP, When.AFTER): 1, ("GET", Fault.TRUNCATE, When.AFTER): 1}


def test_an_answer_without_a_body_cannot_be_damaged_and_counts_for_nothing(store: S3Store, proxy: FaultProxy) -> None:
    proxy.plan.next("GET", Fault.TRUNCATE)
    with pytest.raises(NotFoundError):
        store.open("missing")
    assert not proxy.injected


def test_a_script_may_wait_for_a_key_and_do_something_meanwhile(
    store: S3Store, direct: S3Store, proxy: FaultProxy
) -> None:
    proxy.plan.next("PUT", None, key_part="second", meanwhile=lambda: direct.put("second", [b"foreign"]))
    store.put("first", [BODY])
    with pytest.raises(ExistsError):
        store.put("second", [BODY])
    assert read(direct, "second") == b"foreign"


def test_an_outage_resets_connections_at_hand_and_to_come(store: S3Store, proxy: FaultProxy) -> None:
    store.put("before", [BODY])
    proxy.go_down()
    for number in range(3):
        with pytest.raises(StoreError) as caught:
            store.put(f"meanwhile-{number}", [BODY])
        assert caught.value.retryable
    assert proxy.refused >= 2  # the first one met a connection that was reset already
    proxy.come_back()
    store.put("after", [BODY])
    assert [info.key for info in store.list("")] == ["after", "before"]


def test_a_header_can_be_kept_from_the_server(store: S3Store, proxy: FaultProxy) -> None:
    proxy.dropped_headers.add("if-none-match")
    store.put("key", [b"first"])
    store.put("key", [b"second"])
    assert read(store, "key") == b"second"


def test_faults_at_random_come_at_their_rate_and_every_kind_of_them(store: S3Store, proxy: FaultProxy) -> None:
    quick = [pair for pair in EVERY_FAULT if pair[0] is not Fault.HANG]
    proxy.plan.at_random(0.3, seed=1, faults=quick)
    failed = 0
    for number in range(120):
        try:
            store.put(f"{number}", [io.BytesIO(BODY).getbuffer()])
        except StoreError:
            failed += 1
    assert failed == proxy.injected.total()
    assert 15 < failed < 45
    assert {(fault, when) for _, fault, when in proxy.injected} == {
        pair for pair in quick if pair[0] not in {Fault.FLIP, Fault.TRUNCATE}
    }
    proxy.plan.enabled = False
    store.put("quiet", [BODY])
