"""Isolated fencing: the store cannot keep writers apart, so each owner writes only to its own generations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from litelog.errors import FencedError, ForeignClaimError, ReplicaGapError
from litelog.objects.layout import CLAIMS, Fencing, claim_key, parse_claim
from litelog.objects.position import generation
from litelog.reading.latest import find_claim, find_latest
from litelog.shipping.claiming import NotCreateOnlyError, SucceededError
from litelog.shipping.ownership_guard import LOOK_SECONDS
from litelog.stores.object_store import ObjectReplicaClient
from litelog.verify.execution import verify
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon, restored
from tests.builders.independent_reader import objects, read_replica
from tests.builders.stores import CarelessStore

if TYPE_CHECKING:
    from tests.builders.log_builder import LogBuilder


@pytest.fixture
def store() -> CarelessStore:
    return CarelessStore(MemoryStore("test"))


class Owners:
    """Daemons with isolated fencing over one log and one store, each with its own state folder."""

    def __init__(self, log: LogBuilder, store: CarelessStore, folder: Path) -> None:
        self.log, self.store, self.folder = log, store, folder
        self.count = 0

    def start(self, *, takeover: bool = False, fencing: Fencing = Fencing.ISOLATED) -> Daemon:
        self.count += 1
        state = str(self.folder / f"state{self.count}")
        return Daemon(self.log, self.store, state, seed=self.count, takeover=takeover, fencing=fencing)

    def restart(self, daemon: Daemon, fencing: Fencing, store: CarelessStore | MemoryStore | None = None) -> Daemon:
        """The same owner, with another fencing or store."""
        daemon.close()
        return Daemon(self.log, store or self.store, daemon.state, seed=99, fencing=fencing)

    def restored(self, name: str | None = None) -> dict[str, bytes]:
        """The restored log segments of the latest generation, or of the generation of that name."""
        return restored(self.store, self.folder / "restored", self.log.format, name)


@pytest.fixture
def owners(log: LogBuilder, store: CarelessStore, tmp_path: Path) -> Owners:
    return Owners(log, store, tmp_path)


def claim_keys(store: CarelessStore) -> list[str]:
    return [key for key in objects(store.inner) if key.startswith(CLAIMS)]


def of_generation(store: CarelessStore, name: str) -> dict[str, bytes]:
    return {key: body for key, body in objects(store.inner).items() if f"/{name}/" in key}


def test_a_store_that_ignores_create_only_is_refused_and_the_error_names_the_setting(owners: Owners) -> None:
    with pytest.raises(NotCreateOnlyError, match=r"not refused.*fencing: isolated.*gives up that only one") as caught:
        owners.start(fencing=Fencing.REQUIRED).sync()
    assert claim_key(1) in str(caught.value)
    assert list(objects(owners.store.inner)) == [claim_key(1)]


def test_a_client_that_only_looks_is_refused_by_default_before_any_request(owners: Owners) -> None:
    owners.store.enforces_create_only = False
    with pytest.raises(NotCreateOnlyError, match=r"two may do so at once.*fencing: isolated"):
        owners.start(fencing=Fencing.REQUIRED).sync()
    assert owners.store.total() == 0
    owners.start().sync()
    assert owners.restored() == owners.log.files()


@pytest.mark.slow
def test_isolated_fencing_uses_such_a_store_and_names_claims_by_generation(owners: Owners) -> None:
    daemon = owners.start()
    for _ in range(3):
        daemon.sync()
        owners.log.append(2)
        owners.log.roll(1)
    daemon.sync()
    (key,) = claim_keys(owners.store)
    assert parse_claim(key) == (1, daemon.generation)
    assert json.loads(objects(owners.store.inner)[key])["fencing"] == "isolated"
    assert owners.restored() == owners.restored(daemon.generation) == owners.log.files()


def test_a_claim_with_required_fencing_is_spelled_as_ever(log: LogBuilder, tmp_path: Path) -> None:
    store = MemoryStore("test")
    daemon = Daemon(log, store, str(tmp_path / "state"))
    daemon.sync()
    claim = json.loads(objects(store)[claim_key(1)])
    assert "fencing" not in claim
    assert find_claim(ObjectReplicaClient(store), daemon.generation).fencing is Fencing.REQUIRED


def test_a_store_that_fences_may_be_used_isolated(log: LogBuilder, tmp_path: Path) -> None:
    store = MemoryStore("test")
    Daemon(log, store, str(tmp_path / "state"), fencing=Fencing.ISOLATED).sync()
    assert claim_key(1) not in objects(store)
    assert find_latest(ObjectReplicaClient(store)).is_isolated


def test_a_restart_with_valid_state_costs_three_requests(owners: Owners) -> None:
    daemon = owners.start()
    daemon.sync()
    name = daemon.generation
    daemon.close()
    daemon.start()
    owners.store.requests.clear()
    daemon.sync()
    assert owners.store.requests == {"list": 2, "open": 1}
    assert daemon.generation == name


def test_segments_that_were_shipped_before_a_crash_are_found_and_not_overwritten(owners: Owners) -> None:
    daemon = owners.start()
    daemon.sync()
    old = Path(daemon.state, "state.json").read_bytes()
    for _ in range(3):
        owners.log.append(1)
        daemon.sync()
    before = objects(owners.store.inner)
    daemon.crash()
    Path(daemon.state, "state.json").write_bytes(old)
    daemon.start()
    owners.log.append(5)
    daemon.sync()
    after = objects(owners.store.inner)
    assert {key: after[key] for key in before} == before
    assert len(claim_keys(owners.store)) == 1
    assert owners.restored() == owners.log.files()
    assert read_replica(owners.store.inner)[daemon.generation].files() == owners.log.files()


def test_an_owner_ends_its_own_generation(owners: Owners) -> None:
    daemon = owners.start()
    daemon.sync()
    first = daemon.generation
    owners.log.next -= 3
    owners.log.overwrite(0, owners.log.header() + b"".join(owners.log.commit(tag=b"R") for _ in range(3)))
    daemon.sync()
    generations = read_replica(owners.store.inner)
    assert list(generations) == [first, daemon.generation]
    assert generations[first].terminal
    assert generations[daemon.generation].claim["relation"] == "diverged"
    assert owners.restored() == owners.log.files()


def start_two_at_once(owners: Owners) -> tuple[Daemon, Daemon]:
    """Both see an empty replica: the second one starts and ships while the first one puts its claim."""
    one, two = owners.start(), owners.start()
    owners.store.before_put(CLAIMS, two.sync)
    one.sync()
    return one, two


def test_two_that_start_at_once_write_two_generations_that_never_mix(owners: Owners) -> None:
    one, two = start_two_at_once(owners)
    for daemon in (one, two, one, two):
        owners.log.append(1)
        daemon.sync()
    one.sync()
    assert [parse_claim(key) for key in claim_keys(owners.store)] == [
        (1, name) for name in sorted((one.generation, two.generation))
    ]
    generations = read_replica(owners.store.inner)
    assert {generation.claim["owner"] for generation in generations.values()} == {
        claim.owner for daemon in (one, two) for claim in daemon.claims
    }
    for name in (one.generation, two.generation):
        assert owners.restored(name) == owners.log.files()


def test_readers_choose_the_highest_of_one_epoch_no_matter_which_was_first(owners: Owners) -> None:
    one, two = start_two_at_once(owners)
    owners.log.append(1)
    highest, other = sorted((one, two), key=lambda daemon: daemon.generation, reverse=True)
    other.sync()
    assert find_latest(ObjectReplicaClient(owners.store)).generation == highest.generation
    assert owners.restored() == read_replica(owners.store.inner)[highest.generation].files()
    assert owners.restored(other.generation) == owners.log.files()


def test_both_continue_after_a_restart(owners: Owners) -> None:
    daemons = start_two_at_once(owners)
    names = [daemon.generation for daemon in daemons]
    for daemon in daemons:
        daemon.close()
        daemon.start()
        owners.log.append(1)
        daemon.sync()
    assert [daemon.generation for daemon in daemons] == names


def test_a_foreign_claim_is_not_taken_over_without_permission(owners: Owners) -> None:
    owners.start().sync()
    before = objects(owners.store.inner)
    with pytest.raises(ForeignClaimError, match="--takeover"):
        owners.start().sync()
    assert objects(owners.store.inner) == before


def test_of_two_owners_that_have_to_begin_again_the_higher_one_stays(owners: Owners) -> None:
    lower, higher = sorted(start_two_at_once(owners), key=lambda daemon: daemon.generation)
    owners.log.next -= 3
    owners.log.overwrite(0, owners.log.header() + b"".join(owners.log.commit(tag=b"R") for _ in range(3)))
    with pytest.raises(ForeignClaimError):
        lower.sync()
    assert len(claim_keys(owners.store)) == 2
    higher.sync()
    assert len(claim_keys(owners.store)) == 3
    owners.log.append(1)
    higher.sync()
    assert find_latest(ObjectReplicaClient(owners.store)).generation == higher.generation
    assert owners.restored() == owners.log.files()


def test_a_takeover_leaves_the_old_generation_as_it_is(owners: Owners) -> None:
    old = owners.start()
    old.sync()
    before = of_generation(owners.store, old.generation)
    new = owners.start(takeover=True)
    owners.log.append(1)
    new.sync()
    assert of_generation(owners.store, old.generation) == before
    claim = find_latest(ObjectReplicaClient(owners.store))
    assert (claim.generation, claim.predecessor, claim.epoch) == (new.generation, old.generation, 2)
    assert owners.restored() == owners.log.files()


def test_the_old_owner_ships_until_it_sees_the_new_claim_and_loses_no_records(owners: Owners) -> None:
    old = owners.start()
    old.sync()
    owners.start(takeover=True).sync()
    owners.log.append(1)
    old.sync()
    whole = owners.log.files()
    old.clock.advance(LOOK_SECONDS)
    owners.log.append(1)
    for _ in range(2):
        with pytest.raises(SucceededError):
            old.sync()
    assert owners.restored(old.generation) == whole


def test_verify_accepts_an_isolated_generation_that_grew_after_its_successor_claimed(owners: Owners) -> None:
    old = owners.start()
    old.sync()
    owners.start(takeover=True).sync()
    owners.log.append(1)
    old.sync()
    old.restart(takeover=True)
    owners.log.append(1)
    old.sync()  # the same owner ends its own generation, after the end that the other one saw
    report = verify(owners.store, formats=lambda _: owners.log.format)
    assert [str(anomaly) for anomaly in report.anomalies if anomaly.harmful] == []


def test_an_owner_looks_once_a_minute_while_it_ships_and_never_while_it_is_idle(owners: Owners) -> None:
    daemon = owners.start()
    daemon.sync()
    owners.store.requests.clear()
    daemon.clock.advance(LOOK_SECONDS * 10)
    assert not daemon.sync()
    assert owners.store.total() == 0
    for _ in range(3):
        owners.log.append(1)
        daemon.sync()
    assert owners.store.requests == {"list": 1, "open": 3, "put": 3}


def test_an_old_owner_that_starts_again_is_fenced(owners: Owners) -> None:
    old = owners.start()
    old.sync()
    owners.start(takeover=True).sync()
    old.close()
    old.start()
    with pytest.raises(SucceededError):
        old.sync()


def test_an_owner_whose_claim_comes_late_writes_nothing_else(owners: Owners) -> None:
    late, first, second = owners.start(), owners.start(), owners.start(takeover=True)

    def overtake() -> None:
        first.sync()
        second.sync()

    owners.store.before_put(CLAIMS, overtake)
    with pytest.raises(SucceededError):
        late.sync()
    names = {generation for _, generation in map(parse_claim, claim_keys(owners.store)) if generation}  # type: ignore[misc]
    assert len(names) == 3
    (mine,) = names - {first.generation, second.generation}
    assert not of_generation(owners.store, mine)
    assert owners.restored() == owners.log.files()


def test_a_missing_claim_of_an_isolated_generation_is_missed(owners: Owners) -> None:
    one, two = start_two_at_once(owners)
    for name in (one.generation, two.generation):
        kept = objects(owners.store.inner)[claim_key(1, generation(name))]
        owners.store.inner.delete([claim_key(1, generation(name))])
        with pytest.raises(ReplicaGapError, match=name):
            find_latest(ObjectReplicaClient(owners.store))
        owners.store.inner.put(claim_key(1, generation(name)), [kept])
    assert find_latest(ObjectReplicaClient(owners.store)).epoch == 1


def test_a_refused_replica_is_used_once_it_is_configured_isolated(owners: Owners) -> None:
    daemon = owners.start(fencing=Fencing.REQUIRED)
    with pytest.raises(NotCreateOnlyError):
        daemon.sync()
    daemon = owners.restart(daemon, Fencing.ISOLATED)
    daemon.sync()
    assert [parse_claim(key) for key in claim_keys(owners.store)] == [(1, None), (2, daemon.generation)]
    assert owners.restored() == owners.log.files()


@pytest.mark.parametrize("before", list(Fencing))
def test_an_owner_that_changes_its_fencing_continues_in_a_new_generation(
    owners: Owners, before: Fencing, tmp_path: Path
) -> None:
    store = MemoryStore("test")
    daemon = Daemon(owners.log, store, str(tmp_path / "state"), fencing=before)
    daemon.sync()
    first = daemon.generation
    (after,) = set(Fencing) - {before}
    daemon = owners.restart(daemon, after, store)
    owners.log.append(1)
    daemon.sync()
    generations = read_replica(store)
    assert list(generations) == [first, daemon.generation]
    assert generations[first].terminal
    assert generations[daemon.generation].claim["relation"] == "continues"
    assert find_latest(ObjectReplicaClient(store)).fencing is after
    assert generations[daemon.generation].files() == owners.log.files()


@pytest.mark.slow
@pytest.mark.parametrize("before", list(Fencing))
def test_between_owners_of_different_fencing_the_old_one_is_fenced_at_its_next_put(
    owners: Owners, before: Fencing, tmp_path: Path
) -> None:
    """An owner that is not isolated has a store that fences, where a terminal can replace nothing."""
    store = MemoryStore("test")
    (after,) = set(Fencing) - {before}
    old = Daemon(owners.log, store, str(tmp_path / "old"), fencing=before)
    old.sync()
    Daemon(owners.log, store, str(tmp_path / "new"), seed=1, takeover=True, fencing=after).sync()
    owners.log.append(1)
    with pytest.raises(FencedError, match="succeeded by"):
        old.sync()
    assert read_replica(store)[old.generation].terminal


@pytest.mark.slow
def test_required_fencing_closes_every_isolated_generation_below(owners: Owners, tmp_path: Path) -> None:
    store = MemoryStore("test")
    for number in range(3):
        state = str(tmp_path / f"isolated{number}")
        Daemon(owners.log, store, state, seed=number, takeover=True, fencing=Fencing.ISOLATED).sync()
    assert not any(generation.terminal for generation in read_replica(store).values())
    Daemon(owners.log, store, str(tmp_path / "required"), seed=9, takeover=True).sync()
    *below, last = read_replica(store).values()
    assert all(generation.terminal for generation in below)
    assert not last.terminal
