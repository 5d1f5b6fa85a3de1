"""Every file system that fsspec supports."""

from replica_clients.fsspec.store import FsspecStore, open_store

__all__ = ["FsspecStore", "open_store"]
