"""The layout's names are spelled and parsed strictly, both ways, and sort as positions do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litelog.objects import layout
from litelog.objects.position import MAX_EPOCH, MAX_INDEX, MAX_OFFSET, Generation, Position, new_generation

if TYPE_CHECKING:
    from collections.abc import Callable

G = Generation("00000001000000ff")
numbers = st.integers(0, MAX_INDEX)
generations = st.builds(new_generation, st.integers(0, MAX_EPOCH), st.integers(0))
positions = st.builds(Position, generations, numbers, numbers)

PARSERS: tuple[Callable[[str], object], ...] = (
    layout.parse_claim,
    layout.parse_wal,
    layout.parse_sealed,
    layout.parse_snapshot,
)


def test_the_names_are_those_that_the_layout_promises() -> None:
    assert layout.claim_key(255) == "epochs/000000ff.json"
    assert layout.claim_key(255, G) == "epochs/000000ff-00000001000000ff.json"
    assert layout.wal_key(Position(G, 10, 4096)) == (
        "generations/00000001000000ff/wal/000000000000000a/0000000000001000.wal.lz4"
    )
    assert layout.sealed_key(G, 10) == "generations/00000001000000ff/segments/000000000000000a.segment.lz4"
    assert layout.snapshot_key(G, 10) == "generations/00000001000000ff/snapshots/000000000000000a.snapshot.lz4"


@given(positions, st.integers(0, MAX_EPOCH))
def test_every_key_is_parsed_by_its_own_parser_only(position: Position, epoch: int) -> None:
    generation, index = position.generation, position.index
    made = {
        layout.claim_key(epoch): (epoch, None),
        layout.wal_key(position): position,
        layout.sealed_key(generation, index): (generation, index),
        layout.snapshot_key(generation, index): (generation, index),
    }
    for kind, (key, meaning) in enumerate(made.items()):
        assert [parse(key) for parse in PARSERS] == [meaning if n == kind else None for n in range(len(PARSERS))]
    assert layout.parse_claim(layout.claim_key(epoch, generation)) == (epoch, generation)


@given(positions, positions)
def test_keys_sort_as_their_positions_do(one: Position, other: Position) -> None:
    assert (layout.wal_key(one) < layout.wal_key(other)) == (one < other)


@given(generations, generations, numbers)
def test_listing_after_a_generation_skips_it_and_no_other(one: Generation, other: Generation, index: int) -> None:
    for key in (layout.wal_key(Position(other, index, index)), layout.snapshot_key(other, index)):
        assert (key > layout.after_generation(one)) == (other > one)


@given(positions, st.integers(), st.characters())
def test_a_changed_character_is_another_name_or_none(position: Position, place: int, character: str) -> None:
    key = layout.wal_key(position)
    place %= len(key)
    changed = key[:place] + character + key[place + 1 :]
    parsed = layout.parse_wal(changed)
    assert parsed is None or layout.wal_key(parsed) == changed


@pytest.mark.parametrize("suffix", ["\n", ".tmp", " ", "~", "/", "\0"])
@pytest.mark.parametrize("prefix", ["", "/", "./", "x"])
def test_a_name_with_something_around_it_is_foreign(prefix: str, suffix: str) -> None:
    for key in (
        layout.claim_key(1),
        layout.wal_key(Position(G, 0, 0)),
        layout.sealed_key(G, 0),
        layout.snapshot_key(G, 0),
    ):
        assert [parse(f"{prefix}{key}{suffix}") for parse in PARSERS] == [None] * len(PARSERS)


@pytest.mark.parametrize("number", [-1, MAX_OFFSET + 1])
def test_a_number_without_a_spelling_is_refused(number: int) -> None:
    for make in (
        lambda: layout.claim_key(number),
        lambda: layout.wal_key(Position(G, number, 0)),
        lambda: layout.wal_key(Position(G, 0, number)),
        lambda: layout.sealed_key(G, number),
        lambda: layout.snapshot_key(G, number),
    ):
        with pytest.raises(ValueError, match="does not fit"):
            make()


@pytest.mark.slow
def test_a_generation_is_seen_in_every_key_that_lies_in_it() -> None:
    assert layout.parse_generation(f"generations/{G}/anything\n/at all") == G
    assert layout.parse_generation(f"generations/{G}") is None
    assert layout.parse_generation(f"generations/{G}0/x") is None
    assert layout.parse_generation(f"x/generations/{G}/x") is None
