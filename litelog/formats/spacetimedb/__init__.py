"""The log format of SpacetimeDB's commitlog, versions 0 and 1."""

from litelog.formats.spacetimedb.format import SpacetimeDBFormat

__all__ = ["SpacetimeDBFormat"]
