"""A bucket of the simulation as it was at a time: what ``--as-of`` reads, by the code that lists versions of S3."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

from litelog.errors import NotFoundError
from litelog.stores.object_store import ByteRange, ObjectInfo
from replica_clients.s3.versions import Versions
from tests.simulation.threads import EPOCH

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from tests.simulation.store import Bucket


class _Connection:
    """Answers the request that ``Versions`` sends: all versions of the keys, newest first for each."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def request(self, _what: str, _key: str, operation: str, **asked: Any) -> dict[str, Any]:
        assert operation == "list_object_versions"
        after = asked.get("KeyMarker", "")
        keys = sorted(key for key in self._bucket.versions if key.startswith(asked["Prefix"]) and key > after)
        found = [
            {
                "Key": key,
                "VersionId": str(number),
                "Size": len(version.body),
                "LastModified": _time(version.at),
            }
            for key in keys
            for number, version in reversed(list(enumerate(self._bucket.versions[key])))
            if version.body is not None
        ]
        return {"Versions": found}


class BucketAsOf:
    """An ObjectStore that reads a bucket as it was at a time. It writes nothing."""

    enforces_create_only = True

    def __init__(self, bucket: Bucket, at: int) -> None:
        """``at``: by ``Bucket.changes``."""
        self.url = bucket.url
        self._bucket = bucket
        self._versions = Versions(_Connection(bucket), "", _time(at))  # type: ignore[arg-type]

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        version = self._versions.find(key)
        if version is None:
            raise NotFoundError(key)
        body = self._bucket.versions[key][int(version)].body or b""
        start = 0 if byte_range is None else byte_range.start
        length = None if byte_range is None else byte_range.length
        return io.BytesIO(body[start : None if length is None else start + length])

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return (ObjectInfo(key, size) for key, size in self._versions.list(prefix, start_after or ""))

    def put(self, *_: object, **__: object) -> NoReturn:
        raise AssertionError

    def delete(self, *_: object) -> NoReturn:
        raise AssertionError

    def close(self) -> None: ...


def _time(at: int) -> datetime:
    """The time at which that version counts as put."""
    return datetime.fromtimestamp(EPOCH + at, UTC)
