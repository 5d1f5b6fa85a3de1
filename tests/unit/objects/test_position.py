"""Positions print one way, parse strictly, and order by age, index and offset."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litelog.objects.position import MAX_EPOCH, MAX_INDEX, Position, epoch_of, generation, new_generation

epochs = st.integers(0, MAX_EPOCH)
positions = st.builds(
    Position,
    st.builds(new_generation, epochs, st.integers(0)),
    st.integers(0, MAX_INDEX),
    st.integers(0, MAX_INDEX),
)


@given(positions)
def test_a_printed_position_parses_to_the_same_position(position: Position) -> None:
    assert Position.parse(str(position)) == position


@given(positions, positions)
def test_positions_order_as_their_texts_do(one: Position, other: Position) -> None:
    assert (one < other) == (str(one) < str(other))


@given(epochs, epochs, st.integers(0), st.integers(0))
def test_generations_sort_by_epoch_with_any_random_bits(one: int, other: int, bits: int, more: int) -> None:
    first, second = new_generation(one, bits), new_generation(other, more)
    assert generation(first) == first
    assert epoch_of(first) == one
    if one != other:
        assert (first < second) == (one < other)


@pytest.mark.parametrize("epoch", [-1, MAX_EPOCH + 1])
def test_an_epoch_that_has_no_eight_digits_is_refused(epoch: int) -> None:
    with pytest.raises(ValueError, match="out of range"):
        new_generation(epoch, 0)


GOOD = "0123456789abcdef"


@pytest.mark.parametrize(
    "text", ["", GOOD[:-1], GOOD + "0", GOOD.upper(), f"{GOOD}\n", "\u0660" * 16, "../../../../../.."]
)
def test_an_invalid_generation_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a generation"):
        generation(text)


@pytest.mark.parametrize(
    "text", ["", GOOD, f"{GOOD}/0/0", f"{GOOD}/{GOOD}/{GOOD}/", f"{GOOD}/{GOOD}/-{GOOD[1:]}", f"{GOOD}/{GOOD}/{GOOD}\n"]
)
def test_an_invalid_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a position"):
        Position.parse(text)


def test_a_position_that_a_person_gives_may_lack_leading_zeros() -> None:
    full = Position(generation(GOOD), 0x1A, 0)
    assert [Position.parse_given(text) for text in (str(full), f"{GOOD}/1a/0", f"{GOOD}/001a/00")] == [full] * 3


@pytest.mark.parametrize(
    "text",
    ["", GOOD, f"{GOOD}/0", f"{GOOD[:-1]}/0/0", f"{GOOD}//0", f"{GOOD}/0/{GOOD}0", f"{GOOD}/1A/0"],
)
def test_an_invalid_position_that_a_person_gives_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a position"):
        Position.parse_given(text)
