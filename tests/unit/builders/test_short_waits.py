"""The constants that shorten the waits of a command exist. A renamed one would make tests slow, and none would fail."""

from __future__ import annotations

import ast
from importlib import import_module

from tests.builders.short_waits import SHORT_WAITS


def test_every_attribute_of_the_short_waits_exists() -> None:
    changed = {
        (target.value.id, target.attr)
        for statement in ast.parse(SHORT_WAITS).body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)
    }
    modules = {
        name.name: import_module(f"{statement.module}.{name.name}")
        for statement in ast.parse(SHORT_WAITS).body
        if isinstance(statement, ast.ImportFrom)
        for name in statement.names
    }
    assert len(changed) == 6
    assert [where for where in changed if not hasattr(modules[where[0]], where[1])] == []
