"""``litelog.spark.read``: pushes filters, columns and counts down to the replica."""
