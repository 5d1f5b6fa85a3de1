"""Options as Spark takes them: text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def spell_options(options: Mapping[str, object] | None) -> dict[str, str]:
    """Every value as text: ``true`` and ``false`` for the two that Python spells otherwise."""
    given = options or {}
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}
