"""Maintenance of replicas that only Spark writes: merges small log segments, deletes what dead writes left, prunes."""
