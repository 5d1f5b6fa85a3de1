"""What Spark finds by itself: the data source ``litelog``.

On the first format that it does not know, Spark imports every top-level module named ``pyspark_*`` and registers its
``DefaultSource``. An import that fails would break that for every other source, so this one cannot.
"""

from __future__ import annotations

from contextlib import suppress

with suppress(ImportError):
    from litelog.spark.source import LitelogSource as DefaultSource

__all__ = ["DefaultSource"]
