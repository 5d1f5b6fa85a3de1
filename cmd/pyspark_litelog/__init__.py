"""Registers the data source ``litelog`` with Spark, which finds this module without a setting.

For a format that it does not know, Spark imports every top-level module named ``pyspark_*`` and registers its
``DefaultSource``. A failing import would break this for all other sources, so this module suppresses its own.
"""

from __future__ import annotations

from contextlib import suppress

with suppress(ImportError):
    from litelog.spark.source import LitelogSource as DefaultSource

__all__ = ["DefaultSource"]
