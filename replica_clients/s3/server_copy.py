"""Copies objects within one service: the service reads and writes the bytes, and this process compares digests.

An upload whose parts are copied is completed with ``If-None-Match: *``, as other uploads in parts are. (Services ignore
that condition for ``CopyObject``, which would replace what another writer has put.) The digest of each part is compared
before that, so an object that differs is never visible.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from litelog.errors import StoreError
from replica_clients.s3.errors import S3Error
from replica_clients.s3.upload import PartsUpload, abort_upload, placement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from typing_extensions import Buffer

    from replica_clients.s3.clients import S3Connection
    from replica_clients.s3.settings import S3Settings

PART_BYTES = 1 << 30
"""Bytes of a copied part. The service permits 5 GiB; the parts of one object are copied one after the other."""

OWN_KEYS = "AES256"
"""Encryption with the service's own keys. With others, the tag of a part is not the MD5 of its bytes."""

_MD5 = re.compile('"?([0-9a-f]{32})"?')
_REFUSALS = {400, 403, 405, 501}
"""How services answer a request that they do not have, or that the credentials do not permit."""


def is_one_service(source: S3Settings, target: S3Settings) -> bool:
    """Whether the service of ``target`` can read ``source`` by itself, with one set of credentials, and states digests
    of what it copies: it does not for objects that it encrypts with other keys than its own."""
    if source.sse_customer_key or target.sse_customer_key or target.sse not in (None, OWN_KEYS) or source.anonymous:
        return False
    own: dict[str, Any] = {"bucket": "", "prefix": "", "storage_class": None, "sse": None, "checksum": "crc32c"}
    own |= {"object_lock": None, "retain": None, "legal_hold": False}
    return replace(source, **own) == replace(target, **own)


def copy_parts(
    source: S3Settings, connection: S3Connection, key: str, body: Iterable[Buffer], *, part_bytes: int = PART_BYTES
) -> bool:
    """Create an object from the same key of ``source``, if the key is not taken.

    Args:
        source: The place of the original.
        connection: That of the copy.
        key: The key, below both prefixes.
        body: The original's bytes, as they must be. They are only read.
        part_bytes: The bytes of a part.

    Returns:
        Whether the object was created. False: the service has no such copies. Nothing was stored.

    Raises:
        ExistsError: The key is taken.
        StoreError: The request failed, or the service copied other bytes.
    """
    settings = connection.settings
    place = {"Key": settings.prefix + key}
    encryption = {} if settings.sse is None else {"ServerSideEncryption": settings.sse}
    begun = connection.request("put", key, "create_multipart_upload", **place, **placement(settings, key), **encryption)
    with connection.failures.reading("put", key):
        upload = PartsUpload(connection, key, str(begun["UploadId"]))
    original = {"CopySource": {"Bucket": source.bucket, "Key": source.prefix + key}}
    parts = []
    try:
        for number, (start, length, digest) in enumerate(_parts(body, part_bytes), 1):
            asked: dict[str, Any] = {**place, "UploadId": upload.name, "PartNumber": number, **original}
            asked["CopySourceRange"] = f"bytes={start}-{start + length - 1}"
            answer = connection.request("open", key, "upload_part_copy", **asked)
            with connection.failures.reading("put", key):
                etag = str(answer["CopyPartResult"]["ETag"])
            stated = _MD5.fullmatch(etag)
            if stated is None or answer.get("ServerSideEncryption", OWN_KEYS) != OWN_KEYS:  # by the bucket's default
                abort_upload(connection, key, upload)
                return False
            if stated[1] != digest:
                raise StoreError("copy", key, f"the service copied other bytes than it gives: part {number} differs")
            parts.append({"PartNumber": number, "ETag": etag})
        condition: dict[str, Any] = {"MultipartUpload": {"Parts": parts}, "IfNoneMatch": "*"}
        connection.request("put", key, "complete_multipart_upload", **place, UploadId=upload.name, **condition)
    except S3Error as error:
        abort_upload(connection, key, upload)
        if error.status in _REFUSALS:
            return False
        raise
    except BaseException:
        abort_upload(connection, key, upload)
        raise
    return True


def _parts(body: Iterable[Buffer], part_bytes: int) -> Iterator[tuple[int, int, str]]:
    """(start, length, MD5) of each part of a body."""
    start = length = 0
    digest = hashlib.md5(usedforsecurity=False)
    for buffer in body:
        view = memoryview(buffer).cast("B")
        while len(view):
            taken = view[: part_bytes - length]
            digest.update(taken)
            length += len(taken)
            view = view[len(taken) :]
            if length == part_bytes:
                yield start, length, digest.hexdigest()
                start, length, digest = start + length, 0, hashlib.md5(usedforsecurity=False)
    if length:
        yield start, length, digest.hexdigest()
