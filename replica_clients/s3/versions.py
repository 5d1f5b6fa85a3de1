"""The versions of a bucket's objects: they are listed, and the bucket is read as it was at a time."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from litelog.errors import StoreError
from litelog.stores.capabilities import KeyVersions
from litelog.units import to_microseconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from replica_clients.s3.clients import S3Connection

MAX_PAGE_KEYS = 1000
"""Versions that one request lists."""

NO_ID = "null"
"""The version id of an object that was put while the bucket kept no versions."""


class VersionKeys:
    """Lists the keys of a bucket below a prefix with what versions each has. Implements ``VersionListing``."""

    def __init__(self, connection: S3Connection, prefix: str) -> None:
        self._connection = connection
        self._prefix = prefix

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[KeyVersions]:
        held: KeyVersions | None = None
        for page in _walk(self._connection, self._prefix, prefix, start_after or ""):
            with self._connection.failures.reading("versions", prefix):
                found = [self._found(key, list(group)) for key, group in groupby(_in_order(page), itemgetter("Key"))]
            for each in found:
                if held is not None and held.key == each.key:
                    held = _joined(held, each)
                    continue
                if held is not None:
                    yield held
                held = each
        if held is not None:
            yield held

    def _found(self, key: str, versions: Sequence[Mapping[str, Any]]) -> KeyVersions:
        contents = [version for version in versions if "Size" in version]
        times = sorted(to_microseconds(version["LastModified"]) for version in versions)
        return KeyVersions(
            key[len(self._prefix) :],
            len(contents),
            len(versions) - len(contents),
            any(version.get("IsLatest") and "Size" not in version for version in versions),
            len({(version.get("ETag"), version["Size"]) for version in contents}) < 2,
            any(version.get("VersionId", NO_ID) != NO_ID for version in versions),
            times[1] if len(times) > 1 else times[0] if not contents else 0,
        )


def _in_order(page: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The versions and delete markers of a page, by key."""
    return sorted([*page.get("Versions", ()), *page.get("DeleteMarkers", ())], key=itemgetter("Key"))


def _joined(newer: KeyVersions, older: KeyVersions) -> KeyVersions:
    """The versions of a key that lie in two pages. Its contents are said to be equal only within one page."""
    return replace(
        newer,
        contents=newer.contents + older.contents,
        markers=newer.markers + older.markers,
        is_same=newer.is_same and older.is_same and not (newer.contents and older.contents),
        is_versioned=newer.is_versioned or older.is_versioned,
        changed=older.changed or newer.changed,
    )


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
        pages = _walk(self._connection, self._prefix, prefix, start_after)
        for version in (version for page in pages for version in page.get("Versions", ())):
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


def _walk(connection: S3Connection, root: str, prefix: str, start_after: str) -> Iterator[Mapping[str, Any]]:
    """The pages of a listing of versions, whose keys are below ``root``."""
    asked: dict[str, object] = {"Prefix": root + prefix, "MaxKeys": MAX_PAGE_KEYS}
    if start_after:
        asked["KeyMarker"] = root + start_after
    while True:
        page = connection.request("versions", prefix, "list_object_versions", **asked)
        yield page
        if not page.get("IsTruncated"):
            return
        marker = (page.get("NextKeyMarker"), page.get("NextVersionIdMarker"))
        if not marker[0] or marker == (asked.get("KeyMarker"), asked.get("VersionIdMarker")):
            raise StoreError("versions", prefix, "the store's listing of versions is cut off, or repeats itself")
        asked["KeyMarker"] = marker[0]
        if marker[1]:
            asked["VersionIdMarker"] = marker[1]
        else:
            asked.pop("VersionIdMarker", None)
