"""The fsspec store behaves as every store does: in memory, in a folder, and on S3 if s3fs is installed."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("fsspec")

from fsspec.implementations.memory import MemoryFileSystem

from litelog.errors import StoreError
from litelog.stores.object_store import ObjectReplicaClient
from replica_clients.conformance import ObjectStoreConformance, ReplicaClientConformance
from replica_clients.fsspec import FsspecStore, open_store
from tests.builders.servers import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, S3Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def memory_url(tmp_path: Path) -> Iterator[str]:
    """A URL for each test: fsspec has one memory for the whole process."""
    yield f"memory:/{tmp_path}"
    MemoryFileSystem.store.clear()


LARGE_BYTES = 12 << 20
"""More than two of fsspec's blocks."""


class TestMemory(ObjectStoreConformance):
    large_bytes = LARGE_BYTES

    @pytest.fixture
    def store(self, memory_url: str) -> FsspecStore:
        return open_store(memory_url, {})


class TestFolder(ObjectStoreConformance):
    large_bytes = LARGE_BYTES

    @pytest.fixture
    def store(self, tmp_path: Path) -> FsspecStore:
        return open_store(f"file://{tmp_path}/not/there yet", {})


class TestMemoryClient(ReplicaClientConformance):
    @pytest.fixture
    def client(self, memory_url: str) -> ObjectReplicaClient:
        return ObjectReplicaClient(open_store(memory_url, {}))


@pytest.mark.skipif(importlib.util.find_spec("s3fs") is None, reason="s3fs is not installed")
class TestS3fs(ObjectStoreConformance):
    @pytest.fixture
    def options(self, server: S3Server) -> dict[str, object]:
        return {
            "key": ACCESS_KEY_ID,
            "secret": SECRET_ACCESS_KEY,
            "endpoint-url": server.endpoint,
            "client-kwargs": {"region_name": REGION},
        }

    @pytest.fixture
    def store(self, server: S3Server, options: dict[str, object]) -> FsspecStore:
        return open_store(f"s3://{server.make_bucket()}/a/prefix", options)

    @pytest.mark.parametrize("url", ["s3://no-such-bucket", "s3://no-such-bucket/a/prefix"])
    def test_a_bucket_that_is_not_there_is_named(self, options: dict[str, object], url: str) -> None:
        store = open_store(url, options)
        for request in (lambda: list(store.list("epochs/")), lambda: store.put("key", [b"x"])):
            with pytest.raises(StoreError, match="bucket no-such-bucket does not exist: create it") as caught:
                request()
            assert not caught.value.retryable
