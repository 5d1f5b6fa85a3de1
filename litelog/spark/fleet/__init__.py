"""Jobs over many replicas, each replica in one task: copy, restore, verify, export. Each returns a report.

As commands: ``litelog spark copy``, ``restore``, and ``verify`` and ``export`` of a pattern.
"""

from __future__ import annotations

from litelog.spark.fleet.copies import copy
from litelog.spark.fleet.exports import export
from litelog.spark.fleet.restores import restore
from litelog.spark.fleet.verifications import verify

__all__ = ["copy", "export", "restore", "verify"]
