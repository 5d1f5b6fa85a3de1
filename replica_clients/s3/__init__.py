"""S3, and what speaks it."""

from replica_clients.s3.store import S3Store, open_store

__all__ = ["S3Store", "open_store"]
