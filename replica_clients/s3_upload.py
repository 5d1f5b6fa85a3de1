"""How an object's bytes go up to S3: as one request with a digest, or in parts, in parallel, with bounded memory."""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import chain
from typing import TYPE_CHECKING, Any

from crc32c import crc32c

from litelog.errors import StoreError
from litelog.event_fields import fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from typing_extensions import Buffer

    from replica_clients.s3_connection import S3Connection
    from replica_clients.s3_settings import S3Settings

SINGLE_BYTES = 64 << 20
"""Up to here one request is cheaper; above, a failure in one costs too much of what was sent already."""

PART_BYTES = 16 << 20
MAX_PARTS = 10_000
"""S3's limit. Objects above 160 GB would have larger parts."""

PARTS_AT_ONCE = 4
"""Copies of parts that are in memory, besides the body itself: 64 MiB."""

_DIGESTS = {"sha256": "ChecksumSHA256", "crc32c": "ChecksumCRC32C", "md5": "ContentMD5"}
_ALGORITHMS = {"sha256": "SHA256", "crc32c": "CRC32C"}

_logger = logging.getLogger(__name__)


class S3Upload:
    """Puts objects over a connection. ``single_bytes`` and ``part_bytes`` are for tests, where 64 MiB take too long."""

    def __init__(self, connection: S3Connection, single_bytes: int, part_bytes: int) -> None:
        self._connection = connection
        self._settings = connection.settings
        self._single_bytes = single_bytes
        self._part_bytes = part_bytes
        self._encryption = _encryption(connection.settings)
        self._placement = _placement(connection.settings)

    def put(self, key: str, body: Iterable[Buffer], create_only: bool) -> None:
        """Store the buffers as ``key``, within the prefix. ExistsError, StoreError.

        A body that is no sequence is not held: it goes up part by part, and in one request where it has but one.
        """
        condition = {"IfNoneMatch": "*"} if create_only else {}
        if isinstance(body, Sequence):
            size = sum(memoryview(buffer).nbytes for buffer in body)
            if size > self._single_bytes:
                self._put_parts(key, cut(body, max(self._part_bytes, -(-size // MAX_PARTS))), condition)
                return
            content = _join(body)
        else:
            parts = cut(body, self._part_bytes)
            content = next(parts, b"")
            if (second := next(parts, None)) is not None:
                self._put_parts(key, chain([content, second], parts), condition)
                return
        self._request(
            "put",
            key,
            "put_object",
            Body=content,
            **digest(content, self._settings.checksum),
            **condition,
            **self._placement,
            **self._encryption,
        )

    def _put_parts(self, key: str, contents: Iterable[bytes], condition: dict[str, str]) -> None:
        algorithm = _ALGORITHMS.get(self._settings.checksum)
        declared = {"ChecksumAlgorithm": algorithm} if algorithm else {}
        begun = self._request("put", key, "create_multipart_upload", **declared, **self._placement, **self._encryption)
        with self._connection.failures.reading("put", key):
            upload = str(begun["UploadId"])
        try:
            parts = self._send_parts(key, upload, contents)
            self._request(
                "put",
                key,
                "complete_multipart_upload",
                UploadId=upload,
                MultipartUpload={"Parts": parts},
                **condition,
                **_customer_key(self._settings),
            )
        except BaseException:
            self._abort(key, upload)
            raise

    def _send_parts(self, key: str, upload: str, contents: Iterable[bytes]) -> list[dict[str, Any]]:
        """What completes the upload: an entry for each part, in order. The first failure ends it."""
        sent: list[Future[dict[str, Any]]] = []
        with ThreadPoolExecutor(PARTS_AT_ONCE, "s3-part") as pool:
            running: set[Future[dict[str, Any]]] = set()
            for number, content in enumerate(contents, 1):
                if number > MAX_PARTS:
                    reason = f"is larger than {MAX_PARTS} parts of {self._part_bytes} bytes"
                    raise StoreError("put", key, reason, retryable=False)
                sent.append(pool.submit(self._send_part, key, upload, number, content))
                running.add(sent[-1])
                while len(running) >= PARTS_AT_ONCE:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        future.result()
        return [future.result() for future in sent]

    def _send_part(self, key: str, upload: str, number: int, content: bytes) -> dict[str, Any]:
        checked = digest(content, self._settings.checksum)
        answer = self._request(
            "put",
            key,
            "upload_part",
            UploadId=upload,
            PartNumber=number,
            Body=content,
            **checked,
            **_customer_key(self._settings),
        )
        kept = {name: value for name, value in checked.items() if name != _DIGESTS["md5"]}
        with self._connection.failures.reading("put", key):
            return {"PartNumber": number, "ETag": str(answer["ETag"]), **kept}

    def _abort(self, key: str, upload: str) -> None:
        """Have the store forget the parts: it asks money for them. Its failure hides not what went wrong before."""
        try:
            self._request("abort", key, "abort_multipart_upload", UploadId=upload)
        except StoreError as error:
            said = "%s: parts may be left, for a lifecycle rule to remove: %s"
            extra = fields("upload-not-aborted", replica=self._settings.url, key=key)
            _logger.warning(said, self._settings.url, error, extra=extra)

    def _request(self, operation: str, key: str, method: str, **parameters: object) -> dict[str, Any]:
        return self._connection.request(operation, key, method, Key=self._settings.prefix + key, **parameters)


def digest(content: bytes, checksum: str) -> dict[str, str]:
    """The request parameter that carries the digest of ``content``."""
    if checksum == "sha256":
        value = hashlib.sha256(content).digest()
    elif checksum == "crc32c":
        value = crc32c(content).to_bytes(4, "big")
    else:
        value = hashlib.md5(content, usedforsecurity=False).digest()
    return {_DIGESTS[checksum]: base64.b64encode(value).decode()}


def cut(body: Iterable[Buffer], part_bytes: int) -> Iterator[bytes]:
    """The bytes of the buffers, put together, in parts of ``part_bytes`` and a shorter last one."""
    pieces: list[memoryview] = []
    room = part_bytes
    for buffer in body:
        view = memoryview(buffer).cast("B")
        while len(view) >= room:
            yield b"".join([*pieces, view[:room]])
            view = view[room:]
            pieces, room = [], part_bytes
        if len(view):
            pieces.append(view)
            room -= len(view)
    if pieces:
        yield b"".join(pieces)


def _join(body: Sequence[Buffer]) -> bytes:
    """One bytes object. botocore sends a file-like body in 16 KiB pieces and waits for ``100 Continue`` before it."""
    if len(body) == 1 and isinstance(body[0], bytes):
        return body[0]
    return b"".join(body)


def _placement(settings: S3Settings) -> dict[str, str]:
    return {"StorageClass": settings.storage_class} if settings.storage_class else {}


def _encryption(settings: S3Settings) -> dict[str, object]:
    """What a new object is encrypted with."""
    asked: dict[str, object] = dict(_customer_key(settings))
    if settings.sse:
        asked["ServerSideEncryption"] = settings.sse
    if settings.sse_kms_key_id:
        asked["SSEKMSKeyId"] = settings.sse_kms_key_id
    return asked


def _customer_key(settings: S3Settings) -> dict[str, object]:
    """What every request for an object's bytes has where the customer keeps the key."""
    if settings.sse_customer_key is None:
        return {}
    return {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": settings.sse_customer_key}
