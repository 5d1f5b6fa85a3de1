"""The ReplicaClient sends the same requests to any store, and reports wrong answers as errors."""

from __future__ import annotations

import io
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litelog.codec.checksum import crc32c
from litelog.errors import CorruptObjectError, NotFoundError, StoreError
from litelog.objects import wal_segment
from litelog.objects.layout import snapshot_key, wal_key
from litelog.objects.position import ClaimName, Generation, Position
from litelog.objects.wal_segment import WalHeader
from litelog.stores.object_store import (
    MAX_OBJECT_BYTES,
    ByteRange,
    ObjectInfo,
    ObjectReplicaClient,
    read_bounded,
    require_key,
    require_prefix,
)
from replica_clients.memory import MemoryStore
from tests.builders.child import runs_in_child
from tests.builders.replica_builder import ReplicaBuilder
from tests.builders.stores import CountingStore, Fault, FaultyStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

G = Generation("0000000100000000")


class StoreThatLists(MemoryStore):
    """Lists the given objects."""

    def __init__(self, keys: list[str]) -> None:
        super().__init__()
        self._told = keys

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        found = [key for key in self._told if key.startswith(prefix) and key > (start_after or "")]
        return iter([ObjectInfo(key, 1) for key in found])


class StoreThatTrickles(MemoryStore):
    """Returns a stream's bytes a few at a time, as a socket does."""

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        return Trickle(super().open(key, byte_range).read())


class StoreWithoutEnd(MemoryStore):
    """Returns zeros without end, whatever range is requested."""

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        assert key
        assert byte_range is None or byte_range.length is not None
        return Zeros()


class Zeros(io.BytesIO):
    def read(self, size: int | None = -1, /) -> bytes:
        return bytes(size or 0)


class Trickle(io.BytesIO):
    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(7 if size is None or size < 0 else min(size, 7))


def test_a_listing_out_of_order_is_an_error_and_not_a_gap() -> None:
    keys = [wal_key(Position(G, 0, offset)) for offset in (0, 2, 1)]
    with pytest.raises(StoreError, match="not in order"):
        list(ObjectReplicaClient(StoreThatLists(keys)).wal_segments(G))
    with pytest.raises(StoreError, match="not in order"):
        list(ObjectReplicaClient(StoreThatLists(keys[:1] * 2)).wal_segments(G))
    snapshots = [snapshot_key(G, index) for index in (1, 0)]
    with pytest.raises(StoreError, match="not in order"):
        list(ObjectReplicaClient(StoreThatLists(snapshots)).snapshots(G))


def test_generations_cost_one_listing_each_with_any_content() -> None:
    store = CountingStore(MemoryStore())
    client = ObjectReplicaClient(store)
    names = [Generation(f"{epoch:016x}") for epoch in range(1, 6)]
    for name in names:
        for offset in range(20):
            client.write_wal_segment(Position(name, 0, offset), [b"x"])
    store.requests.clear()
    assert client.generations() == names
    assert store.requests == {"list": len(names) + 1}


def test_a_listing_is_consumed_as_it_is_needed() -> None:
    store = FaultyStore(MemoryStore(), script={"list": [Fault.BREAK]})
    client = ObjectReplicaClient(store)
    for offset in range(3):
        client.write_wal_segment(Position(G, 0, offset), [b"x"])
    listing = client.wal_segments(G)
    assert next(listing).position == Position(G, 0, 0)
    with pytest.raises(StoreError, match="injected"):
        next(listing)


def test_a_stream_that_gives_little_at_a_time_is_read_to_its_end() -> None:
    client = ObjectReplicaClient(StoreThatTrickles())
    body = bytes(range(256)) * 3
    client.write_wal_segment(Position(G, 0, 0), [body])
    assert client.read_wal_segment(Position(G, 0, 0)) == body
    assert client.read_wal_segment(Position(G, 0, 0), 5, 20) == body[5:25]


@pytest.mark.slow
@runs_in_child
def test_an_object_that_does_not_end_is_refused() -> None:
    client = ObjectReplicaClient(StoreWithoutEnd())
    with pytest.raises(CorruptObjectError, match=f"more than {MAX_OBJECT_BYTES} bytes"):
        client.read_wal_segment(Position(G, 0, 0))
    with pytest.raises(CorruptObjectError, match="more than 20 bytes"):
        client.read_wal_segment(Position(G, 0, 0), 5, 20)


@pytest.mark.slow
@runs_in_child
def test_a_wal_segment_may_be_larger_if_its_header_says_so() -> None:
    """By what does not compress, and no more: the rest of it is not read."""
    data = Random(0).randbytes(MAX_OBJECT_BYTES + (1 << 20))
    claim, crc = ReplicaBuilder().claim(), crc32c(data)
    header = replace(WalHeader.of(claim, 0, 0), length=len(data), file="1.log", crc=crc, crc_total=crc)
    body, here, other = wal_segment.encode(header, data), header.position, replace(header.position, offset=1)
    store = MemoryStore()
    client = ObjectReplicaClient(store)
    client.write_wal_segment(here, body)
    read = client.read_wal_segment(here)
    assert wal_segment.decode(wal_key(here), read).data() == data
    assert read_bounded(store, wal_key(here)) == read
    client.write_wal_segment(other, body)
    with pytest.raises(CorruptObjectError, match=f"more than {MAX_OBJECT_BYTES} bytes"):
        client.read_wal_segment(other)  # the header names another position


def test_a_stream_that_breaks_is_a_store_error_with_its_key() -> None:
    client = ObjectReplicaClient(FaultyStore(MemoryStore(), script={"open": [Fault.BREAK]}))
    client.write_wal_segment(Position(G, 0, 0), [bytes(100)])
    with pytest.raises(StoreError, match="connection reset") as caught:
        client.read_wal_segment(Position(G, 0, 0))
    assert caught.value.key == wal_key(Position(G, 0, 0))
    assert not isinstance(caught.value, NotFoundError)


def test_a_claim_with_an_epoch_that_has_no_name_is_refused() -> None:
    client = ObjectReplicaClient(MemoryStore())
    for epoch in (-1, 1 << 32):
        with pytest.raises(ValueError, match="epoch"):
            client.write_claim(ClaimName(epoch), b"x")
    assert client.claims() == []


@pytest.mark.parametrize(("start", "length"), [(-1, None), (0, -1), (-5, 3)])
def test_a_range_is_not_negative(start: int, length: int | None) -> None:
    with pytest.raises(ValueError, match="not a range"):
        ByteRange(start, length)


@given(st.text())
def test_a_key_stays_below_its_root(text: str) -> None:
    try:
        require_key(text)
    except ValueError:
        return
    parts = text.split("/")
    assert not {"", ".", ".."} & set(parts)
    assert "\0" not in text
    assert text.encode()


@pytest.mark.parametrize("key", ["a", "a/b", ".hidden", "..a", "a..", "...", "a b/ü/😀", "a" * 1024])
def test_ordinary_keys_are_keys(key: str) -> None:
    require_key(key)
    assert require_prefix(f"{key}/rest") == f"{key}/"


@pytest.mark.parametrize("key", ["", "/", "/a", "a/", "a//b", ".", "..", "a/..", "./a", "a\0", "\ud800", "a" * 1025])
def test_other_texts_are_not(key: str) -> None:
    with pytest.raises(ValueError, match="key"):
        require_key(key)
