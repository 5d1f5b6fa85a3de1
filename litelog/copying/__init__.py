"""Copies a replica to another store: the same names and bytes, each object verified on the way."""
