"""The conformance suites over the S3 store. A test module inherits them, and has a fixture ``server``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litelog.stores.object_store import ObjectReplicaClient
from replica_clients.conformance import ObjectStoreConformance, ReplicaClientConformance
from replica_clients.s3 import S3Store, open_store
from replica_clients.s3.settings import read_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.builders.servers import S3Server


LARGE_BYTES = 12 << 20
"""Three parts."""


class S3StoreSuite(ObjectStoreConformance):
    """The store puts every object in one request."""

    large_bytes = LARGE_BYTES

    @pytest.fixture
    def store(self, server: S3Server) -> Iterator[S3Store]:
        store = open_store(f"s3://{server.make_bucket()}/a/prefix", server.options())
        yield store
        store.close()


class S3StoreInPartsSuite(ObjectStoreConformance):
    """The store puts every object above 100 bytes in parts. S3 requires 5 MiB for all parts except the last one."""

    large_bytes = LARGE_BYTES

    @pytest.fixture
    def store(self, server: S3Server) -> Iterator[S3Store]:
        settings = read_settings(f"s3://{server.make_bucket()}", server.options(checksum="md5"))
        store = S3Store(settings, single_bytes=100, part_bytes=5 << 20)
        yield store
        store.close()


class S3ClientSuite(ReplicaClientConformance):
    """The replica client over the S3 store."""

    @pytest.fixture
    def client(self, server: S3Server) -> Iterator[ObjectReplicaClient]:
        client = ObjectReplicaClient(open_store(f"s3://{server.make_bucket()}", server.options(checksum="sha256")))
        yield client
        client.close()
