"""Spark reads and writes replicas: data source, fast path, jobs."""
