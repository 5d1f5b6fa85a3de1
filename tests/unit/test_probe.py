"""The probe passes what keeps its promises, and names what does not."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from litelog.clock import SystemClock
from litelog.errors import StoreError
from litelog.layout import Fencing
from litelog.object_store import NotOfferedError
from litelog.probe import CREATE_ONLY, Outcome, Step, run_probe
from replica_clients.file import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.object_store import ByteRange, ObjectInfo, ObjectStore

STEPS = ["put", "get and compare", "list", CREATE_ONLY, "conditional delete", "ranged read", "delete"]


class Lacking:
    """A store that lacks one thing."""

    def __init__(self, inner: ObjectStore, lacks: str) -> None:
        self.inner, self.lacks, self.url, self.fences = inner, lacks, inner.url, inner.fences

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        self.refuse("put", key)
        if create_only and self.lacks == "create-only put":
            raise NotOfferedError("put", key, "no such header here")
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


class Tagging(Lacking):
    """A store with conditional deletes, which lacks one thing."""

    def tag(self, key: str) -> str:
        with self.inner.open(key) as stream:
            return repr(stream.read())

    def delete_unchanged(self, key: str, tag: str) -> bool:
        if self.lacks == "condition":
            raise NotOfferedError("delete", key, "no such condition here")
        if self.lacks == "right to delete on a condition":
            raise StoreError("delete", key, "not permitted")
        if self.lacks == "any sense of tags":
            return False
        same = tag == self.tag(key)
        if same or self.lacks == "regard for conditions":
            self.inner.delete([key])
        return same or self.lacks == "regard for conditions"


def probe(store: ObjectStore, fencing: Fencing = Fencing.REQUIRED) -> dict[str, Step]:
    return {step.name: step for step in run_probe(store, SystemClock(), random.Random(1), fencing)}


def outcomes(store: ObjectStore) -> dict[str, Outcome]:
    return {name: step.outcome for name, step in probe(store).items()}


def folder(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path / "replica"), {})


def left(tmp_path: Path) -> list[Path]:
    return [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_good_store_passes_every_step_that_it_offers_and_nothing_is_left(tmp_path: Path) -> None:
    found = outcomes(folder(tmp_path))
    assert list(found) == STEPS
    assert found.pop("conditional delete") is Outcome.NOT_OFFERED
    assert set(found.values()) == {Outcome.PASSED}
    assert left(tmp_path) == []


@pytest.mark.parametrize("lacks", ["ranged read", "list", CREATE_ONLY, "delete"])
def test_what_a_store_lacks_is_named_and_the_rest_still_tried(tmp_path: Path, lacks: str) -> None:
    found = outcomes(Tagging(folder(tmp_path), lacks))
    assert {name for name, outcome in found.items() if outcome is not Outcome.PASSED} == {lacks}


def test_without_a_put_nothing_else_is_tried(tmp_path: Path) -> None:
    found = outcomes(Lacking(folder(tmp_path), "put"))
    assert found.pop("put") is Outcome.FAILED
    assert set(found.values()) == {Outcome.SKIPPED}
    assert list(tmp_path.iterdir()) == []


# --- create-only


def test_a_store_that_accepts_a_second_put_is_good_for_isolated_fencing_alone(tmp_path: Path) -> None:
    store = Tagging(folder(tmp_path), CREATE_ONLY)
    for fencing in Fencing:
        steps = probe(store, fencing)
        assert steps[CREATE_ONLY].outcome is Outcome.FAILED
        assert steps[CREATE_ONLY].required is (fencing is Fencing.REQUIRED)
        assert "a second put" in steps[CREATE_ONLY].reason
        assert "fencing: isolated takes it, and gives up" in steps[CREATE_ONLY].meaning
        assert {step.outcome for name, step in steps.items() if name != CREATE_ONLY} == {Outcome.PASSED}


def test_a_store_that_has_no_create_only_put_is_tried_without(tmp_path: Path) -> None:
    steps = probe(Tagging(folder(tmp_path), "create-only put"))
    assert steps[CREATE_ONLY].outcome is Outcome.FAILED
    assert "no such header here" in steps[CREATE_ONLY].reason
    assert {step.outcome for name, step in steps.items() if name != CREATE_ONLY} == {Outcome.PASSED}
    assert left(tmp_path) == []


def test_a_client_that_looks_and_then_writes_refuses_nobody(tmp_path: Path) -> None:
    store = Tagging(folder(tmp_path), "")
    assert probe(store)[CREATE_ONLY].outcome is Outcome.PASSED
    store.fences = False
    step = probe(store)[CREATE_ONLY]
    assert step.outcome is Outcome.FAILED
    assert "two may do so at once" in step.reason


# --- conditional delete


def test_a_conditional_delete_is_tried_where_it_is_offered(tmp_path: Path) -> None:
    step = probe(Tagging(folder(tmp_path), ""))["conditional delete"]
    assert (step.outcome, step.required, step.reason) == (Outcome.PASSED, False, "")
    assert step.seconds > 0
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("lacks", "outcome", "reason"),
    [
        ("condition", Outcome.NOT_OFFERED, "no such condition here"),
        ("regard for conditions", Outcome.NOT_OFFERED, "ignores it"),
        ("any sense of tags", Outcome.FAILED, "was not deleted"),
        ("right to delete on a condition", Outcome.FAILED, "not permitted"),
    ],
)
def test_a_conditional_delete_that_is_missing_is_said_and_is_no_matter(
    tmp_path: Path, lacks: str, outcome: Outcome, reason: str
) -> None:
    steps = probe(Tagging(folder(tmp_path), lacks))
    step = steps.pop("conditional delete")
    assert (step.outcome, step.required) == (outcome, False)
    assert reason in step.reason
    assert "nothing in litelog needs it" in step.meaning
    assert {step.outcome for step in steps.values()} == {Outcome.PASSED}
    assert left(tmp_path) == []
