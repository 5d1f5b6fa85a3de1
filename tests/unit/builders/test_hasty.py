"""The constants that make a command hasty exist. Otherwise a renamed one would only make tests slow, and none fail."""

from __future__ import annotations

import ast
from importlib import import_module

from tests.builders.hasty import HASTY


def test_every_attribute_that_hasty_changes_exists() -> None:
    changed = {
        (target.value.id, target.attr)
        for statement in ast.parse(HASTY).body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)
    }
    modules = {
        name.name: import_module(f"{statement.module}.{name.name}")
        for statement in ast.parse(HASTY).body
        if isinstance(statement, ast.ImportFrom)
        for name in statement.names
    }
    assert len(changed) == 6
    assert [where for where in changed if not hasattr(modules[where[0]], where[1])] == []
