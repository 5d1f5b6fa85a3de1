"""The memory store and the tests' wrappers around it behave as every store does."""

from __future__ import annotations

import threading

import pytest

from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.retrying_store import RetryingStore
from replica_clients.conformance import ObjectStoreConformance, ReplicaClientConformance
from replica_clients.memory import MemoryStore
from tests.builders.stores import CountingStore, FaultyStore, PausingStore

LARGE_BYTES = 3 << 20
"""These stores keep each object as a whole, whatever its size."""


class TestMemoryStore(ObjectStoreConformance):
    large_bytes = LARGE_BYTES

    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore("mine")


class TestMemoryClient(ReplicaClientConformance):
    @pytest.fixture
    def client(self) -> ObjectReplicaClient:
        return ObjectReplicaClient(MemoryStore("mine"))


class TestWrappers(ObjectStoreConformance):
    large_bytes = LARGE_BYTES

    @pytest.fixture
    def store(self) -> RetryingStore:
        paused = PausingStore(MemoryStore("mine"), "none")
        return RetryingStore(FaultyStore(CountingStore(paused)), threading.Event())
