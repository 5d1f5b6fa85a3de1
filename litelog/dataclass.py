"""The dataclasses of litelog: as those of the standard library, but quick to define.

The standard library compiles up to six functions for each class when the class is defined. A command defines hundreds
of classes, and makes instances of few. Here ``__init__`` is compiled when it is first used. The other methods are not
compiled: they read the fields with ``operator.attrgetter``. ``fields``, ``replace`` and ``asdict`` of the standard
library take these classes as they take its own.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from dataclasses import dataclass

__all__ = ["dataclass"]


def _dataclass(
    cls: type | None = None, /, *, frozen: bool = False, eq: bool = True, order: bool = False, slots: bool = False
) -> Any:
    """Make a class a dataclass. Each option means what it means for ``dataclasses.dataclass``."""
    if cls is None:
        return lambda defined: _dataclass(defined, frozen=frozen, eq=eq, order=order, slots=slots)
    if dataclasses.is_dataclass(cls):  # it inherits from one, whose methods call and compare this class's
        return dataclasses.dataclass(frozen=frozen, eq=eq, order=order, slots=slots)(cls)
    cls.__doc__ = cls.__doc__ or cls.__name__  # the standard library would write the signature there, with effort
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
    parameters = made.__dataclass_params__
    parameters.init = parameters.repr = True
    parameters.eq, parameters.order, parameters.frozen = eq, order, frozen
    for name, method in _methods(made, frozen, eq, order, slots).items():
        # Python itself sets __hash__ to None if the class defines __eq__.
        if name not in made.__dict__ or (name == "__hash__" and made.__hash__ is None):
            setattr(made, name, method)
    return made


if not TYPE_CHECKING:
    dataclass = _dataclass


def _methods(made: type, frozen: bool, eq: bool, order: bool, slots: bool) -> dict[str, Any]:
    """The methods for a class, by name, unless the class defines them itself."""
    fields = dataclasses.fields(made)
    compared = _values_of(field.name for field in fields if field.compare)
    methods: dict[str, Any] = {"__init__": _Init(made, frozen), "__repr__": _repr}
    if eq:
        methods["__eq__"] = _make_eq(compared)
        hashed = (field.name for field in fields if (field.compare if field.hash is None else field.hash))
        methods["__hash__"] = _make_hash(_values_of(hashed)) if frozen else None
    if order:
        methods |= _make_order(compared)
    if frozen:
        methods |= {"__setattr__": _refuse_set, "__delattr__": _refuse_delete}
        if slots:
            methods |= {"__getstate__": _get_state, "__setstate__": _set_state}
    return methods


class _Factory:
    """The default of an argument whose value a factory makes, as signatures show it."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


class _Init:
    """Stands for ``__init__`` of a class until someone asks for it, and then puts the compiled one in its place."""

    __slots__ = ("_frozen", "_made")

    def __init__(self, made: type, frozen: bool) -> None:
        self._made = made
        self._frozen = frozen

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        function = _compile_init(self._made, self._frozen)
        self._made.__init__ = function  # type: ignore[misc]
        return function.__get__(instance, owner)


def _compile_init(made: type, frozen: bool) -> Any:
    """The function that assigns all fields from its arguments, and then calls ``__post_init__`` if there is one."""
    known: dict[str, Any] = {"_factory": _FACTORY}
    arguments, keyword_only, body = ["self"], list[str](), list[str]()
    annotations: dict[str, Any] = {}
    for field in dataclasses.fields(made):
        name, value = field.name, field.name
        argument = name
        if field.default_factory is not dataclasses.MISSING:
            known[f"_make_{name}"] = field.default_factory
            argument = f"{name}=_factory"
            value = f"_make_{name}() if {name} is _factory else {name}" if field.init else f"_make_{name}()"
        elif field.default is not dataclasses.MISSING:
            known[f"_default_{name}"] = field.default
            argument = f"{name}=_default_{name}"
            value = name if field.init else f"_default_{name}"
        if field.init:
            (keyword_only if field.kw_only else arguments).append(argument)
            annotations[name] = field.type
        elif value == name:
            continue  # the class sets it itself
        body.append(_assignment(made, frozen, name, value, known))
    if hasattr(made, "__post_init__"):
        body.append("self.__post_init__()")
    star = ["*", *keyword_only] if keyword_only else []
    text = f"def __init__({', '.join(arguments + star)}):\n " + "\n ".join(body or ["pass"])
    exec(text, known)  # noqa: S102 - as the standard library does
    function = known["__init__"]
    function.__qualname__ = f"{made.__qualname__}.__init__"
    function.__module__ = made.__module__
    function.__annotations__ = {**annotations, "return": None}
    return function


def _assignment(made: type, frozen: bool, name: str, value: str, known: dict[str, Any]) -> str:
    """The statement that assigns the expression ``value`` to a field. ``known``: what the statement may use."""
    if not frozen:
        return f"self.{name} = {value}"
    slot = made.__dict__.get(name)
    if isinstance(slot, MemberDescriptorType):  # it takes half the time of object.__setattr__
        known[f"_set_{name}"] = slot.__set__
        return f"_set_{name}(self, {value})"
    known["_set"] = object.__setattr__
    return f"_set(self, {name!r}, {value})"


def _values_of(names: Iterable[str]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that returns the values of an object's fields as a tuple."""
    taken = tuple(names)
    if len(taken) > 1:
        return attrgetter(*taken)
    return lambda instance: tuple(getattr(instance, name) for name in taken)


def _make_eq(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, Any], Any]:
    def __eq__(self: Any, other: Any) -> Any:  # noqa: N807
        if other.__class__ is self.__class__:
            return values(self) == values(other)
        return NotImplemented

    return __eq__


def _make_hash(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(values(self))

    return __hash__


def _make_order(values: Callable[[Any], tuple[Any, ...]]) -> dict[str, Callable[[Any, Any], Any]]:
    def __lt__(self: Any, other: Any) -> Any:  # noqa: N807
        return values(self) < values(other) if other.__class__ is self.__class__ else NotImplemented

    def __le__(self: Any, other: Any) -> Any:  # noqa: N807
        return values(self) <= values(other) if other.__class__ is self.__class__ else NotImplemented

    def __gt__(self: Any, other: Any) -> Any:  # noqa: N807
        return values(self) > values(other) if other.__class__ is self.__class__ else NotImplemented

    def __ge__(self: Any, other: Any) -> Any:  # noqa: N807
        return values(self) >= values(other) if other.__class__ is self.__class__ else NotImplemented

    return {"__lt__": __lt__, "__le__": __le__, "__gt__": __gt__, "__ge__": __ge__}


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _refuse(self: Any, name: str, what: str) -> None:
    """Raise FrozenInstanceError, unless the attribute is one that a subclass adds."""
    if "__dataclass_fields__" in type(self).__dict__ or name in self.__dataclass_fields__:
        raise dataclasses.FrozenInstanceError(f"cannot {what} field {name!r}")


def _refuse_set(self: Any, name: str, value: Any) -> None:
    _refuse(self, name, "assign to")
    object.__setattr__(self, name, value)


def _refuse_delete(self: Any, name: str) -> None:
    _refuse(self, name, "delete")
    object.__delattr__(self, name)


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
