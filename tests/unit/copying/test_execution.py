"""Copies of replicas: whole, interrupted, continued, of replicas that change meanwhile, and refused ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litelog.copying.execution import copy
from litelog.errors import (
    ConfigError,
    CorruptionError,
    NoReplicaError,
    NotACopyError,
    ReplicaGapError,
    UnknownVersionError,
)
from litelog.log.writer import LogWriter
from litelog.objects.layout import parse_claim, sealed_key, wal_key
from litelog.reading.replica_reader import ReplicaReader
from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.registry import open_store
from replica_clients.memory import MemoryStore
from tests.builders.bit_flips import ended_and_continued, sealed_and_growing
from tests.builders.growing_replica import GrowingReplica
from tests.builders.replica_builder import FORMAT, ReplicaBuilder, make_log
from tests.builders.restoring import files_in
from tests.builders.stores import CountingStore, Fault, FaultyStore, KilledError, KillingStore
from tests.builders.verify_helper import everything, found, store_of, verified
from tests.sampling import sampled

if TYPE_CHECKING:
    from pathlib import Path

    from litelog.stores.object_store import ObjectStore

LOG = make_log([[2, 3], [1, 2], [4]])
PUTS = len(everything().objects())


def content(store: ObjectStore) -> dict[str, bytes]:
    """All objects of a store, by key."""
    return {info.key: store.open(info.key).read() for info in store.list("")}


def growing() -> ReplicaBuilder:
    """A replica of one generation that has a sealed segment and WAL segments."""
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship_segment(LOG[0], cuts=[0])
    built.snapshot(1)
    built.ship_segment(LOG[1], final=None)
    return builder


def test_a_copy_has_the_same_names_and_bytes() -> None:
    replica, told = everything(), list[tuple[int, int]]()
    replica.store.put("trials/0000000000000001/a", [b"x"])
    replica.store.put("notes.txt", [b"x"])
    target = MemoryStore("target")
    done = copy(replica.store, target, progress=lambda now: told.append((now.bytes, now.total_bytes)))
    objects = {key: body for key, body in replica.objects().items() if key.startswith(("epochs/", "generations/"))}
    assert content(target) == objects
    assert (done.objects, done.total, done.foreign) == (PUTS, PUTS, 1)
    assert (done.bytes, told[-1]) == (done.total_bytes, (done.bytes, done.bytes))
    again = copy(replica.store, target)
    assert (again.objects, again.bytes, again.total) == (0, 0, PUTS)
    assert again.as_json()["total"] == PUTS


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", sampled(range(1, PUTS + 1), 6, "puts of a copy"))
def test_a_copy_that_was_killed_is_no_replica_and_is_continued(at: int, after: bool) -> None:
    replica, target = everything(), MemoryStore("target")
    with pytest.raises(KilledError):
        copy(replica.store, KillingStore(target, at, after=after))
    held = content(target)
    if not any(map(parse_claim, held)):
        with pytest.raises(NoReplicaError):
            copy(target, MemoryStore("other"))
    done = copy(replica.store, target)
    assert content(target) == replica.objects()
    assert done.objects == PUTS - len(held)


def later() -> tuple[dict[str, bytes], ReplicaBuilder]:
    """(objects of a replica at one time, the replica later): sealed, pruned, taken over."""
    builder = growing()
    before = builder.objects()
    built = builder.generations[0]
    built.ship(LOG[1].data[len(LOG[1].data) :], LOG[1].name, final=True)
    built.ship_segment(LOG[2], cuts=[0], final=None)
    built.snapshot(2)
    built.prune(2)
    second = builder.add()
    for segment in LOG:
        second.ship_segment(segment)
    second.snapshot(1)
    return before, builder


def values(store: ObjectStore) -> list[bytes]:
    """The values of a replica's records, as a reader finds them."""
    with ReplicaReader(ObjectReplicaClient(store), formats=lambda _: FORMAT) as reader:
        return [record.value for batch in reader.batches() for record in batch.records()]


def test_a_later_copy_adds_what_is_new_in_the_order_of_the_writers() -> None:
    before, replica = later()
    target = CountingStore(store_of(before))
    done = copy(replica.store, target)
    new = [key for key in replica.objects() if key not in before]
    assert sorted(target.put_keys) == sorted(new)
    assert done.objects == len(new)
    first, second = replica.generations
    turns = [target.put_keys.index(key) for key in (second.claim.key, wal_key(first.slot), second.entries[0].key)]
    assert turns == sorted(turns)
    assert content(target) == replica.objects()
    assert done.removed == len(before.keys() - replica.objects().keys()) > 0
    assert found(verified(target)) == found(verified(replica.store)) == []


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_a_reader_of_a_copy_finds_an_earlier_state_wherever_it_was_killed(after: bool) -> None:
    before, replica = later()
    for at in range(1, len(replica.objects().keys() - before.keys()) + 1):
        target = store_of(before)
        with pytest.raises(KilledError):
            copy(replica.store, KillingStore(target, at, after=after), parallelism=1)
        read = values(target)
        assert len(values(store_of(before))) <= len(read)
        assert read == values(replica.store)[: len(read)]
        copy(replica.store, target)
        assert content(target) == replica.objects()


def test_each_state_of_a_replica_with_retention_is_copied(tmp_path: Path) -> None:
    replica, target = GrowingReplica(tmp_path / "replica"), MemoryStore("target")
    for counts, first in (((3, 2), 0), ((4,), 1), ((1, 1), 3), ((2,), 5)):
        replica.grow(*counts, first=first)
        copy(replica.builder.store, target)
        assert found(verified(target)) == []
        assert content(target).items() >= replica.builder.objects().items()


@pytest.mark.slow
@pytest.mark.parametrize("make", [sealed_and_growing, ended_and_continued, everything])
def test_a_damaged_object_is_not_copied(make: type) -> None:
    """A flipped bit of any object ends the copy, and the target lacks the object. White space of a claim does not
    count, and neither does what encodes the same bytes of the last WAL segment: they are copied as they are."""
    objects = make().objects()
    places = [(key, bit) for key, body in objects.items() for bit in range(8 * len(body))]
    for key, bit in sampled(places, 400, f"bits of {make.__name__} that is copied"):
        body = bytearray(objects[key])
        body[bit // 8] ^= 1 << bit % 8
        damaged, target = objects | {key: bytes(body)}, MemoryStore("target")
        try:
            copy(store_of(damaged), target)
        except (CorruptionError, UnknownVersionError):
            assert key not in content(target)
        else:
            assert content(target) == damaged
            assert found(verified(target)) == found(verified(damaged))


@pytest.mark.parametrize("seed", range(4))
def test_bytes_that_change_in_transit_are_read_again(seed: int) -> None:
    replica, target = everything(), MemoryStore("target")
    source = FaultyStore(replica.store, rates={"open": ((Fault.FLIP, Fault.TRUNCATE), 0.1)}, seed=seed)
    for _ in range(10):
        try:
            copy(source, target)
        except CorruptionError:  # three bad reads of one object
            continue
        break
    assert source.injected
    assert content(target) == replica.objects()


@pytest.mark.parametrize("fault", [Fault.AFTER, Fault.BEFORE])
def test_a_put_whose_answer_was_lost_is_repeated(fault: Fault) -> None:
    import threading

    from litelog.stores.retrying_store import RetryingStore

    replica, target = everything(), MemoryStore("target")
    faulty = FaultyStore(target, script={"put": [fault] * 3})
    copy(replica.store, RetryingStore(faulty, threading.Event(), wait=lambda _: False))
    assert faulty.injected
    assert content(target) == replica.objects()


def test_what_a_listing_does_not_show_yet_is_copied_before_what_names_it() -> None:
    """Another generation begins, and a log segment is sealed, after the listing and before the objects are read."""
    replica = growing()
    source, target = CountingStore(replica.store), MemoryStore("target")
    copy(source, target)

    def meanwhile() -> None:
        built = replica.generations[0]
        built.ship(b"", LOG[1].name, final=True)
        built.snapshot(2)
        hidden = sealed_key(built.name, 1)
        body = replica.store.open(hidden).read()
        replica.store.delete([hidden])
        source.after_list("", lambda: replica.store.put(hidden, [body]))

    meanwhile()
    copy(source, target)
    assert content(target) == replica.objects()
    assert found(verified(target)) == []


@pytest.mark.parametrize("is_new", [True, False])
def test_a_claim_newer_than_the_listing_that_a_terminal_names_is_copied(is_new: bool) -> None:
    replica = growing()
    target = MemoryStore("target") if is_new else store_of(replica.objects())
    claim = replica.claim()
    replica.add(claim)
    body = replica.store.open(claim.key).read()
    replica.store.delete([claim.key])
    source = CountingStore(replica.store)
    source.after_list("", lambda: replica.store.put(claim.key, [body]))
    copy(source, target)
    assert content(target) == replica.objects()


def test_what_retention_removes_meanwhile_is_not_missed(tmp_path: Path) -> None:
    replica, target = GrowingReplica(tmp_path / "replica"), MemoryStore("target")
    replica.grow(3, 2, 4)
    source = CountingStore(replica.builder.store)

    def prune() -> None:
        replica.grow(1, first=2)
        replica.generation.client.delete_snapshots([(replica.generation.name, 3)])

    source.after_list("", prune)
    copy(source, target)
    assert content(target).items() >= replica.builder.objects().items()
    assert found(verified(target)) == []


def test_an_object_that_is_lost_ends_the_copy() -> None:
    replica, target = growing(), MemoryStore("target")
    lost = sealed_key(replica.generations[0].name, 0)
    replica.store.delete([lost])
    with pytest.raises(ReplicaGapError, match=lost):
        copy(replica.store, target)
    assert not any(map(parse_claim, content(target)))


def test_a_target_that_is_no_copy_is_refused_unchanged() -> None:
    replica, other = everything(), growing()
    claim, body = next((key, body) for key, body in replica.objects().items() if parse_claim(key))
    refused = {
        "another replica": other.objects(),
        "an object of another size": {claim: b"x"},
        "another claim": {claim: body[::-1]},
    }
    for objects in refused.values():
        target = store_of(objects)
        with pytest.raises(NotACopyError, match="choose an empty target"):
            copy(replica.store, target)
        assert content(target) == objects


def test_a_copy_that_a_daemon_took_over_is_refused() -> None:
    """Its claim stands for all that it wrote. Without the claim, another object in the slot of a WAL segment does."""
    replica = growing()
    taken = store_of(replica.objects())
    copied = growing()
    copied.add()
    taken = store_of(copied.objects())
    with pytest.raises(NotACopyError, match=r"epochs/00000002.json: only the target has it"):
        copy(replica.store, taken)

    slot = wal_key(replica.generations[0].slot)
    taken = store_of(growing().objects() | {slot: b"the terminal of another owner"})
    copy(replica.store, taken)
    replica.generations[0].ship(LOG[1].data[:0], LOG[1].name, final=True)
    with pytest.raises(NotACopyError, match=slot):
        copy(replica.store, taken)


def test_a_generation_that_the_replica_does_not_know_is_refused() -> None:
    replica = growing()
    target = MemoryStore("target")
    target.put("generations/00000009000000ff/segments/0000000000000000.segment.lz4", [b"x"])
    with pytest.raises(NotACopyError, match="generations/00000009000000ff/"):
        copy(replica.store, target)


def test_places_that_cannot_be_copied_are_named() -> None:
    store = MemoryStore("place")
    with pytest.raises(ConfigError, match="another place"):
        copy(store, store)
    with pytest.raises(NoReplicaError, match="memory://place"):
        copy(store, MemoryStore("target"))


def test_the_folder_of_a_log_is_no_place_for_a_copy(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "log", fsync="never") as writer:
        writer.append(b"x")
    before = files_in(tmp_path / "log")
    with pytest.raises(ConfigError, match="is the folder of a log of litelog: give the replica its own folder"):
        copy(growing().store, open_store(str(tmp_path / "log")))
    assert files_in(tmp_path / "log") == before
    (tmp_path / "log" / "epochs").mkdir()  # a replica there already, by whatever mistake
    copy(growing().store, open_store(str(tmp_path / "log")))
