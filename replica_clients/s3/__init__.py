"""S3, and stores that speak its protocol."""

from replica_clients.s3.store import S3Store, open_store

__all__ = ["S3Store", "open_store"]
