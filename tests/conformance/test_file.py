"""The file store behaves as every store does, with unnamed temporary files and with named ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litelog.stores.object_store import ObjectReplicaClient
from replica_clients.conformance import ObjectStoreConformance, ReplicaClientConformance
from replica_clients.file import FileStore

if TYPE_CHECKING:
    from pathlib import Path


LARGE_BYTES = 12 << 20


class TestFileStore(ObjectStoreConformance):
    large_bytes = LARGE_BYTES

    @pytest.fixture
    def store(self, tmp_path: Path) -> FileStore:
        return FileStore(str(tmp_path / "not" / "there yet"))


class TestFileStoreWithNamedTemporaryFiles(ObjectStoreConformance):
    large_bytes = LARGE_BYTES

    @pytest.fixture
    def store(self, tmp_path: Path) -> FileStore:
        return FileStore(str(tmp_path / "root"), unnamed=False)


class TestFileClient(ReplicaClientConformance):
    @pytest.fixture
    def client(self, tmp_path: Path) -> ObjectReplicaClient:
        return ObjectReplicaClient(FileStore(str(tmp_path / "root")))
