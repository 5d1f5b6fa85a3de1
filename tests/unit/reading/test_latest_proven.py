"""The newest generation proves that it holds all the data that it continues. Readers then need no older generation, and
take the same one as a walk through all of them."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from litelog.errors import CorruptObjectError, LitelogError, NothingToRestoreError, ReplicaGapError
from litelog.objects import claim as claims
from litelog.objects.claim import Relation
from litelog.objects.layout import claim_key
from litelog.reading.latest import find_latest, open_latest, walk_to_latest
from litelog.stores.object_store import ObjectReplicaClient
from tests.builders.replica_builder import GenerationBuilder, ReplicaBuilder, client_of, make_log
from tests.builders.stores import CountingStore
from tests.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.objects.claim import Claim
    from litelog.stores.replica_client import ReplicaClient

LOG = make_log([[2, 1], [3], [1, 1], [2], [1, 2], [1, 1, 1]])
COMMITS = [
    (segment, start, end, end == segment.ends[-1])
    for segment in LOG
    for start, end in zip((0, *segment.ends), segment.ends, strict=False)
]
CHANCES = 400
"""The number of histories, of which the test runs a sample."""


class History:
    """Owners follow each other in one replica, as the protocol of one writer requires, and stop at any point."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.builder = ReplicaBuilder()
        self.shipped: dict[str, int] = {}
        """How many commits each generation holds."""
        self.open: list[GenerationBuilder] = []

    def add(self, *, begins: bool = True) -> GenerationBuilder:
        """Claim a generation and end all below; then put its first snapshot, unless the owner is killed before that."""
        built = GenerationBuilder(self.builder.client, self.claim(), self.builder.format)
        before = next((one for one in self.builder.generations if one.name == built.claim.predecessor), None)
        for one in reversed(self.open):
            one.end(built.claim)
        self.open = [built]
        self.builder.generations.append(built)
        if begins:
            sealed = [built.seal_unshipped(index, LOG[index]) for index in range(built.claim.first)]
            built.start(sealed, before.slot if before is not None else None)
            self.shipped[built.name] = sum(len(segment.ends) for segment in LOG[: built.claim.first])
        return built

    def claim(self) -> Claim:
        """The next epoch's claim, which follows the generation that readers take now."""
        try:
            latest = walk_to_latest(self.builder.client)
        except NothingToRestoreError:
            latest = None
        except LitelogError:
            raise
        claim = self.builder.claim(Relation.FIRST)
        if latest is None:
            return replace(claim, predecessor=None, predecessor_end=None)
        before = next(one for one in self.builder.generations if one.name == latest.generation)
        at, shipped = before.slot, self.shipped[before.name]
        file = COMMITS[shipped - 1][0].name
        claim = replace(claim, predecessor=before.name, predecessor_end=at, predecessor_file=file)
        if self.random.random() < 0.2:
            return replace(claim, relation=Relation.DIVERGED, predecessor_file=None, reason="rewound")
        first = self.random.randint(0, at.index)
        old = {"predecessor_file": None} if self.random.random() < 0.1 else {}
        return replace(claim, relation=Relation.CONTINUES, first=first, **old)  # type: ignore[arg-type]

    def ship(self, built: GenerationBuilder, commits: int) -> None:
        """Ship the next commits of the log."""
        done = self.shipped[built.name]
        for segment, start, end, final in COMMITS[done : done + commits]:
            built.ship(segment.data[start:end], segment.name, final=final)
            self.shipped[built.name] += 1

    def covered(self, built: GenerationBuilder) -> int:
        """The index of its newest snapshot."""
        return max(info.index for info in self.builder.client.snapshots(built.name))

    def step(self) -> None:
        """Do one thing at random that owners do to a replica."""
        newest = self.builder.generations[-1]
        chance = self.random.random()
        if newest.name in self.shipped and chance < 0.5:
            self.ship(newest, self.random.randint(1, 6))
        elif newest.name in self.shipped and chance < 0.6 and newest.slot.index > self.covered(newest):
            newest.snapshot(newest.slot.index)
            newest.prune(self.random.randint(newest.claim.first, newest.slot.index))
        elif chance < 0.85:
            self.add()
        else:
            late = self.add(begins=False)
            if self.random.random() < 0.5:
                self.add(begins=self.random.random() < 0.5)
                late.start()


def result_of(choose: Callable[[ReplicaClient], Claim], client: ReplicaClient) -> Claim | type[LitelogError]:
    try:
        return choose(client)
    except LitelogError as error:
        return type(error)


def require_alike(client: ReplicaClient) -> Claim | type[LitelogError]:
    """Check that readers choose alike with and without the walk. Returns the choice."""
    chosen = result_of(find_latest, client)
    assert chosen == result_of(walk_to_latest, client)
    assert result_of(lambda client: open_latest(client).base.claim, client) == chosen
    with_lost = result_of(lambda client: find_latest(client, include_lost=True), client)
    assert with_lost == result_of(lambda client: walk_to_latest(client, include_lost=True), client)
    return chosen


@pytest.mark.slow
@pytest.mark.parametrize("seed", sampled(range(CHANCES), 20, "histories of generations"))
def test_the_same_generation_is_found_as_by_a_walk_through_all(seed: int) -> None:
    history = History(Random(seed))
    history.add()
    for _ in range(history.random.randint(1, 14)):
        history.step()
        require_alike(history.builder.client)
    objects = history.builder.objects()
    whole = result_of(find_latest, history.builder.client)
    for key in history.random.sample(sorted(objects), min(6, len(objects))):
        client = client_of({name: body for name, body in objects.items() if name != key})
        walked, chosen = result_of(walk_to_latest, client), result_of(find_latest, client)
        assert chosen == walked or (isinstance(walked, type) and chosen == whole), key


def two() -> tuple[History, GenerationBuilder, GenerationBuilder]:
    """Two generations, of which the second has not reached the end of the first."""
    history = History(Random(3))
    first = history.add()
    history.ship(first, 5)
    claim = replace(history.builder.claim(), predecessor_file=COMMITS[4][0].name, relation=Relation.CONTINUES)
    second = GenerationBuilder(history.builder.client, claim, history.builder.format)
    first.end(claim)
    history.builder.generations.append(second)
    second.start(end=first.slot)
    history.shipped[second.name] = 0
    history.open = [second]
    return history, first, second


def test_a_generation_that_holds_its_predecessors_end_is_taken_without_a_look_at_it() -> None:
    history, _, second = two()
    history.ship(second, 6)
    counted = CountingStore(history.builder.store)
    assert find_latest(ObjectReplicaClient(counted)) == second.claim
    # The claims, its names; its claim, its snapshot, its last header, and the header at the predecessor's last index.
    assert counted.requests == {"list": 2, "open": 4}


def test_until_then_the_predecessor_is_taken() -> None:
    history, first, second = two()
    for _ in range(4):
        history.ship(second, 1)
        assert require_alike(history.builder.client) == first.claim
    history.ship(second, 1)
    assert require_alike(history.builder.client) == second.claim


def test_a_shift_that_the_log_segments_contradict_is_named() -> None:
    history, _, second = two()
    history.ship(second, 11)
    objects = history.builder.objects()
    objects[claim_key(2)] = claims.encode(replace(second.claim, shift=-1))
    with pytest.raises(CorruptObjectError, match="shift is -1: maps log segment"):
        find_latest(client_of(objects))


@pytest.mark.slow
def test_a_missing_claim_is_a_gap_though_no_proof_needs_it() -> None:
    history = History(Random(1))
    for number in range(5):
        built = history.add()
        history.ship(built, 6 + number - history.shipped[built.name])
    objects = history.builder.objects()
    for epoch in range(1, 6):
        left = {key: body for key, body in objects.items() if key != claim_key(epoch)}
        with pytest.raises(ReplicaGapError, match=claim_key(epoch)):
            find_latest(client_of(left))
