"""Sealed segments that one thread reads together, a run of each in turn."""

from __future__ import annotations

import io
import random
import tracemalloc
from typing import TYPE_CHECKING, BinaryIO

import pytest

from litelog.errors import NotFoundError
from litelog.objects.layout import sealed_key
from litelog.verify import sealed
from litelog.verify.findings import Scope
from litelog.verify.sealed import SealedVerifier, cut_groups
from replica_clients.file import FileStore
from tests.builders.replica_builder import FORMAT, ReplicaBuilder, make_segment
from tests.builders.verify_helper import LOG

if TYPE_CHECKING:
    from pathlib import Path

    from litelog.objects.position import Generation
    from litelog.stores.object_store import ByteRange
    from replica_clients.memory import MemoryStore


class Recording:
    """A store that notes the object of each read."""

    def __init__(self, inner: MemoryStore) -> None:
        self.inner, self.url, self.list = inner, inner.url, inner.list
        self.reads: list[str] = []

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        reads = self.reads

        class Noted(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                reads.append(key)
                return super().read(size)

        with self.inner.open(key, byte_range) as stream:
            return Noted(stream.read())


@pytest.fixture(name="sealed")
def make_sealed_segments() -> tuple[ReplicaBuilder, list[tuple[Generation, int, int]]]:
    """A replica with two sealed segments of several frames, and what a listing says of them."""
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship_segment(LOG[0])
    built.ship_segment(LOG[1])
    entries = [built.seal(0), built.seal(1)]
    return builder, [(entry.generation, entry.index, entry.size) for entry in entries]


def test_runs_are_read_in_turn_and_found_as_if_they_were_read_alone(
    sealed: tuple[ReplicaBuilder, list[tuple[Generation, int, int]]],
) -> None:
    builder, listed = sealed
    store = Recording(builder.store)
    verifier = SealedVerifier(store, Scope(), lambda name: FORMAT)  # type: ignore[arg-type] # a part of a store
    alone = [verifier.read(one) for one in listed]
    store.reads.clear()
    together = verifier.read_together(listed)
    assert together == alone
    assert all(read.entry is not None and not read.problems and read.content for read in together)
    first, second = (sealed_key(generation, index) for generation, index, _ in listed)
    runs = store.reads[-4:]
    assert runs in ([first, second, first, second], [second, first, second, first])


def test_a_run_of_one_sealed_segment_is_released_before_the_other_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealed, "HASHED_LATER_BYTES", 0)
    builder = ReplicaBuilder()
    built, first, listed = builder.add(), 0, []
    for index in range(2):
        segment = make_segment(first, [1, 1], tag=random.Random(index).randbytes(3 << 20))
        built.ship_segment(segment)
        entry, first = built.seal(index), segment.next
        listed.append((entry.generation, entry.index, entry.size))
    store = FileStore(str(tmp_path))
    builder.put_into(store)
    verifier, peaks = SealedVerifier(store, Scope(), lambda name: FORMAT), []
    for group in (listed[:1], listed[1:], listed):
        tracemalloc.start()
        reads = verifier.read_together(group)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert all(read.content > 6 << 20 and not read.problems for read in reads)
    assert peaks[2] < max(peaks[:2]) + (1 << 20), "less than a run more"


def test_one_that_is_gone_or_damaged_changes_nothing_for_the_other(
    sealed: tuple[ReplicaBuilder, list[tuple[Generation, int, int]]],
) -> None:
    builder, listed = sealed
    verifier = SealedVerifier(builder.store, Scope(), lambda name: FORMAT)
    whole = verifier.read(listed[1])
    generation, index, size = listed[0]
    key = sealed_key(generation, index)
    body = bytearray(builder.objects()[key])
    body[20] ^= 1
    builder.store.delete([key])
    assert [read.gone for read in verifier.read_together(listed)] == [True, False]
    with pytest.raises(NotFoundError):
        verifier.footer(generation, index)
    builder.store.put(key, [bytes(body)])
    damaged, other = verifier.read_together(listed)
    assert [problem.key for problem in damaged.problems] == [key]
    assert (other, damaged.size) == (whole, size)


def test_the_last_ones_are_read_alone() -> None:
    listed = [(f"{number:016x}", number, 1) for number in range(7)]
    groups = list(cut_groups(listed, len(listed), 3))  # type: ignore[arg-type] # a Generation is a str
    assert [[index for _, index, _ in group] for group in groups] == [[0, 1], [2, 3], [4], [5], [6]]
    assert list(cut_groups(listed[:2], 2, 3)) == [[listed[0]], [listed[1]]]  # type: ignore[arg-type]
    assert sum(map(len, cut_groups(listed, 3, 2))) == 7, "a listing may hold more by now"  # type: ignore[arg-type]
