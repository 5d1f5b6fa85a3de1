"""The public names of ``litelog`` are listed, loaded lazily and typed, and none replaces a module."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import litelog
from litelog import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]


def test_importing_it_loads_nothing_else() -> None:
    script = "import sys; before = set(sys.modules); import litelog; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["litelog", "litelog.version"]


def test_each_name_is_there_and_in_the_list() -> None:
    assert {name for name in litelog.__all__ if getattr(litelog, name) is None} == set()
    assert set(litelog.__all__) <= set(dir(litelog))
    with pytest.raises(AttributeError, match="module 'litelog' has no attribute 'restore_lgo'"):
        litelog.restore_lgo  # type: ignore[attr-defined]  # noqa: B018


def test_the_types_are_those_of_the_names() -> None:
    """Type checkers import the same objects as a program."""
    tree = ast.parse(Path(litelog.__file__).read_text())
    stated = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module != "importlib"
        for alias in node.names
    }
    assert set(stated) == set(litelog.__all__)
    for name, (module, original) in stated.items():
        assert getattr(litelog, name) is getattr(import_module(module), original), name


def test_the_errors_that_a_caller_meets_are_offered() -> None:
    internal = {"GenerationMismatchError", "SegmentOrderError", "SourceSyncError", "NotEnoughMemoryError"}
    internal |= {"EmptyLogError", "NotFoundError", "ExistsError", "ForeignClaimError", "ReplicaLockedError"}
    internal |= {"NotACopyError"}
    defined = {name for name, value in vars(errors).items() if isinstance(value, type) and name.endswith("Error")}
    assert defined - internal == {name for name in litelog.__all__ if name.endswith("Error")}


PACKAGES = sorted(".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "litelog").rglob("__init__.py"))


@pytest.mark.parametrize("name", PACKAGES)
def test_no_name_of_a_package_replaces_a_module_of_it(name: str) -> None:
    package = Path(ROOT, *name.split("."))
    tree = ast.parse((package / "__init__.py").read_text())
    offered = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert not offered & {found.name for found in pkgutil.iter_modules([str(package)])}


def public_functions(name: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions that callers of a public name see, parsed."""
    offered = getattr(litelog, name)
    if not (inspect.isclass(offered) or inspect.isfunction(offered)):
        return
    tree = ast.parse(Path(inspect.getfile(offered)).read_text())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            yield name, node
        if isinstance(node, ast.ClassDef) and node.name == name:
            for each in node.body:
                if isinstance(each, ast.FunctionDef) and (each.name == "__init__" or not each.name.startswith("_")):
                    yield f"{name}.{each.name}", each


@pytest.mark.parametrize("name", litelog.__all__)
def test_no_public_signature_leaves_a_type_open(name: str) -> None:
    for place, function in public_functions(name):
        arguments = function.args
        given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        stated = [each.annotation for each in given if each.arg not in ("self", "cls")]
        for annotation in (*stated, function.returns):
            assert annotation is not None, place
            names = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
            assert "Any" not in names, place


@pytest.mark.parametrize("name", [name for name in litelog.__all__ if not name.endswith("Error")])
def test_each_public_function_is_described_with_its_arguments(name: str) -> None:
    """A docstring names each argument where there are several, or refers to the function that does."""
    for place, function in public_functions(name):
        text = ast.get_docstring(function)
        if any(isinstance(each, ast.Name) and each.id == "overload" for each in function.decorator_list):
            continue
        if function.name == "__init__" and (text is None or text.startswith("For ``")):
            continue  # programs do not create the object themselves
        assert text, place
        arguments = function.args
        names = [each.arg for each in (*arguments.args, *arguments.kwonlyargs) if each.arg not in ("self", "cls")]
        if len(names) > 1 and not re.search(r"(?i)\bas (in )?``|arguments of|\bArgs as\b", text):
            assert [each for each in names if not re.search(rf"\b{each}\b", text)] == [], place
