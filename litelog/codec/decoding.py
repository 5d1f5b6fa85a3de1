"""Decodes JSON from outside: measures it before it is parsed, builds dataclasses from it by the types of their fields,
and names the object in errors.

An object of a few hundred kilobytes can become a gigabyte of lists when it is parsed. So its members are first counted
in its bytes, at the speed of a copy.

Specified in litelog/objects/README.md#what-a-decoder-checks.
"""

from __future__ import annotations

import json
import math
import reprlib
import types
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from litelog.codec.lz4_frames import FrameError
from litelog.dataclass import dataclass
from litelog.errors import CorruptObjectError, NotEnoughMemoryError

if TYPE_CHECKING:
    from collections.abc import Iterator


MOST = 1 << 63
"""The exclusive upper limit of a whole number in an object, unless its field has its own. Sizes, times and sums fit."""

_BRACKETS = b"[]{}"
_NO_BRACKETS = bytes(set(range(256)) - set(_BRACKETS))


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """The limits of a JSON document of one kind. Each kind of object has limits that no sound object reaches."""

    size: int
    """Bytes of the text: 1 in memory for each, or 4 if it is not only ASCII."""
    values: int
    """Commas: one fewer than members in each list or object. About 40 bytes in memory for each."""
    texts: int
    """Texts and names of fields. About 60 bytes in memory for each."""
    containers: int
    """Lists and objects. About 100 bytes in memory for each."""
    depth: int
    """How deep they may be nested."""


def parse_json(text: bytes, limits: JsonLimits) -> Any:
    """Parse a JSON text in UTF-8. Raises ValueError if it is not JSON, or, without parsing it, if it exceeds
    ``limits``."""
    _check("bytes", len(text), limits.size)
    bare = text.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in text else text
    _check("texts", bare.count(b'"') // 2, limits.texts)
    bare = b"".join(bare.split(b'"')[::2])
    _check("values", bare.count(b","), limits.values)
    brackets = bare.translate(None, _NO_BRACKETS)
    _check("lists and objects", len(brackets) // 2, limits.containers)
    for _ in range(limits.depth):
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    if brackets:
        raise ValueError(f"is not JSON, or is nested more than {limits.depth} deep")
    return _parse(text.decode())


def _parse(text: str) -> Any:
    return json.loads(text, parse_constant=_refuse_constant)


@contextmanager
def naming(key: str, what: str) -> Iterator[None]:
    """Name the object ``key`` in errors while it is decoded: CorruptObjectError for a wrong shape or value, and
    NotEnoughMemoryError. ``what``: the kind of object."""
    try:
        yield
    except MemoryError as error:
        raise NotEnoughMemoryError(key) from error
    except (FrameError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise CorruptObjectError(key, f"{what}: {error}") from error


def require_fields(value: object) -> dict[str, Any]:
    """``value``, if it is a JSON object. Raises ValueError otherwise."""
    if not isinstance(value, dict):
        raise ValueError(f"is {abbreviate(value)}, not a JSON object")
    return value


def is_valid_text(text: str) -> bool:
    """Whether ``text`` is Unicode, or a file name outside UTF-8 in Python's form: a low surrogate for each byte that
    does not fit. No file name has any other surrogate."""
    if text.isascii():
        return True
    try:
        return text.encode(errors="surrogateescape").decode(errors="surrogateescape") == text
    except UnicodeEncodeError:
        return False


def abbreviate(value: object) -> str:
    """``value`` for a message, shortened if it is long."""
    return _SHOWN.repr(value)


_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = _SHOWN.maxlong = 80


def _check(what: str, count: int, limit: int) -> None:
    if count > limit:
        raise ValueError(f"holds {count} {what}, more than {limit}")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"holds {name}, which is not a number")


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
    if missing := required - values.keys():
        raise ValueError(f"{kind.__name__} has no field {min(missing)!r}")
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
