"""A hint at a missing extra names the installed litelog, not another package of that name on an index."""

from __future__ import annotations

import ast
import json
import re
import shlex
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from litelog.errors import UnknownSchemeError
from litelog.installation import install_command

ROOT = Path(__file__).parents[2]


class Installed:
    """A distribution, as importlib.metadata returns it."""

    def __init__(self, origin: str | None, name: str = "litelog") -> None:
        self.metadata = {"Name": name}
        self._origin = origin

    def read_text(self, name: str) -> str | None:
        return self._origin if name == "direct_url.json" else None


COMMIT = "0" * 40

CASES: list[tuple[dict[str, Any] | None, str]] = [
    (None, "pip install 'litelog[s3]'"),
    ({"url": "file:///src/my%20log", "dir_info": {"editable": True}}, "pip install -e '/src/my log[s3]'"),
    ({"url": "file:///src/litelog", "dir_info": {}}, "pip install '/src/litelog[s3]'"),
    ({"url": "file:///w/litelog-1.whl", "archive_info": {}}, "pip install 'litelog[s3] @ file:///w/litelog-1.whl'"),
    ({"url": "https://h/litelog-1.whl", "archive_info": {}}, "pip install 'litelog[s3] @ https://h/litelog-1.whl'"),
    (
        {"url": "https://h/r.git", "vcs_info": {"vcs": "git", "commit_id": COMMIT}, "subdirectory": "py"},
        f"pip install 'litelog[s3] @ git+https://h/r.git@{COMMIT}#subdirectory=py'",
    ),
]


@pytest.mark.parametrize(("origin", "command"), CASES)
def test_the_command_names_where_it_was_installed_from(
    origin: dict[str, Any] | None, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Installed(None if origin is None else json.dumps(origin))
    monkeypatch.setattr("importlib.metadata.distribution", lambda _: found)
    assert install_command("s3") == command
    requirement = shlex.split(command)[-1]
    if " @ " in requirement or "/" not in requirement:
        assert Requirement(requirement).extras == {"s3"}


@pytest.mark.parametrize("origin", ["", "{", "[]", '{"url": 5}'])
def test_an_origin_that_cannot_be_read_is_an_index(origin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.distribution", lambda _: Installed(origin, "Lite-Log"))
    name = "litelog" if origin == "{" else "Lite-Log"
    assert install_command("spark", "python3 -m pip") == f"python3 -m pip install '{name}[spark]'"


def test_sources_that_are_not_installed_have_the_projects_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Installed:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.distribution", missing)
    assert install_command("s3") == "pip install 'litelog[s3]'"


def test_an_error_has_the_command() -> None:
    assert str(UnknownSchemeError("gs", ["file"], "fsspec")).endswith(f"run: {install_command('fsspec')}")


@pytest.mark.slow
def test_no_other_module_makes_such_a_hint() -> None:
    found = [
        f"{path}: {node.value}"
        for folder in ("litelog", "cmd", "replica_clients")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and re.search(r"pip install .?litelog", str(node.value))
    ]
    assert [each for each in found if "``pip install" not in each] == []
