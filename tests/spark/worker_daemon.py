"""A daemon of Python workers for Spark. Before it forks, it imports the modules that each worker needs.

Spark's own daemon imports almost none of them, and Spark plans each read of a source in a new worker. So the tests
would import the same modules several hundred times.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

# A process that forks must have only one thread.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"

MODULES = (
    "pyspark.worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "litelog.spark.source",
    "replica_clients.file",
)

if __name__ == "__main__":
    from pyspark.daemon import manager

    if "lookup" not in sys.argv[1]:  # Spark asks it once
        for name in MODULES:
            import_module(name)
    manager()
