"""The ends of generations: found by one listing and two reads, and by reading forward from there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litelog.errors import CorruptObjectError, NotFoundError
from litelog.objects.position import ClaimName
from litelog.reading.generations import find_tip, newest_claims, read_claim, read_forward
from litelog.shipping.claiming import close_below
from litelog.stores.object_store import ObjectReplicaClient
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon
from tests.builders.independent_reader import objects, read_replica
from tests.builders.manual_clock import ManualClock
from tests.builders.stores import CountingStore

if TYPE_CHECKING:
    from pathlib import Path

    from tests.builders.log_builder import LogBuilder


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(MemoryStore("test"))


@pytest.fixture
def daemon(log: LogBuilder, store: CountingStore, tmp_path: Path) -> Daemon:
    made = Daemon(log, store, str(tmp_path / "state"))
    made.sync()
    return made


def test_a_tip_is_the_next_slot_and_the_last_digest(daemon: Daemon, log: LogBuilder, store: CountingStore) -> None:
    client = ObjectReplicaClient(store)
    claim = read_claim(client, ClaimName(1))
    for _ in range(4):
        log.append(1)
        daemon.sync()
        log.roll(1)
        daemon.sync()
        store.requests.clear()
        tip = find_tip(client, claim)
        assert tip.slot == daemon.replica.position
        (generation,) = read_replica(store.inner).values()
        assert tip.digest == generation.segments[-1][2]
        assert tip.terminal is None
        assert tip.started
        assert store.requests["list"] == 1
        assert store.requests["open"] <= 3


def test_a_tip_read_forward_finds_later_objects(daemon: Daemon, log: LogBuilder, store: CountingStore) -> None:
    client = ObjectReplicaClient(store)
    tip = find_tip(client, read_claim(client, ClaimName(1)))
    assert read_forward(client, tip) == tip
    for _ in range(3):
        log.append(1)
        daemon.sync()
    forward = read_forward(client, tip)
    assert forward == find_tip(client, read_claim(client, ClaimName(1)))
    assert forward.slot == daemon.replica.position


def test_a_generation_with_only_a_claim_has_not_started(daemon: Daemon, store: CountingStore) -> None:
    client = ObjectReplicaClient(store)
    claim = read_claim(client, ClaimName(1))
    wal = [key for key in objects(store.inner) if "/wal/" in key]
    store.inner.delete(wal)
    tip = find_tip(client, claim)
    assert (tip.slot.index, tip.slot.offset, tip.last, tip.started) == (0, 0, None, True)
    store.inner.delete([key for key in objects(store.inner) if "/snapshots/" in key])
    assert not find_tip(client, claim).started
    assert daemon.acknowledged


@pytest.mark.slow
def test_closing_is_done_once_and_stops_at_the_first_that_had_started(
    daemon: Daemon, log: LogBuilder, store: CountingStore, tmp_path: Path
) -> None:
    rival = Daemon(log, store, str(tmp_path / "rival"), seed=1, takeover=True)
    rival.sync()
    client = ObjectReplicaClient(store)
    first, second = read_claim(client, ClaimName(1)), read_claim(client, ClaimName(2))
    before = objects(store.inner)
    tips = close_below(client, second, newest_claims(client, [ClaimName(1)]), ManualClock())
    assert objects(store.inner) == before
    terminal = tips[first.generation].terminal
    assert terminal is not None
    assert terminal.successor == "epochs/00000002.json"
    assert tips[first.generation].slot == daemon.replica.position
    third = close_below(client, second, newest_claims(client, [ClaimName(1), ClaimName(2)]), ManualClock())
    assert set(third) == {second.generation}


@pytest.mark.slow
def test_claims_come_newest_first_and_a_missing_one_is_reported(
    daemon: Daemon, log: LogBuilder, store: CountingStore, tmp_path: Path
) -> None:
    Daemon(log, store, str(tmp_path / "rival"), seed=1, takeover=True).sync()
    client = ObjectReplicaClient(store)
    assert [claim.epoch for claim in newest_claims(client, client.claims())] == [2, 1]
    with pytest.raises(NotFoundError):
        read_claim(client, ClaimName(3))
    store.inner.put("epochs/00000003.json", [objects(store.inner)["epochs/00000001.json"]])
    with pytest.raises(CorruptObjectError, match="epoch"):
        read_claim(client, ClaimName(3))
    assert daemon.claims
