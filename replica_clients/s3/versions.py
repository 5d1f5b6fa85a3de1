"""Reads a bucket with versions as it was at a time: what was deleted or overwritten is there again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litelog.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from replica_clients.s3.clients import S3Connection

MAX_PAGE_KEYS = 1000
"""Versions that one request lists."""


class Versions:
    """The versions of a bucket's objects, of which one is read for each key.

    That is the oldest one: every put of a replica creates its object, so a later version is an overwrite that somebody
    else made. Delete markers are ignored. Versions that are newer than ``as_of`` do not exist.
    """

    def __init__(self, connection: S3Connection, prefix: str, as_of: datetime) -> None:
        self._connection = connection
        self._prefix = prefix
        self._as_of = as_of
        self._found: dict[str, str] = {}
        """The version to read, by key."""

    def list(self, prefix: str, start_after: str) -> Iterator[tuple[str, int]]:
        """The keys that start with ``prefix`` and come after ``start_after``, with their sizes, in order."""
        oldest: Mapping[str, Any] | None = None
        for version in self._walk(prefix, start_after):
            if oldest is not None and version["Key"] != oldest["Key"]:
                yield self._keep(oldest)
                oldest = None
            if version["LastModified"] <= self._as_of:
                oldest = version  # the versions of a key come newest first
        if oldest is not None:
            yield self._keep(oldest)

    def find(self, key: str) -> str | None:
        """The version of a key to read; None if there was none."""
        if key not in self._found:
            for found, _ in self.list(key, ""):
                if found != key:
                    break
        return self._found.get(key)

    def _keep(self, version: Mapping[str, Any]) -> tuple[str, int]:
        key = str(version["Key"])[len(self._prefix) :]
        self._found[key] = str(version["VersionId"])
        return key, int(version["Size"])

    def _walk(self, prefix: str, start_after: str) -> Iterator[Mapping[str, Any]]:
        asked: dict[str, object] = {"Prefix": self._prefix + prefix, "MaxKeys": MAX_PAGE_KEYS}
        if start_after:
            asked["KeyMarker"] = self._prefix + start_after
        while True:
            page = self._connection.request("list", prefix, "list_object_versions", **asked)
            with self._connection.failures.reading("list", prefix):
                yield from page.get("Versions", ())
                if not page.get("IsTruncated"):
                    return
                marker = (page.get("NextKeyMarker"), page.get("NextVersionIdMarker"))
            if not marker[0] or marker == (asked.get("KeyMarker"), asked.get("VersionIdMarker")):
                raise StoreError("list", prefix, "the store's listing of versions is cut off, or repeats itself")
            asked["KeyMarker"] = marker[0]
            if marker[1]:
                asked["VersionIdMarker"] = marker[1]
            else:
                asked.pop("VersionIdMarker", None)
