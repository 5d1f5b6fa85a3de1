"""Whether a replica's bucket exists. Where there are buckets there are no folders, and so one that holds nothing and
one that is not there list alike: a wrong name would pass for an empty replica.

| file systems | one that is missing | one request may be forbidden where listings are not |
|---|---|---|
| s3fs 2026.9 | ``info`` and ``ls`` raise FileNotFoundError | both, where rights end at a prefix |
| gcsfs 2026.10 | the same | ``info``, and then it says so of one that is empty, too |
| adlfs 2026.8 | the same; a put raises Azure's own | ``info``, with a container's signature; ``ls`` of an empty one |
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from replica_clients.fsspec.connections import protocols_of

_BUCKETS = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "az", "abfss"})
_NOBODY_KNOWS = (PermissionError, ValueError)
"""What a listing of a whole bucket raises that may not be listed; the latter is adlfs's."""


def bucket_in(kind: Any, root: str) -> str:
    """The bucket (Azure: container) that a root is in; empty for a kind of file system that has none."""
    return root.lstrip("/").partition("/")[0] if _BUCKETS & protocols_of(kind) else ""


def is_missing(file_system: Any, bucket: str) -> bool:
    """Whether it is known that there is no such bucket. Raises what the file system does."""
    with suppress(Exception):  # it needs a right that nothing else here does; the listing below tells
        file_system.info(bucket)
        return False
    try:
        file_system.ls(bucket, detail=True)
    except FileNotFoundError:
        return True
    except _NOBODY_KNOWS:
        return False
    return False


def may_lack_a_bucket(error: BaseException) -> bool:
    """Whether a put fails so where there is no bucket; azure has a class of its own."""
    return isinstance(error, FileNotFoundError) or type(error).__name__ == "ResourceNotFoundError"
