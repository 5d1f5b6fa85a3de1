"""The store that looks before it puts behaves as every store does, over each kind of store that does not fence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litelog.errors import ExistsError
from litelog.stores.checking_store import CheckingStore
from litelog.stores.object_store import NotSupportedError, ObjectReplicaClient
from replica_clients.conformance import ObjectStoreConformance, ReplicaClientConformance
from replica_clients.conformance.checks import read
from replica_clients.memory import MemoryStore
from tests.builders.stores import CarelessStore, CountingStore

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.stores.object_store import ByteRange


class PlainStore(CountingStore):
    """A store without a create-only put."""

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        if create_only:
            self._count("put")
            raise NotSupportedError("put", key, "no such header here")
        super().put(key, body, create_only=False)


class ShyStore(CountingStore):
    """A store that declares that it does not fence, and looks by itself."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.enforces_create_only = False


LARGE_BYTES = 3 << 20
"""The inner stores keep each object as a whole, whatever its size."""


class TestOverOneThatIgnoresTheCondition(ObjectStoreConformance):
    large_bytes = LARGE_BYTES

    @pytest.fixture
    def store(self) -> CheckingStore:
        return CheckingStore(CarelessStore(MemoryStore()))


class TestOverOneThatHasNoCondition(ObjectStoreConformance):
    large_bytes = LARGE_BYTES

    @pytest.fixture
    def store(self) -> CheckingStore:
        return CheckingStore(PlainStore(MemoryStore()))


class TestOverOneThatLooks(ObjectStoreConformance):
    large_bytes = LARGE_BYTES

    @pytest.fixture
    def store(self) -> CheckingStore:
        return CheckingStore(ShyStore())


class TestClient(ReplicaClientConformance):
    @pytest.fixture
    def client(self) -> ObjectReplicaClient:
        return ObjectReplicaClient(CheckingStore(CarelessStore(MemoryStore())))


@pytest.mark.parametrize(
    ("inner", "first", "later"),
    [
        (CarelessStore(MemoryStore()), {"open": 1, "put": 1}, {"open": 1, "put": 1}),
        (PlainStore(MemoryStore()), {"open": 1, "put": 2}, {"open": 1, "put": 1}),
        (ShyStore(), {"put": 1}, {"put": 1}),
    ],
)
def test_the_wrapper_looks_once_for_each_put_if_the_store_does_not(
    inner: CountingStore, first: dict[str, int], later: dict[str, int]
) -> None:
    store = CheckingStore(inner)
    assert not store.enforces_create_only
    for number, expected in enumerate((first, later)):
        inner.requests.clear()
        store.put(f"key{number}", [b"x"])
        assert inner.requests == expected


@pytest.mark.slow
def test_a_condition_that_the_store_has_is_asked_for_all_the_same() -> None:
    """Another writer comes between the look and the put."""

    class Racing(CountingStore):
        def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
            try:
                return super().open(key, byte_range)
            finally:
                self.inner.put(key, [b"another's"], create_only=False)

    inner = MemoryStore()
    with pytest.raises(ExistsError):
        CheckingStore(Racing(inner)).put("key", [b"mine"])
    assert read(inner, "key") == b"another's"
