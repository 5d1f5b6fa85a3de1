"""The probe passes what keeps its promises, and names what does not."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from litelog.clock import SystemClock
from litelog.errors import StoreError
from litelog.probe import Outcome, run_probe
from replica_clients.file import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.object_store import ByteRange, ObjectInfo, ObjectStore


class Lacking:
    """A store that lacks one thing."""

    def __init__(self, inner: ObjectStore, lacks: str) -> None:
        self.inner, self.lacks, self.url, self.fences = inner, lacks, inner.url, inner.fences

    def put(self, key: str, body: Sequence[Buffer], *, create_only: bool = True) -> None:
        self.refuse("put", key)
        self.inner.put(key, body, create_only=create_only and self.lacks != "create-only put refused")

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


def outcomes(store: ObjectStore) -> dict[str, Outcome]:
    return {step.name: step.outcome for step in run_probe(store, SystemClock(), random.Random(1))}


def test_a_good_store_passes_every_step_and_nothing_is_left(tmp_path: Path) -> None:
    found = outcomes(open_store(str(tmp_path / "replica"), {}))
    assert len(found) == 6
    assert set(found.values()) == {Outcome.PASSED}
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("lacks", ["ranged read", "list", "create-only put refused", "delete"])
def test_what_a_store_lacks_is_named_and_the_rest_still_tried(tmp_path: Path, lacks: str) -> None:
    found = outcomes(Lacking(open_store(str(tmp_path / "replica"), {}), lacks))
    assert {name for name, outcome in found.items() if outcome is not Outcome.PASSED} == {lacks}


def test_without_a_put_nothing_else_is_tried(tmp_path: Path) -> None:
    found = outcomes(Lacking(open_store(str(tmp_path / "replica"), {}), "put"))
    assert found.pop("put") is Outcome.FAILED
    assert set(found.values()) == {Outcome.SKIPPED}
    assert list(tmp_path.iterdir()) == []


def test_a_missing_requirement_says_what_it_means(tmp_path: Path) -> None:
    store = Lacking(open_store(str(tmp_path / "replica"), {}), "create-only put refused")
    (step,) = [step for step in run_probe(store, SystemClock(), random.Random(1)) if step.outcome is Outcome.FAILED]
    assert step.required
    assert "two writers" in step.meaning
