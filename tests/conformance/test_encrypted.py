"""A store of encrypted objects behaves as every store does."""

from __future__ import annotations

import pytest

from replica_clients.conformance import ObjectStoreConformance
from replica_clients.file import open_store
from replica_clients.memory import MemoryStore
from tests.builders.encrypted import GenerationFolder

LARGE_BYTES = 3 << 20


class TestEncryptedMemoryStore(ObjectStoreConformance):
    large_bytes = LARGE_BYTES

    @pytest.fixture
    def store(self) -> GenerationFolder:
        return GenerationFolder(MemoryStore("mine"))


class TestEncryptedFileStore(ObjectStoreConformance):
    large_bytes = LARGE_BYTES

    @pytest.fixture
    def store(self, tmp_path) -> GenerationFolder:
        return GenerationFolder(open_store(f"file://{tmp_path}/replica", {}))
