"""A partition in Spark's own type. This module imports PySpark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    from litelog.spark.scan.partitions import Partition


class PlannedPartition(InputPartition):
    """Wraps a partition. Its repr shows neither places nor options."""

    def __init__(self, partition: Partition) -> None:
        super().__init__(partition)

    def __repr__(self) -> str:
        return f"PlannedPartition({self.value.raw_bytes} bytes)"
