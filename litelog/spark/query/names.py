"""Names of columns in Spark SQL."""

from __future__ import annotations


def quoted(name: str) -> str:
    """Quote a column's name, which may contain any characters, for Spark SQL."""
    return f"`{name.replace('`', '``')}`"
