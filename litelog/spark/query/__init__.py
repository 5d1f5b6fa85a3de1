"""``litelog.spark.read``: filters, columns and counts that are pushed down to the replica."""
