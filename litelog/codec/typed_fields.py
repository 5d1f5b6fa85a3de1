"""Dataclasses from untrusted JSON: each field has its annotated type, or a ValueError names the field."""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

_LOWEST, _HIGHEST = -(1 << 63), (1 << 64) - 1
"""The range of integers: all that the formats here can hold, signed and unsigned."""


Readers = Mapping[object, Callable[[str], object]]
"""Functions that parse a text into a value of their type, or raise ValueError."""


def build(kind: type[T], values: object, readers: Readers = MappingProxyType({})) -> T:
    """Build a ``kind``, which is a dataclass, from ``values``, a JSON object. Raises ValueError.

    Fields may be integers, numbers, texts, booleans, dataclasses, types that ``readers`` parse from text, tuples of
    these, and optional.
    """
    if not isinstance(values, dict):
        raise ValueError(f"{kind.__name__} is not an object")
    hints, required = _shape(kind)  # type: ignore[arg-type]  # every class is hashable
    if unknown := values.keys() - hints.keys():
        raise ValueError(f"{kind.__name__} has an unknown field {min(map(repr, unknown))}")
    if lacking := required - values.keys():
        raise ValueError(f"{kind.__name__} has no field {min(lacking)!r}")
    read = {name: _read(f"{kind.__name__}.{name}", hints[name], value, readers) for name, value in values.items()}
    return kind(**read)


@cache
def _shape(kind: type[Any]) -> tuple[dict[str, Any], frozenset[str]]:
    """The fields' types, and the fields that have no default."""
    hints, known = get_type_hints(kind), fields(kind)
    required = (each.name for each in known if each.default is MISSING and each.default_factory is MISSING)
    return {each.name: hints[each.name] for each in known}, frozenset(required)


def _read(name: str, hint: Any, value: object, readers: Readers) -> object:
    if get_origin(hint) in (types.UnionType, Union):
        if value is None:
            return None
        (hint,) = (each for each in get_args(hint) if each is not types.NoneType)
    if get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise ValueError(f"{name} is not a list")
        return tuple(_read(name, get_args(hint)[0], each, readers) for each in value)
    if hint in readers:
        if not isinstance(value, str):
            raise ValueError(f"{name} is not text")
        return readers[hint](value)
    if is_dataclass(hint):
        assert isinstance(hint, type)
        return build(hint, value, readers)
    if not _fits(hint, value):
        raise ValueError(f"{name} is not {_WORDS[hint]}")
    return value


_WORDS = {int: "an integer of 64 bits", float: "a number", str: "text", bool: "true or false"}


def _fits(hint: Any, value: object) -> bool:
    if hint is bool or isinstance(value, bool):
        return hint is bool and isinstance(value, bool)
    if isinstance(value, int):
        return hint in (int, float) and _LOWEST <= value <= _HIGHEST
    if isinstance(value, float):
        return hint is float and math.isfinite(value)
    return isinstance(value, hint)
