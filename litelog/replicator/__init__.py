"""Replicates logs while they grow: all logs of a configuration, in one process, with a bounded number of threads."""

from litelog.replicator.main import Replicator

__all__ = ["Replicator"]
