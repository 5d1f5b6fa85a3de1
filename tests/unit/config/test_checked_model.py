"""Models of the configuration: their values cannot be changed, are compared, copied and shown."""

from __future__ import annotations

import copy
import pickle
from dataclasses import field
from typing import Annotated, Any

import pytest
from pydantic import ValidationError

from litelog.config.checked_model import COMPUTED, Model
from litelog.config.field_types import FILLED, HIDDEN, After, AfterOthers, AtLeast, Before, IfNone


class Inner(Model):
    """A part of a model."""

    max_size: Annotated[int, AtLeast(1)] = 1


class Whole(Model):
    """A model with a field of each sort."""

    name: Annotated[str, FILLED]
    secret: Annotated[str | None, HIDDEN] = None
    parts: tuple[Inner, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    longest: Annotated[int, IfNone(lambda others: len(others.get("name", "")))] = COMPUTED


def errors_of(*arguments: Any, **values: Any) -> list[tuple[str, tuple[str | int, ...]]]:
    with pytest.raises(ValidationError) as caught:
        Whole.model_validate(*arguments) if arguments else Whole(**values)
    return [(each["type"], each["loc"]) for each in caught.value.errors()]


def test_values_are_read_and_defaults_filled_in() -> None:
    whole = Whole(name="four", parts=[{"max-size": 3}, {"max_size": 4}, Inner()])
    assert (whole.name, whole.secret, whole.options, whole.longest) == ("four", None, {}, 4)
    assert [each.max_size for each in whole.parts] == [3, 4, 1]
    assert whole.model_fields_set == {"name", "parts"}
    assert Whole(name="a", longest=7).longest == 7
    assert Whole(name="ab", longest=None).longest == 2


def test_all_errors_are_reported_with_their_places() -> None:
    assert errors_of(parts=[{"max-size": 0}, 5, {"other": 1}], options={"a": 1}) == [
        ("missing", ("name",)),
        ("greater_than_equal", ("parts", 0, "max-size")),
        ("model_type", ("parts", 1)),
        ("extra_forbidden", ("parts", 2, "other")),
        ("string_type", ("options", "a")),
    ]
    assert errors_of({1: 2, "name": ""}) == [("string_too_short", ("name",)), ("invalid_key", (1,))]


def test_keys_may_be_limited_to_one_spelling() -> None:
    assert Inner.model_validate({"max-size": 2}, by_name=False).max_size == 2
    assert Inner.model_validate({"max_size": 2}, by_alias=False).max_size == 2
    for key, how in (("max_size", {"by_name": False}), ("max-size", {"by_alias": False})):
        with pytest.raises(ValidationError, match="extra_forbidden"):
            Inner.model_validate({key: 2}, **how)


def test_a_value_is_neither_changed_nor_deleted() -> None:
    whole = Whole(name="a")
    with pytest.raises(ValidationError, match="frozen"):
        whole.name = "b"  # type: ignore[misc]
    with pytest.raises(ValidationError, match="frozen"):
        del whole.name
    assert whole.name == "a"


def test_models_are_compared_and_hashed_by_their_values() -> None:
    assert Inner(max_size=1) == Inner()
    assert hash(Inner(max_size=1)) == hash(Inner())
    assert Inner(max_size=2) != Inner()
    assert Inner() != 1


def test_a_copy_has_other_values_and_its_own_defaults() -> None:
    whole = Whole(name="a")
    changed = whole.model_copy(update={"secret": "b"})
    assert (changed.name, changed.secret, whole.secret) == ("a", "b", None)
    assert changed.model_fields_set == {"name", "secret"}
    assert Whole(name="a").options is not whole.options
    assert copy.deepcopy(changed) == changed
    assert pickle.loads(pickle.dumps(Inner(max_size=5))) == Inner(max_size=5)


def test_hidden_values_are_in_no_text() -> None:
    assert repr(Whole(name="a", secret="b")) == "Whole(name='a', parts=(), options={}, longest=1)"
    with pytest.raises(ValidationError) as caught:
        Whole(name="a", secret=b"hidden")
    assert "hidden" not in str(caught.value)


def test_the_values_become_a_dict_with_those_of_parts() -> None:
    whole = Whole(name="a", parts=[Inner()])
    assert whole.model_dump(exclude_unset=True) == {"name": "a", "parts": ({},)}
    assert whole.model_dump()["parts"] == ({"max_size": 1},)
    assert Whole.model_construct(name="abc").model_dump() == Whole(name="abc").model_dump()


def _no_b(text: str) -> str:
    if "b" in text:
        raise ValueError("has a b")
    return text.upper()


def _differs(text: str, others: dict[str, Any]) -> str:
    if text == others.get("first"):
        raise ValueError("is the first")
    return text


class Marked(Model):
    """A model whose types have functions."""

    first: Annotated[str, Before(str), After(_no_b)]
    second: Annotated[str, AfterOthers(_differs)] = "x"

    def _check_together(self, source: object) -> None:
        if self.first == "NEVER":
            raise ValueError("is never valid")


def test_functions_convert_and_check_values() -> None:
    assert Marked(first=12).first == "12"
    assert Marked(first="a", second="b").second == "b"
    for values, message in (
        ({"first": "b"}, "first\n  Value error, has a b"),
        ({"first": "a", "second": "A"}, "second\n  Value error, is the first"),
        ({"first": "never"}, "Value error, is never valid"),
    ):
        with pytest.raises(ValidationError) as caught:
            Marked(**values)
        assert message in str(caught.value)
