"""Readers that choose or follow a generation name a claim that maps indexes wrongly, and miss no record by it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from litelog.errors import CorruptObjectError, ExitCode
from litelog.objects.layout import claim_key
from litelog.objects.position import Position
from litelog.reading.contents import list_generation
from litelog.reading.index_mapping import SegmentNames, check_mapping
from litelog.reading.latest import find_latest
from litelog.reading.successors import find_shift
from litelog.stores.object_store import ObjectReplicaClient
from tests.builders.replica_builder import ReplicaBuilder, client_of
from tests.builders.shifted_generations import LOG, grown, sealed
from tests.builders.stores import CountingStore
from tests.builders.verify_helper import found, verified

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.objects.claim import Claim


SHAPES: dict[str, Callable[..., ReplicaBuilder]] = {
    "grown": grown,
    "sealed": sealed,
    "final": lambda shift, claimed=None: grown(shift, claimed=claimed, final=True),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("shift", [0, 1, 2])
def test_a_mapping_that_the_objects_confirm_is_accepted(shape: str, shift: int) -> None:
    builder = SHAPES[shape](shift)
    first, second = (built.claim for built in builder.generations)
    assert find_latest(builder.client) == second
    assert find_shift(builder.client, first, second) == shift
    assert found(verified(builder.objects())) == []


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("shift", [0, 1, 2])
def test_a_shift_that_the_objects_contradict_is_named(shape: str, shift: int) -> None:
    for claimed in {-3, -1, 0, 1, 2, 5, 1 << 40} - {shift}:
        builder = SHAPES[shape](shift, claimed=claimed)
        first, second = (built.claim for built in builder.generations)
        with pytest.raises(CorruptObjectError, match=f"shift is {claimed}: maps log segment ") as caught:
            find_latest(builder.client)
        assert (caught.value.key, caught.value.exit_code) == (claim_key(2), ExitCode.CORRUPTION)
        with pytest.raises(CorruptObjectError, match=f"shift is {claimed}: maps log segment ") as caught:
            find_shift(builder.client, first, second)
        assert caught.value.key == claim_key(2)
        assert ("conflict", claim_key(2)) in found(verified(builder.objects())), claimed


@pytest.mark.slow
def test_each_claim_of_several_is_checked() -> None:
    """The second one is wrong: readers would go back to the first generation, which both continue."""
    builder = grown(0)
    third = builder.add(builder.claim())
    for segment in LOG[:4]:
        third.ship_segment(segment)
    third.ship_segment(LOG[4], final=None)
    assert find_latest(builder.client) == third.claim
    objects = builder.objects()
    assert found(verified(objects)) == []
    wrong = grown(0, claimed=7)
    objects[claim_key(2)] = wrong.objects()[claim_key(2)]
    assert ("conflict", claim_key(2)) in found(verified(objects))
    with pytest.raises(CorruptObjectError, match="shift is 7") as caught:
        find_latest(client_of(objects))
    assert caught.value.key == claim_key(2)


def test_a_generation_short_of_its_predecessors_end_proves_no_shift_wrong() -> None:
    builder = ReplicaBuilder()
    first = builder.add()
    for segment in LOG[1:3]:
        first.ship_segment(segment)
    second = builder.add(builder.claim(shift=1))
    second.ship_segment(LOG[0])
    assert find_latest(builder.client) == first.claim
    second.ship_segment(LOG[1])
    assert find_latest(builder.client) == first.claim
    second.ship_segment(LOG[2])
    assert find_latest(builder.client) == second.claim


def names_of(builder: ReplicaBuilder, claim: Claim, slot: Position) -> SegmentNames:
    """The names in a generation whose next slot was ``slot`` when the reader looked for it."""
    return SegmentNames(builder.client, claim, slot, None, partial(list_generation, builder.client, claim.generation))


def test_a_log_segment_that_comes_while_a_reader_looks_proves_no_shift_wrong() -> None:
    builder = grown(0)
    first, second = builder.generations
    older = names_of(builder, first.claim, first.slot)
    newer = names_of(builder, second.claim, Position(second.claim.generation, 0, 0))
    assert newer.last < older.last
    check_mapping(second.claim, 0, newer, older)
    with pytest.raises(CorruptObjectError, match="shift is 0"):
        check_mapping(second.claim, 1, newer, older)


@pytest.mark.slow
def test_the_usual_restart_costs_no_request() -> None:
    """The predecessor's last log segment still grows. The last headers, which readers need anyway, name it."""
    builder = ReplicaBuilder()
    builder.add().ship_segment(LOG[0], final=None, upto=1)
    builder.add().ship_segment(LOG[0], final=None)
    counted = CountingStore(builder.store)
    find_latest(ObjectReplicaClient(counted))
    assert counted.requests == {"list": 3, "open": 4}  # claims and both generations; two claims, two last headers
