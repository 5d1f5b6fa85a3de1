"""A partition as Spark carries it. This module imports PySpark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    from litelog.spark.scan.partitions import Partition


class PlannedPartition(InputPartition):
    """Its repr shows neither places nor options."""

    def __init__(self, partition: Partition) -> None:
        super().__init__(partition)

    def __repr__(self) -> str:
        return f"PlannedPartition({self.value.raw_bytes} bytes)"
