"""Models: classes with declared fields, whose instances are made of checked values and cannot be changed.

The names of the methods, and the errors, are those of pydantic.
"""

from __future__ import annotations

import copy
from dataclasses import MISSING, Field, field
from inspect import get_annotations
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, dataclass_transform, get_type_hints

from litelog.config.field_types import Hidden, IfNone, Mistake, MistakesError, Source, make_reader, mistake

if TYPE_CHECKING:
    from collections.abc import Mapping

    from litelog.config.field_types import Reader


COMPUTED: Any = None
"""The default of a field with ``IfNone``."""


def kebab(name: str) -> str:
    """A field's name as YAML spells it."""
    return name.replace("_", "-")


class ModelField(NamedTuple):
    """A field of a model."""

    annotation: Any
    default: Any
    """MISSING if the field is required."""
    factory: Any
    """Makes the default, unless it is MISSING."""
    read: Reader
    fills: bool
    """Whether the default depends on other fields."""
    is_hidden: bool

    def make_default(self, source: Source, values: dict[str, Any]) -> Any:
        """The value of the field if none is given."""
        if self.fills:
            return self.read(None, source, values)
        return self.default if self.factory is MISSING else self.factory()


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Model:
    """The base of all models."""

    model_fields: ClassVar[_Fields]
    model_fields_set: frozenset[str]
    """The names of the fields that were given, and not filled in."""

    def __init__(self, /, **values: Any) -> None:
        try:
            found = self._read_values(self._rewritten(values), Source(False, True, True))
        except MistakesError as error:
            raise error.validation_error(type(self).__name__) from None
        self.__dict__.update(found.__dict__)

    @classmethod
    def _rewritten(cls, value: Any) -> Any:
        """Convert ``value`` before it is read."""
        return value

    def _check_together(self, source: Source) -> None:
        """Check the values together. Raises ValueError."""

    @classmethod
    def _make(cls, values: dict[str, Any], given: frozenset[str]) -> Self:
        made = cls.__new__(cls)
        made.__dict__.update(values, model_fields_set=given)
        return made

    @classmethod
    def _read_values(cls, values: Mapping[Any, Any], source: Source) -> Self:
        """Make a model of a mapping. Raises MistakesError."""
        found: dict[str, Any] = {}
        mistakes: list[Mistake] = []
        given: dict[str, str] = {}
        for name, declared in cls.model_fields.items():
            keys = ([kebab(name)] if source.by_alias else []) + ([name] if source.by_name else [])
            key = next((each for each in keys if each in values), None)
            try:
                if key is not None:
                    given[key] = name
                    found[name] = declared.read(values[key], source, found)
                elif declared.default is MISSING and declared.factory is MISSING:
                    raise mistake("missing", values)
                else:
                    found[name] = declared.make_default(source, found)
            except MistakesError as error:
                mistakes += error.below(keys[0] if key is None else key)
        for key, value in values.items():
            if key not in given:
                kind = "extra_forbidden" if isinstance(key, str) else "invalid_key"
                mistakes += mistake(kind, value).below(key)
        if mistakes:
            raise MistakesError(mistakes)
        made = cls._make(found, frozenset(given.values()))
        try:
            cls._check_together(made, source)
        except ValueError as error:
            raise mistake("value_error", values, error=error) from None
        return made

    @classmethod
    def read(cls, value: Any, source: Source) -> Self:
        """Make a model of a mapping of keys to values; a model is taken as it is. Raises MistakesError."""
        if isinstance(value, cls):
            return value
        value = cls._rewritten(value)
        if not hasattr(value, "keys"):
            raise mistake("model_type", value, class_name=cls.__name__)
        return cls._read_values(value, source)

    @classmethod
    def model_validate(cls, value: Any, *, by_alias: bool = True, by_name: bool = True) -> Self:
        """Make a model of a mapping. ``by_alias``: keys may be as in YAML; ``by_name``: as in Python.

        Raises pydantic's ValidationError.
        """
        try:
            return cls.read(value, Source(False, by_alias, by_name))
        except MistakesError as error:
            raise error.validation_error(cls.__name__) from None

    @classmethod
    def model_construct(cls, **values: Any) -> Self:
        """Make a model of values that are known to be valid."""
        source = Source(False, False, True)
        found: dict[str, Any] = {}
        for name, declared in cls.model_fields.items():
            found[name] = values[name] if name in values else declared.make_default(source, found)
        return cls._make(found, frozenset(values))

    def model_copy(self, *, update: Mapping[str, Any]) -> Self:
        """Return a copy with other values, which are known to be valid."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return self._make({**values, **update}, self.model_fields_set | update.keys())

    def model_dump(self, *, exclude_unset: bool = False) -> dict[str, Any]:
        """The values as a dict, and those of models within as well. ``exclude_unset``: only those that were given."""
        names = [name for name in type(self).model_fields if not exclude_unset or name in self.model_fields_set]
        return {name: _dump(getattr(self, name), exclude_unset) for name in names}

    def __setattr__(self, name: str, value: Any) -> None:
        raise MistakesError([Mistake("frozen_instance", value, {}, (name,))]).validation_error(type(self).__name__)

    def __delattr__(self, name: str) -> None:
        raise MistakesError([Mistake("frozen_instance", None, {}, (name,))]).validation_error(type(self).__name__)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in type(self).model_fields)

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in type(self).model_fields)))

    def __repr__(self) -> str:
        shown = (
            f"{name}={getattr(self, name)!r}" for name, each in type(self).model_fields.items() if not each.is_hidden
        )
        return f"{type(self).__name__}({', '.join(shown)})"


class _Fields:
    """``model_fields`` of a class: the names and fields, in order. Types are looked up when they are first needed."""

    def __init__(self) -> None:
        self._known: dict[type[Model], dict[str, ModelField]] = {}

    def __get__(self, _instance: object, owner: type[Model]) -> dict[str, ModelField]:
        found = self._known.get(owner)
        if found is None:
            found = self._known[owner] = _fields_of(owner)
        return found


Model.model_fields = _Fields()


def _fields_of(model: type[Model]) -> dict[str, ModelField]:
    types = get_type_hints(model, include_extras=True)
    names = {name: None for each in reversed(model.__mro__) for name in get_annotations(each)}
    return {name: _field_of(types[name], getattr(model, name, MISSING)) for name in names if name not in _OF_MODELS}


_OF_MODELS = ("model_fields", "model_fields_set")


def _field_of(annotation: Any, default: Any) -> ModelField:
    factory: Any = MISSING
    if isinstance(default, Field):
        default, factory = default.default, default.default_factory
    marks = getattr(annotation, "__metadata__", ())
    kinds = {type(mark) for mark in marks}
    return ModelField(annotation, default, factory, make_reader(annotation), IfNone in kinds, Hidden in kinds)


def _dump(value: Any, exclude_unset: bool) -> Any:
    if isinstance(value, Model):
        return value.model_dump(exclude_unset=exclude_unset)
    if isinstance(value, tuple):
        return tuple(_dump(each, exclude_unset) for each in value)
    return copy.deepcopy(value) if isinstance(value, dict) else value
