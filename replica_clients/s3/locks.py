"""The locks of a bucket's objects: when each object was put, and a longer lock for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from litelog.errors import NotFoundError, StoreError
from litelog.units import to_microseconds
from replica_clients.s3.errors import S3Error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica_clients.s3.clients import S3Connection

MAX_PAGE_KEYS = 1000
"""Objects that one request lists."""

_GONE = frozenset({"NoSuchKey", "404", "NoSuchVersion", "MethodNotAllowed", "405"})
"""Answers for an object that is not there; the last two for a delete marker."""


class BucketLocks:
    """Implements ``ObjectLocks``."""

    def __init__(self, connection: S3Connection, mode: str, retain: float) -> None:
        self._connection = connection
        self._mode = mode.upper()
        self.retain = retain

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        root = self._connection.settings.prefix
        asked: dict[str, object] = {"Prefix": root + prefix, "MaxKeys": MAX_PAGE_KEYS}
        while True:
            page = self._connection.request("list", prefix, "list_objects_v2", **asked)
            with self._connection.failures.reading("list", prefix):
                found = [
                    (str(entry["Key"])[len(root) :], to_microseconds(entry["LastModified"]))
                    for entry in page.get("Contents", ())
                ]
            yield from found
            token = page.get("NextContinuationToken")
            if not page.get("IsTruncated"):
                return
            if not token or token == asked.get("ContinuationToken"):
                raise StoreError("list", prefix, "the store's listing is cut off, or repeats itself")
            asked["ContinuationToken"] = token

    def extend(self, key: str) -> None:
        until = datetime.now(UTC) + timedelta(seconds=self.retain)
        retention = {"Mode": self._mode, "RetainUntilDate": until}
        whole = self._connection.settings.prefix + key
        try:
            self._connection.request("lock", key, "put_object_retention", Key=whole, Retention=retention)
        except S3Error as error:
            if error.code in _GONE:
                raise NotFoundError(key) from error
            if error.retryable or not self._is_locked_until(key, until):
                raise

    def _is_locked_until(self, key: str, until: datetime) -> bool:
        """Whether an object is known to be locked for at least as long: a service refuses to shorten a lock."""
        whole = self._connection.settings.prefix + key
        try:
            found = self._connection.request("lock of", key, "get_object_retention", Key=whole)
        except StoreError:
            return False
        ends = found.get("Retention", {}).get("RetainUntilDate")
        return isinstance(ends, datetime) and ends >= until
