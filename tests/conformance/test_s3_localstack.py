"""The S3 store also behaves as every store does on LocalStack, which uses TLS and compares digests."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("boto3")

from litelog.errors import NotFoundError, StoreError
from litelog.stores.probe import StepOutcome, run_probe
from litelog.system.clock import SystemClock
from replica_clients.s3 import S3Store, open_store
from replica_clients.s3.settings import CHECKSUMS, read_settings
from tests.builders.localstack import VARIABLE, find_python, localstack_server
from tests.builders.s3_suites import S3ClientSuite, S3StoreInPartsSuite, S3StoreSuite
from tests.builders.servers import Answer, Request, ScriptedServer, forwarded

if find_python() is None:
    pytest.skip(f"LocalStack is not installed: {VARIABLE} names no Python that has it", allow_module_level=True)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.stores.object_store import ObjectStore
    from tests.builders.servers import S3Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with localstack_server(tmp_path_factory.mktemp("localstack")) as started:
        yield started


@pytest.fixture(params=CHECKSUMS)
def checksum(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class TestLocalStackStore(S3StoreSuite):
    """Over LocalStack, in one request."""


class TestLocalStackStoreInParts(S3StoreInPartsSuite):
    """Over LocalStack, in parts."""

    def test_of_many_writers_exactly_one_wins(self, store: ObjectStore) -> None:
        pytest.skip("LocalStack looks whether a key is taken and then completes the upload, with time in between")


class TestLocalStackClient(S3ClientSuite):
    """Over LocalStack."""


def test_every_digest_passes_the_probe(server: S3Server, checksum: str) -> None:
    store = open_store(f"s3://{server.make_bucket()}/p", server.options(checksum=checksum))
    found = {step.outcome for step in run_probe(store, SystemClock(), random.Random(1))}
    assert not found & {StepOutcome.FAILED, StepOutcome.SKIPPED}
    store.close()


@pytest.mark.parametrize("parts", [False, True])
def test_a_body_that_changed_on_its_way_is_refused(server: S3Server, checksum: str, parts: bool) -> None:
    """The server compares the digest with the body: it stores nothing, and the error is retryable."""
    bucket = server.make_bucket()

    def flip(request: Request) -> Answer:
        if request.method == "PUT":
            request = Request(
                request.method, request.path, request.headers, bytes([request.body[0] ^ 1]) + request.body[1:]
            )
        return forwarded(server.endpoint, request, server.bundle)

    with ScriptedServer(flip) as scripted:
        options = {**server.options(checksum=checksum), "endpoint": scripted.endpoint}
        settings = read_settings(f"s3://{bucket}", options)
        store = S3Store(settings, single_bytes=10 if parts else 1 << 20, part_bytes=5 << 20)
        with pytest.raises(StoreError) as caught:
            store.put("key", [b"what was meant"])
        assert caught.value.retryable, caught.value
        with pytest.raises(NotFoundError):
            store.open("key")
        store.close()
