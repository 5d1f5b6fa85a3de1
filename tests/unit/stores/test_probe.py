"""The probe accepts stores that keep their promises, and names the promises that other stores break."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from litelog.errors import StoreError
from litelog.objects.layout import Fencing
from litelog.stores.object_store import NotSupportedError
from litelog.stores.probe import (
    CREATE_ONLY,
    FENCING_STEPS,
    LONG_LISTING,
    RACE,
    RACE_IN_PARTS,
    ProbeStep,
    StepOutcome,
    run_probe,
)
from litelog.stores.trial import LISTED, RACERS
from litelog.system.clock import SystemClock
from replica_clients.file import open_store
from replica_clients.memory import MemoryStore
from tests.builders.stores import InPartsStore, RacyStore, ShortListingStore, UnsortedStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.stores.object_store import ByteRange, ObjectInfo, ObjectStore

STEPS = [
    *("put", "get and compare", "list", CREATE_ONLY, RACE, RACE_IN_PARTS),
    *("ranged read", "delete", LONG_LISTING),
]


class Lacking:
    """A store that lacks one thing."""

    def __init__(self, inner: ObjectStore, lacks: str) -> None:
        self.inner, self.lacks, self.url, self.enforces_create_only = (
            inner,
            lacks,
            inner.url,
            inner.enforces_create_only,
        )

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        self.refuse("put", key)
        if create_only and self.lacks == "create-only put":
            raise NotSupportedError("put", key, "no such header here")
        self.inner.put(key, body, create_only=create_only and self.lacks != CREATE_ONLY)

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        self.refuse("get and compare", key)
        return self.inner.open(key, None if self.lacks == "ranged read" else byte_range)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return iter(()) if self.lacks == "list" else self.inner.list(prefix, start_after)

    def delete(self, keys: Iterable[str]) -> None:
        self.refuse("delete", "")
        self.inner.delete(keys)

    def close(self) -> None:
        self.inner.close()

    def refuse(self, step: str, key: str) -> None:
        if self.lacks == step:
            raise StoreError(step, key, "not permitted")


def probe(store: ObjectStore, fencing: Fencing = Fencing.REQUIRED, listed: int = 20) -> dict[str, ProbeStep]:
    return {step.name: step for step in run_probe(store, SystemClock(), random.Random(1), fencing, listed)}


def failed(steps: dict[str, ProbeStep]) -> set[str]:
    return {name for name, step in steps.items() if step.outcome in {StepOutcome.FAILED, StepOutcome.SKIPPED}}


def outcomes(store: ObjectStore) -> dict[str, StepOutcome]:
    return {name: step.outcome for name, step in probe(store).items()}


def folder(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path / "replica"), {})


def left(tmp_path: Path) -> list[Path]:
    return [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_good_store_passes_every_step_that_it_offers_and_nothing_is_left(tmp_path: Path) -> None:
    found = outcomes(folder(tmp_path))
    assert list(found) == STEPS
    assert {name for name, outcome in found.items() if outcome is not StepOutcome.PASSED} == {RACE_IN_PARTS}
    assert found[RACE_IN_PARTS] is StepOutcome.NOT_OFFERED
    assert left(tmp_path) == []


def test_a_step_that_a_good_store_does_not_offer_does_not_matter(tmp_path: Path) -> None:
    """The report does not describe the consequence of a failure of this step."""
    assert probe(folder(tmp_path))[RACE_IN_PARTS].meaning == "harmless: each object is uploaded in one request"


@pytest.mark.parametrize(
    ("lacks", "also"),
    [
        ("ranged read", set()),
        ("list", {LONG_LISTING}),
        (CREATE_ONLY, {RACE, RACE_IN_PARTS}),
        ("delete", set()),
    ],
)
def test_missing_features_of_a_store_are_named_and_the_others_still_tried(
    tmp_path: Path, lacks: str, also: set[str]
) -> None:
    assert failed(probe(Lacking(folder(tmp_path), lacks))) == {lacks} | also


def test_after_a_failed_put_the_probe_skips_all_other_steps(tmp_path: Path) -> None:
    found = outcomes(Lacking(folder(tmp_path), "put"))
    assert found.pop("put") is StepOutcome.FAILED
    assert set(found.values()) == {StepOutcome.SKIPPED}
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_accepts_a_second_put_is_good_for_isolated_fencing_alone(tmp_path: Path) -> None:
    store = Lacking(folder(tmp_path), CREATE_ONLY)
    for fencing in Fencing:
        steps = probe(store, fencing)
        assert steps[CREATE_ONLY].outcome is StepOutcome.FAILED
        assert steps[CREATE_ONLY].required is (fencing is Fencing.REQUIRED)
        assert "a second put" in steps[CREATE_ONLY].reason
        assert "fencing: isolated accepts it, and gives up" in steps[CREATE_ONLY].meaning
        assert failed(steps) == FENCING_STEPS


def test_a_store_that_has_no_create_only_put_is_tried_without(tmp_path: Path) -> None:
    steps = probe(Lacking(folder(tmp_path), "create-only put"))
    assert steps[CREATE_ONLY].outcome is StepOutcome.FAILED
    assert "no such header here" in steps[CREATE_ONLY].reason
    assert failed(steps) == FENCING_STEPS
    assert left(tmp_path) == []


@pytest.mark.slow
def test_a_client_that_looks_and_then_writes_refuses_no_writer(tmp_path: Path) -> None:
    store = Lacking(folder(tmp_path), "")
    assert probe(store)[CREATE_ONLY].outcome is StepOutcome.PASSED
    store.enforces_create_only = False
    step = probe(store)[CREATE_ONLY]
    assert step.outcome is StepOutcome.FAILED
    assert "two clients may do so at once" in step.reason


def test_a_store_that_accepts_simultaneous_puts_is_fit_for_isolated_fencing_only() -> None:
    """The store refuses the second of two successive puts, so a claim that is put twice does not detect it."""
    inner = MemoryStore()
    store = RacyStore(inner, lambda key: "/race-" in key, RACERS)
    for fencing in Fencing:
        steps = probe(store, fencing)
        assert failed(steps) == {RACE, RACE_IN_PARTS}
        assert steps[RACE].required is (fencing is Fencing.REQUIRED)
        assert "8 of 8 concurrent create-only puts of one key were accepted" in steps[RACE].reason
        assert "fencing: isolated accepts it, and gives up" in steps[RACE].meaning
    assert list(inner.list("")) == []


@pytest.mark.slow
def test_a_store_whose_uploads_in_parts_race_is_good_for_isolated_fencing_alone() -> None:
    store = InPartsStore(RacyStore(MemoryStore(), lambda key: "/parts-" in key, RACERS))
    steps = probe(store)
    assert failed(steps) == {RACE_IN_PARTS}
    assert "8 of 8 concurrent create-only puts" in steps[RACE_IN_PARTS].reason
    assert not failed(probe(InPartsStore(MemoryStore())))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store", "reason"),
    [
        (ShortListingStore(MemoryStore(), 1000), "1001 objects are there, and their listing fails: We encountered an"),
        (ShortListingStore(MemoryStore(), 1000, silent=True), "1001 objects are there, and their listing shows 1000"),
        (UnsortedStore(MemoryStore()), "the listing of 1001 objects is not in the order of their keys"),
    ],
    ids=["fails after a page", "ends after a page", "not in order"],
)
def test_a_store_that_cannot_list_more_than_a_page_is_good_for_nothing(store: ObjectStore, reason: str) -> None:
    steps = probe(store, Fencing.ISOLATED, LISTED)
    assert failed(steps) == {LONG_LISTING}
    assert steps[LONG_LISTING].required
    assert reason in steps[LONG_LISTING].reason
    assert "could not be found by restore" in steps[LONG_LISTING].meaning
    assert next(store.list(""), None) is None, "the probe has left objects"


@pytest.mark.slow
def test_no_thousand_objects_are_left_where_nothing_can_be_deleted() -> None:
    inner = MemoryStore()
    steps = probe(Lacking(inner, "delete"), listed=LISTED)
    step = steps[LONG_LISTING]
    assert (step.outcome, step.required) == (StepOutcome.NOT_OFFERED, False)
    assert "1,001 objects would stay" in step.reason
    assert step.meaning == "it is unknown whether the store lists them all"
    assert len(list(inner.list(""))) < 10
