"""litelog.dataclass: classes behave as those of the standard library, and nothing is compiled before it is needed."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import pickle
import pkgutil
import re
from dataclasses import field
from pathlib import Path
from types import FunctionType
from typing import Any, Generic, TypeVar

import pytest

import litelog
from litelog import dataclass as dataclass_module
from litelog.dataclass import dataclass
from litelog.objects.layout import Generation
from litelog.objects.position import Position

# The module's name is also that of its function, so mypy would take the calls below for the standard library's.
LITELOG: Any = dataclass
STANDARD: Any = dataclasses.dataclass

T = TypeVar("T")


class Base(Generic[T]):
    """A base that is no dataclass."""

    __slots__ = ()

    def base(self) -> str:
        """Say where this is from."""
        return "base"


def define(make: Any) -> dict[str, Any]:
    """One class for each use of a dataclass, made by ``make``."""

    @make(frozen=True, slots=True)
    class Frozen:
        a: int
        b: str = "b"
        c: list[int] = field(default_factory=list)
        d: bytes = field(default=b"secret", repr=False)
        e: float = field(default=0.5, compare=False)

    @make(frozen=True, slots=True)
    class Single:
        value: Any

    @make(frozen=True, slots=True)
    class Empty:
        pass

    @make(frozen=True, slots=True, order=True)
    class Ordered:
        a: int
        b: int = 0
        name: str = field(default="", compare=False)

    @make(slots=True)
    class Mutable:
        a: int
        b: list[int] = field(default_factory=list)

    @make(slots=True, eq=False)
    class Identity:
        a: int = 0

    @make
    class Open:
        """It has a docstring and a property."""

        a: int
        b: int = 2

        @property
        def both(self) -> int:
            """The sum."""
            return self.a + self.b

    @make(frozen=True, slots=True)
    class Named:
        first: int = field(kw_only=True)
        second: int = 0
        third: int = field(default=3, hash=False, kw_only=True)
        later: int = field(init=False)
        fixed: int = field(default=9, init=False)
        made: tuple[int, ...] = field(default_factory=tuple, init=False)

    @make(frozen=True, slots=True)
    class Checked:  # noqa: PLW1641 - the decorator adds it
        a: int

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError("below 0")

        def __repr__(self) -> str:
            return f"checked {self.a}"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, int) and other == self.a

    @make(frozen=True, slots=True)
    class Hashed:
        a: int

        def __hash__(self) -> int:
            return 7

    @make(frozen=True, slots=True)
    class Child(Base[T]):
        a: int

    @make(frozen=True, slots=True)
    class Grown(Frozen):
        f: int = 6

    @make(frozen=True, slots=True)
    class Recursive:
        others: list[Any]

    class Plain(Frozen):
        """A subclass that is no dataclass, with attributes of its own."""

    return {name: made for name, made in locals().items() if isinstance(made, type)}


OURS, THEIRS = define(LITELOG), define(STANDARD)


def outcome(act: Any, classes: dict[str, Any]) -> Any:
    """What ``act`` returns, or the error that it raises."""
    try:
        return act(classes)
    except Exception as error:  # noqa: BLE001 - the comparison is about any error
        return type(error), str(error)


def changed(instance: Any, name: str, value: Any) -> Any:
    """``instance`` after an assignment."""
    setattr(instance, name, value)
    return dataclasses.asdict(instance)


def without(instance: Any, name: str) -> Any:
    """``instance`` after a deletion."""
    delattr(instance, name)
    return hasattr(instance, name)


def recursive(classes: dict[str, Any]) -> str:
    """An instance that contains itself."""
    others: list[Any] = []
    others.append(classes["Recursive"](others))
    return repr(others[0])


def restored(instance: Any) -> Any:
    """``instance`` from the state that its pickle has."""
    again = object.__new__(type(instance))
    again.__setstate__(instance.__getstate__())
    return repr(again), again == instance, instance.__getstate__()


NAN = float("nan")
ACTS = {
    "defaults": lambda c: repr(c["Frozen"](1)),
    "positions": lambda c: repr(c["Frozen"](1, "x", [2], b"y", 1.5)),
    "names": lambda c: repr(c["Frozen"](c=[1], a=2)),
    "missing": lambda c: c["Frozen"](),
    "too many": lambda c: c["Single"](1, 2),
    "unknown": lambda c: c["Single"](1, x=2),
    "own default": lambda c: c["Frozen"](1).c is c["Frozen"](1).c,
    "equal": lambda c: (c["Frozen"](1) == c["Frozen"](1), c["Frozen"](1) == c["Frozen"](2)),
    "not compared": lambda c: c["Frozen"](1, e=1) == c["Frozen"](1, e=2),
    "another class": lambda c: (c["Single"](1) == c["Child"](1), c["Single"](1) != 1),
    "same not-a-number": lambda c: c["Single"](NAN) == c["Single"](NAN),
    "empty": lambda c: (c["Empty"]() == c["Empty"](), hash(c["Empty"]()), repr(c["Empty"]())),
    "hash": lambda c: (hash(c["Single"]("a")), hash(c["Named"](first=1, second=2))),
    "hash without third": lambda c: hash(c["Ordered"](1, 2, "a")) == hash(c["Ordered"](1, 2, "b")),
    "unhashable value": lambda c: hash(c["Frozen"](1)),
    "unhashable class": lambda c: hash(c["Mutable"](1)),
    "unhashable open class": lambda c: hash(c["Open"](1)),
    "hash by identity": lambda c: c["Identity"].__hash__ is object.__hash__,
    "own hash": lambda c: hash(c["Hashed"](1)),
    "hash with own comparison": lambda c: hash(c["Checked"](3)),
    "identity": lambda c: c["Identity"]() == c["Identity"](),
    "order": lambda c: sorted([c["Ordered"](2), c["Ordered"](1, 5, "b"), c["Ordered"](1, 5, "a")])[0].name,
    "orders": lambda c: [getattr(c["Ordered"](1, 2), f"__{name}__")(c["Ordered"](1, 3)) for name in ("lt", "le")],
    "orders the other way": lambda c: [
        c["Ordered"](1, 2) > c["Ordered"](1, 2),
        c["Ordered"](1, 2) >= c["Ordered"](1, 2),
    ],
    "order of others": lambda c: c["Ordered"](1) < 1,
    "no order": lambda c: c["Single"](1) < c["Single"](2),
    "assignment": lambda c: changed(c["Frozen"](1), "a", 2),
    "assignment to an open one": lambda c: changed(c["Mutable"](1), "a", 2),
    "no other names with slots": lambda c: changed(c["Mutable"](1), "z", 2),
    "other names without slots": lambda c: changed(c["Open"](1), "z", 2),
    "deletion": lambda c: without(c["Frozen"](1), "a"),
    "deletion from an open one": lambda c: without(c["Mutable"](1), "a"),
    "subclass: a field": lambda c: changed(c["Plain"](1), "a", 2),
    "subclass: equal": lambda c: (c["Plain"](1) == c["Plain"](1), c["Plain"](1) == c["Frozen"](1)),
    "keyword only": lambda c: repr(c["Named"](1, first=2).second),
    "keyword only as position": lambda c: c["Named"](1, 2),
    "not initialised": lambda c: (
        c["Named"](first=1).fixed,
        c["Named"](first=1).made,
        hasattr(c["Named"](first=1), "later"),
    ),
    "own check": lambda c: c["Checked"](-1),
    "own text": lambda c: (repr(c["Checked"](1)), c["Checked"](1) == 1),
    "base": lambda c: (c["Child"](1).base(), c["Child"](2).a),
    "grown": lambda c: (repr(c["Grown"](1, f=2)), c["Grown"](1) == c["Grown"](1), c["Grown"](1) == c["Frozen"](1)),
    "grown is frozen": lambda c: changed(c["Grown"](1), "a", 2),
    "recursive": recursive,
    "replace": lambda c: repr(dataclasses.replace(c["Frozen"](1), b="x")),
    "replace of an unknown field": lambda c: dataclasses.replace(c["Frozen"](1), z="x"),
    "asdict": lambda c: dataclasses.asdict(c["Frozen"](1, c=[c["Single"](2)])),
    "astuple": lambda c: dataclasses.astuple(c["Ordered"](1, 2)),
    "copy": lambda c: (repr(copy.copy(c["Frozen"](1))), repr(copy.deepcopy(c["Mutable"](1, [2])))),
    "state": lambda c: restored(c["Frozen"](1)),
    "no dict": lambda c: hasattr(c["Frozen"](1), "__dict__"),
    "property": lambda c: c["Open"](1).both,
}


@pytest.mark.parametrize("act", ACTS)
def test_a_class_does_what_one_of_the_standard_library_does(act: str) -> None:
    assert outcome(ACTS[act], OURS) == outcome(ACTS[act], THEIRS)


def test_only_a_subclass_of_a_frozen_class_has_other_names() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError, match="assign to field 'z'"):
        changed(OURS["Frozen"](1), "z", 2)
    with pytest.raises(dataclasses.FrozenInstanceError, match="delete field 'z'"):
        without(OURS["Frozen"](1), "z")
    plain = OURS["Plain"](1)
    changed(plain, "z", 2)
    assert plain.z == 2
    assert not without(plain, "z")


def shape(made: Any) -> dict[str, Any]:
    """What programs see of a class without an instance."""
    return {
        "fields": [
            (each.name, each.type, each.init, each.repr, each.compare, each.kw_only)
            for each in dataclasses.fields(made)
        ],
        "parameters": repr(made.__dataclass_params__),
        "matched": made.__match_args__,
        "signature": str(inspect.signature(made)),
        "slots": getattr(made, "__slots__", None),
        "hash": made.__hash__ is None,
        "annotations": made.__init__.__annotations__,
        "name": (made.__qualname__, made.__init__.__qualname__, made.__init__.__module__),
    }


@pytest.mark.parametrize("name", sorted(OURS))
def test_a_class_looks_like_one_of_the_standard_library(name: str) -> None:
    assert shape(OURS[name]) == shape(THEIRS[name])


def test_an_instance_can_be_pickled() -> None:
    position = Position(Generation(7), 1, 42)
    assert pickle.loads(pickle.dumps(position)) == position


def test_nothing_is_compiled_for_a_class_without_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[type] = []
    compile_init = dataclass_module._compile_init
    monkeypatch.setattr(
        dataclass_module, "_compile_init", lambda made, frozen: compiled.append(made) or compile_init(made, frozen)
    )
    classes = define(LITELOG)
    assert [made.__name__ for made in compiled] == []
    for number in range(3):
        classes["Single"](number)
    assert [made.__name__ for made in compiled] == ["Single"]
    assert isinstance(classes["Single"].__init__, FunctionType)


def own_classes() -> list[Any]:
    """All classes of the library that ``dataclass`` has made."""
    found = {}
    for module in pkgutil.walk_packages(litelog.__path__, "litelog."):
        if not module.name.startswith(("litelog.spark", "litelog.aio")):  # they need packages that may be missing
            names = vars(importlib.import_module(module.name))
            found.update({id(each): each for each in names.values() if isinstance(each, type)})
    return [
        each
        for each in found.values()
        if "__dataclass_fields__" in vars(each) and each.__module__.startswith("litelog")
    ]


@pytest.mark.slow
def test_every_class_of_the_library_has_the_signature_of_a_standard_one() -> None:
    classes = own_classes()
    assert len(classes) > 200
    for made in classes:
        parts = [(each.name, each.type, copied(each)) for each in dataclasses.fields(made)]
        parameters = made.__dataclass_params__
        standard = dataclasses.make_dataclass(made.__name__, parts, frozen=parameters.frozen, eq=parameters.eq)
        assert str(inspect.signature(made)) == str(inspect.signature(standard)), made


def copied(each: dataclasses.Field[Any]) -> Any:
    """A field as a class's body writes it, without a default that the standard library refuses again."""
    given = (
        {"default": each.default}
        if each.default is not dataclasses.MISSING
        else {"default_factory": each.default_factory}
    )
    return field(**given, init=each.init, repr=each.repr, compare=each.compare, kw_only=each.kw_only)


def test_the_modules_of_litelog_define_their_classes_with_it() -> None:
    """A class that the standard library compiles takes half a millisecond at each start."""
    root = Path(__file__).parents[2]
    modules = [each for part in ("litelog", "replica_clients", "cmd") for each in (root / part).rglob("*.py")]
    assert len(modules) > 600
    theirs = re.compile(r"^ *from dataclasses import [^\n]*\bdataclass\b|^ *@dataclasses\.dataclass", re.MULTILINE)
    assert [each.name for each in modules if theirs.search(each.read_text())] == ["dataclass.py"]
