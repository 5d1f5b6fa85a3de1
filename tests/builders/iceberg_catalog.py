"""A new catalog of Iceberg tables, configured as users configure pyiceberg."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def configure(patch: pytest.MonkeyPatch, name: str, folder: Path) -> None:
    """Make ``load_catalog(name)`` open a catalog in a folder. pyiceberg reads the environment when it is imported."""
    settings = {"TYPE": "sql", "URI": f"sqlite:///{folder}/catalog.db", "WAREHOUSE": folder.as_uri()}
    for key, value in settings.items():
        patch.setenv(f"PYICEBERG_CATALOG__{name.upper()}__{key}", value)
    from pyiceberg import catalog
    from pyiceberg.utils.config import Config

    patch.setattr(catalog, "_ENV_CONFIG", Config())
