"""A daemon of Python workers for Spark. Before it forks, it imports the modules that each worker needs.

Spark's own daemon imports almost none of them. So the tests would import the same modules in each new worker.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

# A process that forks must have only one thread.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"

MODULES = ("litelog.spark.source", "replica_clients.file")

if __name__ == "__main__":
    from pyspark.daemon import manager

    for name in (sys.argv[1], *MODULES):
        import_module(name)
    manager()
