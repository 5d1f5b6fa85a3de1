"""Folders of this machine, including mounted ones."""

from replica_clients.file.store import FileStore, open_store

__all__ = ["FileStore", "open_store"]
