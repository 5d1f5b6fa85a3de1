"""What is installed, found out without an import: each worker collects all test modules, and the libraries of tables
take tens of MiB."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def is_installed(module: str) -> bool:
    """Whether a module of the top level could be imported."""
    return find_spec(module) is not None


def needs(*modules: str) -> pytest.MarkDecorator:
    """A mark that skips a test unless all of these are installed. The test imports them where it uses them."""
    missing = [module for module in modules if not is_installed(module)]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")
