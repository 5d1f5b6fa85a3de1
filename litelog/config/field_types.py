"""Reads plain values by the types of fields: ``Annotated[float, Before(read_seconds), After(_interval)]``.

The errors are those of pydantic, whose texts people know. This is the part of it that the configuration needs: pydantic
itself would take 12 MiB of a daemon's memory, and a third of its start. It is loaded to report an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Protocol, Union, get_args, get_origin

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails, ValidationError

Location = tuple[str | int, ...]


class Before(NamedTuple):
    """In a field's type: a function that converts the value before it is checked."""

    read: Callable[[Any], Any]


class BeforeAsWritten(NamedTuple):
    """As ``Before``. The function is also told whether people have written the value: it is from a document."""

    read: Callable[[Any, bool], Any]


class After(NamedTuple):
    """In a field's type: a function that checks and converts the value at last."""

    read: Callable[[Any], Any]


class AfterOthers(NamedTuple):
    """As ``After``. The function also gets the valid values of the fields before this field, as a dict."""

    read: Callable[[Any, dict[str, Any]], Any]


class IfNone(NamedTuple):
    """In a field's type: a function that makes the value for None from those of the fields before this one."""

    make: Callable[[dict[str, Any]], Any]


class AtLeast(NamedTuple):
    """In a field's type: the least whole number. No other type is taken for a number."""

    number: int


class Readable(Protocol):
    """A model, as its readers see it."""

    @classmethod
    def read(cls, value: Any, source: Source) -> Any:
        """Make a model of ``value``. Raises MistakesError."""


class Tagged(NamedTuple):
    """In the type of a union of models: how a model is chosen for a value. Locations of errors have its tag."""

    choose: Callable[[Any], str]
    models: dict[str, type[Readable]]


class Hidden(NamedTuple):
    """See ``HIDDEN``."""


class _Filled(NamedTuple):
    """See ``FILLED``."""


HIDDEN = Hidden()
"""In a field's type: ``repr`` does not show the value."""

FILLED = _Filled()
"""In the type of a text: it is not empty."""


class Mistake(NamedTuple):
    """One error. ``kind`` and ``facts`` are the type and the context of pydantic's error."""

    kind: str
    value: Any
    facts: dict[str, Any]
    location: Location


class MistakesError(Exception):
    """Values do not fit a model."""

    def __init__(self, mistakes: list[Mistake]) -> None:
        super().__init__(mistakes)
        self.mistakes = mistakes

    def below(self, *location: str | int) -> list[Mistake]:
        """The errors, as the container of the value sees them."""
        return [mistake._replace(location=(*location, *mistake.location)) for mistake in self.mistakes]

    def validation_error(self, title: str) -> ValidationError:
        """As pydantic's error."""
        from pydantic_core import InitErrorDetails, ValidationError  # noqa: PLC0415 - only an error needs it

        details = [
            InitErrorDetails(type=mistake.kind, loc=mistake.location, input=mistake.value, ctx=mistake.facts)
            for mistake in self.mistakes
        ]
        return ValidationError.from_exception_data(title, details, hide_input=True)

    def details(self) -> list[ErrorDetails]:
        """The errors with their messages, without the values, which may be secret."""
        error = self.validation_error("values")
        return error.errors(include_url=False, include_input=False, include_context=False)


def mistake(kind: str, value: Any, **facts: Any) -> MistakesError:
    """An error in ``value`` as a whole."""
    return MistakesError([Mistake(kind, value, facts, ())])


class Source(NamedTuple):
    """The origin of values, and how their keys are spelled."""

    is_document: bool
    by_alias: bool
    by_name: bool


Reader = Callable[[Any, Source, dict[str, Any]], Any]
"""Reads a value, for a field that comes after others with certain values. Raises MistakesError."""


def make_reader(annotation: Any) -> Reader:
    """The reader for a type."""
    origin = get_origin(annotation)
    if origin is not None:
        return _OF_ORIGINS[origin](get_args(annotation))
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if issubclass(annotation, Enum):
        return _taken  # its words were read before
    return lambda value, source, _others: annotation.read(value, source)


def _marked(arguments: tuple[Any, ...]) -> Reader:
    """The reader for a type with marks: it is wrapped into what each of them means."""
    read = make_reader(arguments[0])
    for mark in arguments[1:]:
        wrap = _WRAPPERS.get(type(mark))
        if wrap is not None:
            read = wrap(mark, read)
    return read


def _before(mark: Before, read: Reader) -> Reader:
    def wrapped(value: Any, source: Source, others: dict[str, Any]) -> Any:
        return read(_checked(value, mark.read, value), source, others)

    return wrapped


def _before_as_written(mark: BeforeAsWritten, read: Reader) -> Reader:
    def wrapped(value: Any, source: Source, others: dict[str, Any]) -> Any:
        return read(_checked(value, mark.read, value, source.is_document), source, others)

    return wrapped


def _after(mark: After, read: Reader) -> Reader:
    def wrapped(value: Any, source: Source, others: dict[str, Any]) -> Any:
        return _checked(value, mark.read, read(value, source, others))

    return wrapped


def _after_others(mark: AfterOthers, read: Reader) -> Reader:
    def wrapped(value: Any, source: Source, others: dict[str, Any]) -> Any:
        return _checked(value, mark.read, read(value, source, others), others)

    return wrapped


def _if_none(mark: IfNone, read: Reader) -> Reader:
    def wrapped(value: Any, source: Source, others: dict[str, Any]) -> Any:
        return mark.make(others) if value is None else read(value, source, others)

    return wrapped


def _at_least(mark: AtLeast, _read: Reader) -> Reader:
    def wrapped(value: Any, _source: Source, _others: dict[str, Any]) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise mistake("int_type", value)
        if value < mark.number:
            raise mistake("greater_than_equal", value, ge=mark.number)
        return value

    return wrapped


def _filled(_mark: _Filled, _read: Reader) -> Reader:
    def wrapped(value: Any, source: Source, others: dict[str, Any]) -> str:
        if not isinstance(value, str):
            raise mistake("string_type", value)
        text = _read_text(value, source, others)
        if not text:
            raise mistake("string_too_short", value, min_length=1)
        return text

    return wrapped


def _tagged(mark: Tagged, _read: Reader) -> Reader:
    def wrapped(value: Any, source: Source, _others: dict[str, Any]) -> Any:
        tag = mark.choose(value)
        try:
            return mark.models[tag].read(value, source)
        except MistakesError as error:
            raise MistakesError(error.below(tag)) from None

    return wrapped


_WRAPPERS: dict[type, Callable[[Any, Reader], Reader]] = {
    Before: _before,
    BeforeAsWritten: _before_as_written,
    After: _after,
    AfterOthers: _after_others,
    IfNone: _if_none,
    AtLeast: _at_least,
    _Filled: _filled,
    Tagged: _tagged,
}


def _checked(value: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of a mark; its ValueError is an error in ``value``."""
    try:
        return function(*arguments)
    except ValueError as error:
        raise mistake("value_error", value, error=error) from None


def _union(members: tuple[Any, ...]) -> Reader:
    """The reader for a union of types. Locations of errors name the type, if several are possible."""
    models = [each for each in members if hasattr(each, "read")]
    words = [word for each in members if get_origin(each) is Literal for word in get_args(each)]
    if len(models) == 1 and words:
        return partial(_read_model_or_word, models[0], words, NoneType in members)
    plain = tuple(each for each in members if each in _PLAIN)
    readers = {_label(each): make_reader(each) for each in members if each is not NoneType}
    takes_none = NoneType in members

    def read(value: Any, source: Source, others: dict[str, Any]) -> Any:
        if takes_none and value is None:
            return None
        if len(readers) > 1 and type(value) in plain and type(value) is not str:
            return value
        mistakes: list[Mistake] = []
        for label, each in readers.items():
            try:
                return each(value, source, others)
            except MistakesError as error:
                mistakes += error.below(label) if len(readers) > 1 else error.mistakes
        raise MistakesError(mistakes)

    return read


def _read_model_or_word(
    model: type[Readable], words: list[str], takes_none: bool, value: Any, source: Source, _others: dict[str, Any]
) -> Any:
    """Read a mapping as a model, and all else as one of a few words. So the locations of errors name no type."""
    if value in words or (takes_none and value is None):
        return value
    if not isinstance(value, model) and not hasattr(value, "keys"):
        raise mistake("literal_error", value, expected=" or ".join(("a mapping of keys to values", *words)))
    return model.read(value, source)


def _label(annotation: Any) -> str:
    """The name of a type in pydantic's errors."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return "constrained-str"
    if origin is None:
        return str(annotation.__name__)
    inner = ",".join("..." if each is ... else repr(each) if origin is Literal else _label(each) for each in arguments)
    return f"{origin.__name__.lower() if origin is not Literal else 'literal'}[{inner}]"


def _taken(value: Any, _source: Source, _others: dict[str, Any]) -> Any:
    return value


def _read_text(value: Any, _source: Source, _others: dict[str, Any]) -> str:
    if not isinstance(value, str):
        raise mistake("string_type", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise mistake("string_unicode", value) from None
    return str(value)


def _read_float(value: Any, _source: Source, _others: dict[str, Any]) -> float:
    is_text = isinstance(value, str | bytes)
    try:
        return float(value)
    except ValueError:
        raise mistake("float_parsing" if is_text else "float_type", value) from None
    except (TypeError, OverflowError):
        raise mistake("float_type", value) from None


_MANY = 1 << 63
"""Larger than any count. A number with a fraction cannot become it, or more."""


def _read_int(value: Any, _source: Source, _others: dict[str, Any]) -> int:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise mistake("finite_number", value)
        if not value.is_integer():
            raise mistake("int_from_float", value)
        if abs(value) >= _MANY:
            raise mistake("int_parsing_size", value)
        return int(value)
    if isinstance(value, str | bytes):
        raise mistake("int_parsing", value)
    if not hasattr(value, "__index__"):
        raise mistake("int_type", value)
    return int(value)


_SWITCHES: dict[Any, bool] = {
    **dict.fromkeys(("1", "on", "t", "true", "y", "yes", 1), True),
    **dict.fromkeys(("0", "off", "f", "false", "n", "no", 0), False),
}


def _read_bool(value: Any, source: Source, others: dict[str, Any]) -> bool:
    if isinstance(value, str):
        value = _read_text(value, source, others).lower()
    elif not isinstance(value, int | float) or value != value // 1 or abs(value) >= _MANY:
        raise mistake("bool_type", value)
    word = _SWITCHES.get(value)
    if word is None:
        raise mistake("bool_parsing", value)
    return word


_PLAIN: dict[Any, Reader] = {str: _read_text, float: _read_float, int: _read_int, bool: _read_bool}


def _read_literal(expected: tuple[str, ...], value: Any, source: Source, others: dict[str, Any]) -> str:
    if isinstance(value, str):
        _read_text(value, source, others)
    for each in expected:
        if each == value:
            return each
    *first, last = map(repr, expected)
    raise mistake("literal_error", value, expected=f"{', '.join(first)} or {last}" if first else last)


def _read_tuple(read: Reader, values: Any, source: Source, others: dict[str, Any]) -> tuple[Any, ...]:
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | bytearray | Mapping):
        raise mistake("tuple_type", values)
    found: list[Any] = []
    mistakes: list[Mistake] = []
    for number, value in enumerate(values):
        try:
            found.append(read(value, source, others))
        except MistakesError as error:
            mistakes += error.below(number)
    if mistakes:
        raise MistakesError(mistakes)
    return tuple(found)


def _read_dict(read: Reader, values: Any, source: Source, others: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise mistake("dict_type", values)
    found: dict[str, Any] = {}
    mistakes: list[Mistake] = []
    for key, value in values.items():
        try:
            name = _read_text(key, source, others)
        except MistakesError as error:
            mistakes += error.below(key, "[key]")
            name = ""
        try:
            found[name] = read(value, source, others)
        except MistakesError as error:
            mistakes += error.below(key)
    if mistakes:
        raise MistakesError(mistakes)
    return found


_OF_ORIGINS: dict[Any, Callable[[tuple[Any, ...]], Reader]] = {
    Annotated: _marked,
    Union: _union,
    UnionType: _union,
    Literal: lambda expected: partial(_read_literal, expected),
    tuple: lambda items: partial(_read_tuple, make_reader(items[0])),
    dict: lambda items: partial(_read_dict, make_reader(items[1])),
}
"""Readers for types with arguments, by what takes these."""
