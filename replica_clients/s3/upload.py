"""Uploads objects to S3: in a single request with a digest, or in parallel parts. All uploads of a process share one
limit on the parts that they hold in memory."""

from __future__ import annotations

import base64
import hashlib
import logging
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import TYPE_CHECKING, Any, cast

from litelog.codec.checksum import crc32c
from litelog.errors import StoreError
from litelog.events import fields
from litelog.objects.layout import is_trial
from litelog.stores.retrying_store import RetryingStore, RetryPolicy
from litelog.system.buffers import PARTS, Room
from replica_clients.s3.errors import S3Error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Buffer

    from litelog.stores.object_store import ObjectStore
    from replica_clients.s3.clients import S3Connection
    from replica_clients.s3.settings import S3Settings


class UploadPart:
    """The bytes of one part. Dropping it, or leaving its context, releases them and returns their room."""

    def __init__(self, content: bytes, room: Room, size: int) -> None:
        """``size``: the room that was taken for it, in bytes."""
        self.content = [content]
        """The only reference to the bytes: ``clear`` frees them."""
        self._room, self._size = room, size

    def __enter__(self) -> UploadPart:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()

    def drop(self) -> None:
        """Release the bytes. Idempotent."""
        if self.content:
            self.content.clear()
            self._room.give_back(self._size)


class Parts:
    """A body's buffers, joined into parts of ``part_bytes`` each and a shorter last one."""

    def __init__(self, body: Iterable[Buffer], part_bytes: int, room: Room) -> None:
        self._buffers = iter(body)
        self._part_bytes = part_bytes
        self._room = room
        self._rest = memoryview(b"")

    def has_more(self) -> bool:
        """Whether there is another part. Reads ahead only one buffer of the body, not a whole part."""
        while not len(self._rest):
            buffer = next(self._buffers, None)
            if buffer is None:
                return False
            self._rest = memoryview(buffer).cast("B")
        return True

    def take(self) -> UploadPart:
        """Wait for room, and create the next part; empty after the end. The caller must always drop it."""
        self._room.take(self._part_bytes)
        try:
            made = BytesIO()
            made.seek(self._part_bytes - 1)  # at full size at once: growing would fragment memory
            made.write(b"\0")
            made.seek(0)
            while (room := self._part_bytes - made.tell()) and self.has_more():
                made.write(self._rest[:room])
                self._rest = self._rest[room:]
            made.truncate()
            content = made.getvalue()  # no copy: this is the buffer that was written
            return UploadPart(content, self._room, self._part_bytes)
        except BaseException:
            self._room.give_back(self._part_bytes)
            raise


SINGLE_BYTES = 64 << 20
"""Bytes. Up to this size one request is cheaper; above it, a failure wastes too many sent bytes."""

PART_BYTES = 8 << 20
"""Bytes. Larger parts would need more memory, and smaller ones more requests."""

LEAST_PART_BYTES = 5 << 20
"""S3's limit, except for the last part of an object."""

MAX_PARTS = 10_000
"""S3's limit, reached at 78 GiB; at 48 GiB with the smallest parts."""

PARTS_AT_ONCE = 4
"""Concurrent parts of one upload. ``PARTS`` limits how many are in memory."""

PART_RETRIES = RetryPolicy(attempts=6, total_seconds=30.0, longest_seconds=1.0)
"""The retries of each part: if one request in three fails, an upload of a hundred parts would almost never succeed
without them. No attempt starts later than half the time that a hanging one takes, so a stop is not delayed much."""

ABORT_RETRIES = RetryPolicy(attempts=4, total_seconds=5.0, longest_seconds=0.5)
"""Short, since a caller waits for the error that led to the abort."""

NO_SUCH_UPLOAD = "NoSuchUpload"

_DIGESTS = {"sha256": "ChecksumSHA256", "crc32c": "ChecksumCRC32C", "md5": "ContentMD5"}
_ALGORITHMS = {"sha256": "SHA256", "crc32c": "CRC32C"}

_logger = logging.getLogger(__name__)


def choose_part_bytes(room: Room = PARTS) -> int:
    """The size of a part for a process with that much room: smaller than PART_BYTES if these do not fit."""
    return min(PART_BYTES, max(LEAST_PART_BYTES, room.limit))


class S3Upload:
    """Puts objects over a connection. ``single_bytes`` and ``part_bytes`` are for tests, where 64 MiB take too long."""

    def __init__(self, connection: S3Connection, single_bytes: int, part_bytes: int, room: Room = PARTS) -> None:
        self._connection = connection
        self._settings = connection.settings
        self._single_bytes = single_bytes
        self._part_bytes = part_bytes
        self._room = room
        self._encryption = _encryption(connection.settings)
        self._declared = _declared(connection.settings)
        self._in_progress: set[threading.Event] = set()

    def put(self, key: str, body: Iterable[Buffer], create_only: bool) -> None:
        """Store the buffers as ``key``, below the prefix. Raises ExistsError and StoreError.

        A body that is not a sequence is not held in memory: it is sent part by part, or in one request if it fits.
        """
        condition = {"IfNoneMatch": "*"} if create_only else {}
        if not isinstance(body, Sequence):
            self._put_made(key, Parts(body, self._part_bytes, self._room), condition)
        elif sum(memoryview(buffer).nbytes for buffer in body) > self._single_bytes:
            self._put_parts(key, Parts(body, self._part_bytes, self._room), condition)
        else:
            self._put_single(key, _join(body), condition)

    def put_in_parts(self, key: str, body: Iterable[Buffer]) -> None:
        """As a create-only ``put``, but always in parts: a store may enforce the condition in one way only."""
        self._put_parts(key, Parts(body, self._part_bytes, self._room), {"IfNoneMatch": "*"})

    def close(self) -> None:
        """Stop the retries of requests in progress. Uploads that wait for a retry end with the last error."""
        for ended in self._in_progress.copy():
            ended.set()

    def _put_made(self, key: str, parts: Parts, condition: dict[str, str]) -> None:
        """Put a streamed body, whose length is known only once the first part is full or the body ends."""
        with parts.take() as first:
            if parts.has_more():
                self._put_parts(key, parts, condition, first)
            else:
                self._put_single(key, first.content[0], condition)

    def _put_single(self, key: str, content: bytes, condition: dict[str, str]) -> None:
        put_single(self._connection, key, content, **condition, **placement(self._settings, key))

    def _put_parts(self, key: str, parts: Parts, condition: dict[str, str], first: UploadPart | None = None) -> None:
        asked = {**self._declared, **placement(self._settings, key), **self._encryption}
        begun = self._request("put", key, "create_multipart_upload", **asked)
        with self._connection.failures.reading("put", key):
            upload = PartsUpload(self._connection, key, str(begun["UploadId"]))
        try:
            self._send_parts(key, upload, parts, first)
            self._request(  # no retry: a lost answer would look like another writer
                "put",
                key,
                "complete_multipart_upload",
                UploadId=upload.name,
                MultipartUpload={"Parts": upload.parts()},
                **condition,
                **_customer_key(self._settings),
            )
        except BaseException:
            abort_upload(self._connection, key, upload)
            raise

    def _send_parts(self, key: str, upload: PartsUpload, parts: Parts, first: UploadPart | None) -> None:
        """Send all parts, each with its own retries. The first part that fails for good stops the others."""
        ended = threading.Event()
        self._in_progress.add(ended)
        patient = RetryingStore(cast("ObjectStore", upload), ended, PART_RETRIES)

        def send(number: int, part: UploadPart) -> None:
            try:
                patient.put(str(number), part.content)
            finally:
                part.drop()

        with ThreadPoolExecutor(PARTS_AT_ONCE, "s3-part") as pool:
            running: set[Future[None]] = set()
            number = 0
            try:
                while number == 0 or parts.has_more():
                    number += 1
                    if number > MAX_PARTS:
                        reason = f"is larger than {MAX_PARTS} parts of {self._part_bytes} bytes"
                        raise StoreError("put", key, reason, retryable=False)
                    part = first if number == 1 and first is not None else parts.take()
                    try:
                        running.add(pool.submit(send, number, part))
                    except BaseException:
                        part.drop()
                        raise
                    running = _wait_for(running, PARTS_AT_ONCE - 1)
                _wait_for(running, 0)
            finally:
                ended.set()
                self._in_progress.discard(ended)

    def _request(self, operation: str, key: str, method: str, **parameters: object) -> dict[str, Any]:
        return self._connection.request(operation, key, method, Key=self._settings.prefix + key, **parameters)


class PartsUpload:
    """One upload in parts, with the methods of ObjectStore that retries need.

    ``put`` sends a part by its number, and ``delete`` aborts the upload. Both may be repeated.
    """

    enforces_create_only = True

    def __init__(self, connection: S3Connection, key: str, name: str) -> None:
        self.url = connection.settings.url
        self.name = name
        self._connection = connection
        self._settings = connection.settings
        self._key = key
        self._sent: dict[int, dict[str, Any]] = {}

    def put(self, number: str, body: Sequence[bytes], *, create_only: bool = True) -> None:  # noqa: ARG002  a store's
        """Send a part, which consists of one buffer."""
        (content,) = body
        checked = digest(content, self._settings.checksum)
        sent: dict[str, Any] = {"Body": content, **checked, **_customer_key(self._settings)}
        answer = self._request("put", "upload_part", PartNumber=int(number), **sent)
        kept = {name: value for name, value in checked.items() if name != _DIGESTS["md5"]}
        with self._connection.failures.reading("put", self._key):
            self._sent[int(number)] = {"PartNumber": int(number), "ETag": str(answer["ETag"]), **kept}

    def delete(self, keys: Iterable[str]) -> None:  # noqa: ARG002  a store's
        """Make the store delete the parts, unless an earlier request or a completion has done so."""
        try:
            self._request("abort", "abort_multipart_upload")
        except S3Error as error:
            if error.code != NO_SUCH_UPLOAD:
                raise

    def parts(self) -> list[dict[str, Any]]:
        """The list that completes the upload: an entry for each part, in order."""
        return [self._sent[number] for number in sorted(self._sent)]

    def _request(self, operation: str, method: str, **parameters: object) -> dict[str, Any]:
        place = {"Key": self._settings.prefix + self._key, "UploadId": self.name}
        return self._connection.request(operation, self._key, method, **place, **parameters)


def abort_upload(connection: S3Connection, key: str, upload: PartsUpload) -> None:
    """Make the store delete the parts, which cost storage. A failure here does not hide the original error."""
    try:
        RetryingStore(cast("ObjectStore", upload), threading.Event(), ABORT_RETRIES).delete([key])
    except StoreError as error:
        url = connection.settings.url
        said = "%s: parts may be left; a lifecycle rule can remove them: %s"
        _logger.warning(said, url, error, extra=fields("upload-not-aborted", replica=url, object=key))


def _wait_for(running: set[Future[None]], left: int) -> set[Future[None]]:
    """Wait until at most ``left`` are running. Returns those. Raises the error of an upload that failed."""
    while len(running) > left:
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()
    return running


def put_single(connection: S3Connection, key: str, content: bytes, **asked: object) -> dict[str, Any]:
    """Put an object in one request, with its digest, and encrypted as the settings say. ``asked``: more parameters.

    Returns the answer. Raises ExistsError and StoreError.
    """
    settings = connection.settings
    sent = {**digest(content, settings.checksum), **_declared(settings), **asked, **_encryption(settings)}
    return connection.request("put", key, "put_object", Key=settings.prefix + key, Body=content, **sent)


def digest(content: bytes, checksum: str) -> dict[str, str]:
    """The request parameter with the digest of ``content``."""
    if checksum == "sha256":
        value = hashlib.sha256(content).digest()
    elif checksum == "crc32c":
        value = crc32c(content).to_bytes(4, "big")
    else:
        value = hashlib.md5(content, usedforsecurity=False).digest()
    return {_DIGESTS[checksum]: base64.b64encode(value).decode()}


def _join(body: Sequence[Buffer]) -> bytes:
    """Join into one bytes object: botocore sends file-like bodies in 16 KiB pieces, after a ``100 Continue``."""
    if len(body) == 1 and isinstance(body[0], bytes):
        return body[0]
    return b"".join(body)


def placement(settings: S3Settings, key: str) -> dict[str, object]:
    """Parameters for where the service keeps a new object, and for how long it refuses to delete it. The objects of
    trials are not locked: they would stay for as long as a replica's own ones."""
    asked: dict[str, object] = {}
    if settings.storage_class:
        asked["StorageClass"] = settings.storage_class
    if is_trial(key):
        return asked
    if settings.object_lock and settings.retain:
        asked["ObjectLockMode"] = settings.object_lock.upper()
        asked["ObjectLockRetainUntilDate"] = datetime.now(UTC) + timedelta(seconds=settings.retain)
    if settings.legal_hold:
        asked["ObjectLockLegalHoldStatus"] = "ON"
    return asked


def _declared(settings: S3Settings) -> dict[str, object]:
    """The parameter that names the digest in its own header: buckets with a default retention require it."""
    algorithm = _ALGORITHMS.get(settings.checksum)
    return {"ChecksumAlgorithm": algorithm} if algorithm else {}


def _encryption(settings: S3Settings) -> dict[str, object]:
    """Parameters for the encryption of a new object."""
    asked: dict[str, object] = dict(_customer_key(settings))
    if settings.sse:
        asked["ServerSideEncryption"] = settings.sse
    if settings.sse_kms_key_id:
        asked["SSEKMSKeyId"] = settings.sse_kms_key_id
    return asked


def _customer_key(settings: S3Settings) -> dict[str, object]:
    """Parameters with the customer's key, which every request for an object's bytes needs if there is one."""
    if settings.sse_customer_key is None:
        return {}
    return {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": settings.sse_customer_key}
