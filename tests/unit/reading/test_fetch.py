"""Bytes that changed in transit are fetched again. An error names an object that is damaged in the store."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO

import pytest

from litelog.errors import CorruptObjectError
from litelog.objects import wal_segment
from litelog.objects.layout import wal_key
from litelog.objects.wal_segment import decode_checked, decode_header
from litelog.reading.fetch import AHEAD_PER_WORKER, READ_ATTEMPTS, OrderedPool, read_verified
from litelog.reading.replica_reader import ReplicaReader
from litelog.restore.execution import restore
from litelog.restore.follow import CopyFollower
from litelog.restore.history_plan import Target, find_plan
from litelog.stores.object_store import ObjectReplicaClient
from litelog.verify.execution import verify
from tests.builders.replica_builder import FORMAT, ReplicaBuilder, make_log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from litelog.stores.object_store import ByteRange
    from replica_clients.memory import MemoryStore

LOG = make_log([[3, 2], [4, 1], [5]])


class FlippingStore:
    """Flips one bit of the bytes in the first ``times`` reads of each object."""

    def __init__(self, inner: MemoryStore, times: int, bit: int = 0) -> None:
        self.inner = inner
        self.url = inner.url
        self.enforces_create_only = inner.enforces_create_only
        self.times = times
        self.bit = bit
        self.reads: Counter[str] = Counter()
        self.put, self.list, self.delete, self.close = inner.put, inner.list, inner.delete, inner.close

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        self.reads[key] += 1
        with self.inner.open(key, byte_range) as stream:
            body = bytearray(stream.read())
        if self.reads[key] <= self.times:
            bit = self.bit % (len(body) * 8)
            body[bit // 8] ^= 1 << bit % 8
        return io.BytesIO(body)


def build() -> ReplicaBuilder:
    built = ReplicaBuilder()
    generation = built.add()
    for segment in LOG:
        generation.ship_segment(segment, cuts=[0])
    return built


def build_sealed() -> ReplicaBuilder:
    """Two log segments are sealed, and nothing else has their bytes."""
    built = build()
    generation = built.generations[0]
    generation.snapshot(2)
    built.store.delete([wal_key(position) for position in generation.positions if position.index < 2])
    return built


BITS = [1, *(8 * byte for byte in (1, 10, 40, 100, 200, 300, 400, 500, -1, -30))]
"""The first bit is in the magic number of the skippable frame with which a WAL segment begins. Only the next WAL
segment, which names the digest, shows that this bit was flipped."""


def test_an_object_that_fails_its_check_is_read_again_a_limited_number_of_times() -> None:
    bodies = iter([b"bad", b"bad", b"good"])

    def check(body: bytes) -> bytes:
        if body == b"bad":
            raise CorruptObjectError("key", "it is bad")
        return body

    assert read_verified(lambda: next(bodies), check) == b"good"
    reads = iter([b"bad"] * 10)
    with pytest.raises(CorruptObjectError, match="it is bad"):
        read_verified(lambda: next(reads), check)
    assert len(list(reads)) == 10 - READ_ATTEMPTS


@pytest.mark.slow
def test_any_flipped_bit_of_a_wal_segment_alone_is_found_or_harmless() -> None:
    built = build()
    position = built.generations[0].positions[0]
    body = built.client.read_wal_segment(position)
    meant = decode_checked(wal_key(position), body)
    for bit in range(len(body) * 8):
        flipped = bytearray(body)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            there = decode_checked(wal_key(position), bytes(flipped))
        except CorruptObjectError:
            continue
        # A flip in the name of the header's CRC, in the kind of skippable frame, or a match of LZ4 that is as good.
        assert (there.header, there.data()) == (meant.header, meant.data())


def test_a_header_that_is_read_alone_is_checked_as_well() -> None:
    built = build()
    position = built.generations[0].positions[0]
    body = built.client.read_wal_segment(position)
    flipped = body.replace(b'"owner":"owner1"', b'"owner":"owner3"')
    assert flipped != body
    with pytest.raises(CorruptObjectError, match="CRC-32C"):
        decode_header(wal_key(position), flipped)


@pytest.mark.parametrize("bit", BITS)
def test_a_restore_survives_a_flip_in_each_object(tmp_path: Path, bit: int) -> None:
    client = ObjectReplicaClient(FlippingStore(build().store, 1, bit))
    plan = find_plan(client, Target(), FORMAT)
    client.store.reads.clear()  # type: ignore[attr-defined]
    restore(client, plan, str(tmp_path / "restored"), log_format=FORMAT, parallelism=2)
    for segment in LOG:
        assert (tmp_path / "restored" / segment.name).read_bytes() == segment.data


@pytest.mark.parametrize("bit", BITS)
def test_a_reader_survives_a_flip_in_each_object(bit: int) -> None:
    client = ObjectReplicaClient(FlippingStore(build().store, 1, bit))
    with ReplicaReader(client) as reader:
        assert sum(len(batch) for batch in reader.batches()) == LOG[-1].next


@pytest.mark.parametrize("bit", BITS)
def test_a_verification_survives_a_flip_in_each_object(bit: int) -> None:
    report = verify(FlippingStore(build().store, 1, bit), formats=lambda _: FORMAT)
    assert not report.anomalies
    assert not report.failures


@pytest.mark.parametrize("bit", BITS)
def test_a_copy_that_follows_survives_a_flip_in_each_object(tmp_path: Path, bit: int) -> None:
    built = ReplicaBuilder()
    generation = built.add()
    generation.ship_segment(LOG[0], cuts=[0])
    client = ObjectReplicaClient(FlippingStore(built.store, 1, bit))
    plan = find_plan(client, Target(), FORMAT)
    restore(client, plan, str(tmp_path / "copy"), log_format=FORMAT)
    with CopyFollower(client, str(tmp_path / "copy"), plan, FORMAT) as follower:
        assert not follower.step()
        for segment in LOG[1:]:
            generation.ship_segment(segment, cuts=[0])
        while follower.step():
            pass
    for segment in LOG:
        assert (tmp_path / "copy" / segment.name).read_bytes() == segment.data


@pytest.mark.parametrize("bit", BITS)
def test_sealed_segments_are_read_again_after_a_flip_in_each(tmp_path: Path, bit: int) -> None:
    """A small sealed segment is read as a whole with its footer, so its frames are fetched again, too."""
    client = ObjectReplicaClient(FlippingStore(build_sealed().store, 1, bit))
    plan = find_plan(client, Target(), FORMAT)
    client.store.reads.clear()  # type: ignore[attr-defined]
    restore(client, plan, str(tmp_path / "restored"), log_format=FORMAT, parallelism=2)
    for segment in LOG:
        assert (tmp_path / "restored" / segment.name).read_bytes() == segment.data
    client.store.reads.clear()  # type: ignore[attr-defined]
    with ReplicaReader(client) as reader:
        assert sum(len(batch) for batch in reader.batches()) == LOG[-1].next


@pytest.mark.parametrize("bit", BITS[1:])
def test_damage_in_the_store_is_reported_with_its_key(tmp_path: Path, bit: int) -> None:
    built = build()
    plan = find_plan(built.client, Target(), FORMAT)
    store = FlippingStore(built.store, 0)
    damaged = wal_key(built.generations[0].positions[2])
    body = bytearray(built.store.open(damaged).read())
    place = bit % (len(body) * 8)
    body[place // 8] ^= 1 << place % 8
    built.store.put(damaged, [bytes(body)], create_only=False)
    with pytest.raises(CorruptObjectError, match=damaged):
        restore(ObjectReplicaClient(store), plan, str(tmp_path / "restored"), log_format=FORMAT)
    assert not (tmp_path / "restored").exists()
    with ReplicaReader(ObjectReplicaClient(store)) as reader, pytest.raises(CorruptObjectError, match=damaged):
        list(reader.batches())
    assert store.reads[damaged] <= 3 * READ_ATTEMPTS


@pytest.mark.parametrize("index", [None, 3])
def test_a_header_without_its_crc_is_damaged(index: int | None) -> None:
    """If the checksum could be dropped, the bytes that it covers could be changed."""
    built = build()
    position = built.generations[0].positions[0]
    segment = decode_checked(wal_key(position), built.client.read_wal_segment(position))
    header = segment.header if index is None else replace(segment.header, next=index)
    body = b"".join(wal_segment.encode(header, segment.data()))
    size = int.from_bytes(body[4:8], "little")
    text = body[8 : 8 + size].rpartition(b',"header_crc":')[0] + b"}"
    without = body[:4] + len(text).to_bytes(4, "little") + text + body[8 + size :]
    with pytest.raises(CorruptObjectError, match="header: has no CRC-32C") as caught:
        decode_checked(wal_key(position), without)
    assert caught.value.key == wal_key(position)
    built.store.put(wal_key(position), [without], create_only=False)
    with ReplicaReader(built.client) as reader, pytest.raises(CorruptObjectError, match="has no CRC-32C"):
        list(reader.batches())


def test_a_pool_takes_few_items_ahead_and_gives_the_results_in_order() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    with OrderedPool(2) as pool:
        results = pool.map(lambda number: -number, items())
        for number in range(100):
            assert next(results) == -number
            assert len(taken) <= number + 2 + 2 * AHEAD_PER_WORKER
        assert next(results, None) is None
