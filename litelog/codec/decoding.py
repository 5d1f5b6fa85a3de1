"""The parts that the decoders of all objects share: JSON that is measured before it is parsed, and errors that name the
object.

Parsed, an object of a few hundred kilobytes can become a gigabyte of lists. So its members are first counted in its
bytes, at the speed of a copy.

Specified in litelog/objects/README.md#what-a-decoder-checks.
"""

from __future__ import annotations

import json
import reprlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from litelog.codec.lz4_frames import FrameError
from litelog.errors import CorruptObjectError, NotEnoughMemoryError

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST = 1 << 63
"""The exclusive upper limit of whole numbers in an object, unless the field has its own: files, times and sums fit."""

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
        raise ValueError(f"is {shown(value)}, and no JSON object")
    return value


def is_spelled(text: str) -> bool:
    """Whether ``text`` is Unicode, or a file name outside UTF-8 in Python's form: a low surrogate for each byte that
    does not fit. No file name has any other surrogate."""
    if text.isascii():
        return True
    try:
        return text.encode(errors="surrogateescape").decode(errors="surrogateescape") == text
    except UnicodeEncodeError:
        return False


def shown(value: object) -> str:
    """``value`` for a message, shortened if it is long."""
    return _SHOWN.repr(value)


_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = _SHOWN.maxlong = 80


def _check(what: str, held: int, limit: int) -> None:
    if held > limit:
        raise ValueError(f"holds {held} {what}, more than {limit}")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"holds {name}, which is not a number")
