"""Plain values are read by the types of fields as pydantic reads them."""

from __future__ import annotations

import math
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, StringConstraints, TypeAdapter, ValidationError

from litelog.config.field_types import FILLED, AtLeast, MistakesError, Source, make_reader

SOURCE = Source(is_document=True, by_alias=True, by_name=False)
FILLED_THERE = Annotated[str, StringConstraints(strict=True, min_length=1)]
PAIRS: dict[str, tuple[Any, Any]] = {
    "float": (float, float),
    "int": (int, int),
    "bool": (bool, bool),
    "count": (Annotated[int, AtLeast(1)], Annotated[int, Field(strict=True, ge=1)]),
    "text": (Annotated[str, FILLED], FILLED_THERE),
    "word": (Literal["a", "b", "c"], Literal["a", "b", "c"]),
    "text or none": (
        Annotated[str, FILLED] | None,
        Annotated[str, StringConstraints(strict=True, min_length=1)] | None,
    ),
    "counts": (tuple[Annotated[int, AtLeast(1)], ...], tuple[Annotated[int, Field(strict=True, ge=1)], ...]),
    "texts by name": (dict[str, Annotated[str, FILLED]], dict[str, FILLED_THERE]),
    "word, mapping or none": (dict[str, int] | Literal["none"] | None, dict[str, int] | Literal["none"] | None),
}
"""Types as the configuration declares them, and as pydantic does."""

NUMBERS = [1.0, 2**63, 2.0**63, -(2.0**63), 1e300]
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-3, 3)
    | st.floats()
    | st.sampled_from(
        ["", "a", "c", "none", "yes", "OFF", "2", "1.5", "\ud800", 1.0, 2**63, 2.0**63, -(2.0**63), 1e300]
    )
    | st.just(date(2026, 1, 1))
    | st.text(max_size=3)
)
VALUES = (
    PLAIN | st.lists(PLAIN, max_size=3) | st.dictionaries(st.text(max_size=2) | st.integers(0, 1), PLAIN, max_size=3)
)
NO_TEXT = {"float", "int", "word, mapping or none"}
"""Texts were converted before: pydantic reads more of them as numbers."""


def outcome_of(annotation: Any, value: Any) -> object:
    try:
        return make_reader(annotation)(value, SOURCE, {})
    except MistakesError as error:
        return [(each["loc"], each["type"], each["msg"]) for each in error.details()]


def outcome_with_pydantic(annotation: Any, value: Any) -> object:
    try:
        return TypeAdapter(annotation).validate_python(value)
    except ValidationError as error:
        return [(each["loc"], each["type"], each["msg"]) for each in error.errors()]


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
@given(value=VALUES)
def test_a_value_is_read_as_pydantic_reads_it(name: str, value: Any) -> None:
    ours, theirs = PAIRS[name]
    if name in NO_TEXT and (isinstance(value, str) or (isinstance(value, dict) and name != "float")):
        return
    found, expected = outcome_of(ours, value), outcome_with_pydantic(theirs, value)
    assert found == expected or (isinstance(found, float) and math.isnan(found))
    assert type(found) is type(expected)


@pytest.mark.parametrize("value", ["16MiB", "x", b"x"])
def test_a_text_is_no_number(value: str | bytes) -> None:
    for annotation in (int, float):
        assert outcome_of(annotation, value) == outcome_with_pydantic(annotation, value)
