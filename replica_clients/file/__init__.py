"""Folders of this machine, and what is mounted there."""

from replica_clients.file.store import FileStore, open_store

__all__ = ["FileStore", "open_store"]
