"""Before its first claim at a destination, an owner tries the store's simultaneous puts and its listings."""

from __future__ import annotations

from io import BytesIO
from random import Random
from typing import TYPE_CHECKING, BinaryIO

import pytest

from litelog.errors import StoreError
from litelog.objects.layout import Fencing
from litelog.replicator.task import Phase, terminal_phase
from litelog.stores.trial import (
    LISTED,
    RACERS,
    ROUNDS,
    NotCreateOnlyError,
    StoreTrials,
    TrialError,
    UnfitStoreError,
    race_keys,
    try_race,
)
from replica_clients.conformance.checks import listed
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon
from tests.builders.log_builder import make_log
from tests.builders.stores import CountingStore, Fault, FaultyStore, InPartsStore, RacyStore, ShortListingStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from typing_extensions import Buffer

    from litelog.stores.object_store import ByteRange, ObjectInfo, ObjectStore
    from tests.builders.log_builder import LogBuilder

PUTS = RACERS * ROUNDS


@pytest.fixture
def trials() -> StoreTrials:
    return StoreTrials(Random(7))


def racing(key: str) -> bool:
    return "/race-" in key


def start(log: LogBuilder, store: ObjectStore, tmp_path: Path, trials: StoreTrials, **more: object) -> Daemon:
    return Daemon(log, store, str(tmp_path / "state"), trials=trials, **more)  # type: ignore[arg-type]


def test_a_store_that_accepts_simultaneous_puts_is_refused_before_the_first_claim(
    log: LogBuilder, tmp_path: Path, trials: StoreTrials
) -> None:
    inner = MemoryStore()
    daemon = start(log, RacyStore(inner, racing, RACERS), tmp_path, trials)
    with pytest.raises(NotCreateOnlyError, match="8 of 8 concurrent create-only puts of one key were acc") as caught:
        daemon.sync()
    assert "Choose a store that refuses a second create-only put of a key; or set fencing: isolated" in str(
        caught.value
    )
    assert terminal_phase(caught.value) is Phase.REJECTED, "trying again does not help"
    assert listed(inner) == [], "there must be no claim, and no object of the trial"


def test_the_same_store_is_taken_with_isolated_fencing(log: LogBuilder, tmp_path: Path, trials: StoreTrials) -> None:
    daemon = start(log, RacyStore(MemoryStore(), racing, RACERS), tmp_path, trials, fencing=Fencing.ISOLATED)
    daemon.sync()
    assert daemon.acknowledged


def test_a_store_whose_uploads_in_parts_race_is_refused(log: LogBuilder, tmp_path: Path, trials: StoreTrials) -> None:
    inner = MemoryStore()
    store = InPartsStore(RacyStore(inner, lambda key: "/parts-" in key, RACERS))
    with pytest.raises(NotCreateOnlyError, match="8 of 8"):
        start(log, store, tmp_path, trials).sync()
    assert listed(inner) == []


class NoSecondPageStore(InPartsStore):
    """A store that cannot list beyond one page."""

    def list_in_pages(self, prefix: str, keys: int) -> Iterator[Sequence[ObjectInfo]]:
        return InPartsStore(ShortListingStore(self.inner, keys)).list_in_pages(prefix, keys)


@pytest.mark.parametrize("fencing", Fencing)
def test_a_store_that_fails_to_list_its_second_page_is_not_claimed(
    log: LogBuilder, tmp_path: Path, trials: StoreTrials, fencing: Fencing
) -> None:
    """One failure does not show whether it lasts. The owner tries again, and names the cause if it lasts."""
    inner = MemoryStore()
    store = NoSecondPageStore(inner)
    daemon = start(log, store, tmp_path, trials, fencing=fencing)
    for _ in range(2):
        with pytest.raises(StoreError, match="5 objects are there, and their listing fails") as caught:
            daemon.sync()
        assert caught.value.retryable
        assert "could not be found by restore; choose another store" in str(caught.value)
    races = 1 if fencing is Fencing.REQUIRED else 0
    assert len([key for key in store.put_keys if "/race-" in key]) == races * RACERS * ROUNDS, (
        "steps that passed must not be repeated"
    )
    assert listed(inner) == []


class UnorderedPagesStore(InPartsStore):
    """A store whose pages are not in the order of their keys."""

    def list_in_pages(self, prefix: str, keys: int) -> Iterator[Sequence[ObjectInfo]]:
        return ([info] for info in [*self.inner.list(prefix)][::-1])


@pytest.mark.parametrize("fencing", Fencing)
def test_a_store_that_lists_out_of_order_is_refused(
    log: LogBuilder, tmp_path: Path, trials: StoreTrials, fencing: Fencing
) -> None:
    inner = MemoryStore()
    with pytest.raises(UnfitStoreError, match="5 objects is not in the order of their keys") as caught:
        start(log, UnorderedPagesStore(inner), tmp_path, trials, fencing=fencing).sync()
    assert "could not be found by restore; choose another store" in str(caught.value)
    assert not isinstance(caught.value, NotCreateOnlyError)
    assert listed(inner) == []


class PutOrderStore(InPartsStore):
    """A store that lists objects in the order in which they were put, or in reverse."""

    def __init__(self, inner: ObjectStore, step: int) -> None:
        super().__init__(inner)
        self._step = step

    def list_in_pages(self, prefix: str, keys: int) -> Iterator[Sequence[ObjectInfo]]:
        sizes = {info.key: info for info in self.inner.list(prefix)}
        return ([sizes[key]] for key in self.put_keys[:: self._step] if key in sizes)


@pytest.mark.parametrize("step", [1, -1])
def test_a_store_that_lists_in_the_order_of_puts_is_refused(
    log: LogBuilder, tmp_path: Path, trials: StoreTrials, step: int
) -> None:
    with pytest.raises(UnfitStoreError, match="5 objects is not in the order of their keys"):
        start(log, PutOrderStore(MemoryStore(), step), tmp_path, trials).sync()


@pytest.mark.parametrize("fencing", Fencing)
@pytest.mark.parametrize("limit", [LISTED - 1, LISTED])
def test_a_store_that_loses_objects_after_a_page_of_a_thousand_is_refused(
    log: LogBuilder, tmp_path: Path, trials: StoreTrials, limit: int, fencing: Fencing
) -> None:
    """It lists short pages without fault."""
    inner = MemoryStore()
    store = InPartsStore(ShortListingStore(inner, limit, silent=True))
    daemon = start(log, store, tmp_path, trials, fencing=fencing)
    if limit == LISTED:
        daemon.sync()
        assert daemon.acknowledged
    else:
        with pytest.raises(UnfitStoreError, match=f"{LISTED} objects are there, and their listing shows {limit}"):
            daemon.sync()
        assert listed(inner) == []
    assert len([key for key in store.put_keys if "/long-" in key]) == LISTED


class KnownStore(InPartsStore):
    """A store of a service that is known to list any number of objects."""

    is_known_to_list = True


@pytest.mark.parametrize(("kind", "listed_keys"), [(KnownStore, 5), (InPartsStore, 5 + LISTED)])
def test_a_good_store_is_tried_first_and_nothing_is_left(
    log: LogBuilder, tmp_path: Path, trials: StoreTrials, kind: type[InPartsStore], listed_keys: int
) -> None:
    store = kind(MemoryStore())
    start(log, store, tmp_path, trials).sync()
    tried = [key for key in store.put_keys if key.startswith("trials/")]
    assert len(tried) == 2 * PUTS + listed_keys
    assert store.put_keys[: len(tried)] == tried, "the trial must precede all other puts"
    assert not [key for key in listed(store) if key.startswith("trials/")]


def test_an_outage_during_the_long_listing_repeats_that_step_alone(
    log: LogBuilder, tmp_path: Path, trials: StoreTrials
) -> None:
    store = FaultyStore(MemoryStore(), {"put": [*[None] * (2 * PUTS + 5 + 700), Fault.BEFORE]})
    in_parts = InPartsStore(store)
    daemon = start(log, in_parts, tmp_path, trials)
    with pytest.raises(StoreError, match="injected: before"):
        daemon.sync()
    in_parts.put_keys.clear()
    daemon.sync()
    tried = [key for key in in_parts.put_keys if key.startswith("trials/")]
    assert len(tried) == LISTED
    assert all("/long-" in key for key in tried)


def test_a_store_that_deletes_nothing_is_taken_and_keeps_a_few_small_objects(
    log: LogBuilder, tmp_path: Path, trials: StoreTrials
) -> None:
    inner = MemoryStore()
    store = FaultyStore(inner, rates={"delete": ([Fault.BEFORE], 1.0)})
    start(log, store, tmp_path, trials).sync()
    assert len([key for key in listed(inner) if key.startswith("trials/")]) == ROUNDS


def test_a_store_that_deletes_nothing_is_listed_without_the_objects_of_the_races(
    log: LogBuilder, tmp_path: Path, trials: StoreTrials
) -> None:
    """On S3, a policy may permit no deletions. The listing must not count the objects that the races put there."""
    inner = MemoryStore()
    store = InPartsStore(FaultyStore(inner, rates={"delete": ([Fault.BEFORE], 1.0)}))
    start(log, store, tmp_path, trials).sync()
    left = [key for key in listed(inner) if key.startswith("trials/")]
    assert len(left) == 2 * ROUNDS + 5, "a long listing would leave a thousand more"


def test_many_logs_at_one_destination_have_it_tried_once(tmp_path: Path, trials: StoreTrials) -> None:
    """Each log has its own prefix at the destination, and so its own store."""
    stores = [CountingStore(MemoryStore()) for _ in range(3)]
    for number, store in enumerate(stores):
        log = make_log(tmp_path / f"log{number}")
        log.roll(1)
        Daemon(log, store, str(tmp_path / f"state{number}"), trials=trials).sync()
    assert [len([key for key in store.put_keys if key.startswith("trials/")]) for store in stores] == [PUTS, 0, 0]


def test_a_verdict_stands_for_all_logs_of_the_process(tmp_path: Path, trials: StoreTrials) -> None:
    store = RacyStore(MemoryStore(), racing, RACERS)
    for number in range(2):
        log = make_log(tmp_path / f"log{number}")
        log.roll(1)
        with pytest.raises(NotCreateOnlyError):
            Daemon(log, store, str(tmp_path / f"state{number}"), trials=trials).sync()
    assert store.requests["put"] == RACERS, "the first race must decide"


def test_an_owner_that_passed_the_trial_claims_again_without_one(
    log: LogBuilder, tmp_path: Path, trials: StoreTrials
) -> None:
    """The owner claims again after a restart, in another process, with a reason to begin a new generation."""
    store = CountingStore(MemoryStore())
    daemon = start(log, store, tmp_path, trials)
    daemon.sync()
    store.put_keys.clear()
    daemon.trials = StoreTrials(Random(8))
    daemon.restart()
    log.truncate(len(log.texts[log.name]) - 8)
    daemon.sync()
    assert len({shipped.header.generation for shipped in daemon.acknowledged}) == 2
    assert not [key for key in store.put_keys if key.startswith("trials/")]


def test_an_owner_that_lost_its_state_has_it_tried_again(log: LogBuilder, tmp_path: Path, trials: StoreTrials) -> None:
    store = CountingStore(MemoryStore())
    daemon = start(log, store, tmp_path, trials)
    daemon.sync()
    daemon.lose_state()
    store.put_keys.clear()
    daemon.trials = StoreTrials(Random(8))
    daemon.start(takeover=True)
    daemon.sync()
    assert len([key for key in store.put_keys if key.startswith("trials/")]) == PUTS


def test_another_fencing_is_another_trial(log: LogBuilder, tmp_path: Path, trials: StoreTrials) -> None:
    store = CountingStore(MemoryStore())
    daemon = start(log, store, tmp_path, trials, fencing=Fencing.ISOLATED)
    daemon.sync()
    assert not [key for key in store.put_keys if key.startswith("trials/")], "names keep these owners apart"
    daemon.fencing = Fencing.REQUIRED
    daemon.restart()
    daemon.sync()
    assert len([key for key in store.put_keys if key.startswith("trials/")]) == PUTS


def test_if_all_requests_fail_nothing_is_decided(log: LogBuilder, tmp_path: Path, trials: StoreTrials) -> None:
    store = FaultyStore(MemoryStore(), {"put": [Fault.BEFORE] * RACERS})
    daemon = start(log, store, tmp_path, trials)
    with pytest.raises(StoreError, match="injected: before") as caught:
        daemon.sync()
    assert caught.value.retryable
    daemon.sync()
    assert daemon.acknowledged


def test_answers_that_are_lost_are_not_held_against_a_store() -> None:
    """The winner's answer is lost, and the store refused all others."""
    store = FaultyStore(MemoryStore(), {"put": [Fault.AFTER] * RACERS})
    keys = race_keys("trials/1/")[:1]
    try_race(store, keys)
    assert store.injected["put", Fault.AFTER] == RACERS


def test_an_object_that_is_not_the_winners_is_found() -> None:
    class Swapping(CountingStore):
        """Accepts one put, but stores the bytes of another."""

        def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:  # type: ignore[no-untyped-def]
            own = b"".join(body)
            super().put(key, [own], create_only=create_only)
            self.inner.put(key, [b"writer 1" if own == b"writer 0" else b"writer 0"], create_only=False)

    with pytest.raises(TrialError, match="and holds another"):
        try_race(Swapping(MemoryStore()), race_keys("trials/1/"))


def test_a_bit_that_flips_on_the_way_is_not_held_against_a_store() -> None:
    class Flipping(CountingStore):
        """Gives other bytes than any that were put."""

        def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
            return BytesIO(b"writes 0")

    with pytest.raises(StoreError, match="other bytes than any that were put") as caught:
        try_race(Flipping(MemoryStore()), race_keys("trials/1/"))
    assert caught.value.retryable


@pytest.mark.slow
def test_a_store_that_refuses_a_free_key_is_found() -> None:
    class Refusing(CountingStore):
        """Reports that every key is taken."""

        def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:  # type: ignore[no-untyped-def]
            super().put("another", body, create_only=create_only)

    store = Refusing(MemoryStore())
    store.put("another", [b"x"])
    with pytest.raises(TrialError, match="none of 8 create-only puts of a free key was accepted"):
        try_race(store, race_keys("trials/1/"))
