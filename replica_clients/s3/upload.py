"""How an object's bytes go up to S3: as one request with a digest, or in parts, in parallel, with bounded memory."""

from __future__ import annotations

import base64
import hashlib
import logging
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, cast

from crc32c import crc32c

from litelog.errors import StoreError
from litelog.events import fields
from litelog.stores.retrying_store import RetryingStore, RetryPolicy
from replica_clients.s3.errors import S3Error
from replica_clients.s3.upload_parts import OF_PROCESS, Parts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Buffer

    from litelog.stores.object_store import ObjectStore
    from replica_clients.s3.clients import S3Connection
    from replica_clients.s3.settings import S3Settings
    from replica_clients.s3.upload_parts import Part, PartBudget

SINGLE_BYTES = 64 << 20
"""Up to here one request is cheaper; above, a failure in one costs too much of what was sent already."""

PART_BYTES = 8 << 20
"""More would take more memory, and less more requests."""

MAX_PARTS = 10_000
"""S3's limit, at 78 GiB."""

PARTS_AT_ONCE = 4
"""Parts of one upload that are under way. How many there are in memory is ``upload_parts``' matter."""

PART_RETRIES = RetryPolicy(attempts=6, total_seconds=30.0, longest_seconds=1.0)
"""For each part by itself: where one request in three fails, an upload of a hundred would hardly ever go up as a whole.
No attempt starts later than half of what a hanging one takes, so that whoever stops waits little longer."""

ABORT_RETRIES = RetryPolicy(attempts=4, total_seconds=5.0, longest_seconds=0.5)
"""Somebody waits for the error behind which it is."""

NO_SUCH_UPLOAD = "NoSuchUpload"

_DIGESTS = {"sha256": "ChecksumSHA256", "crc32c": "ChecksumCRC32C", "md5": "ContentMD5"}
_ALGORITHMS = {"sha256": "SHA256", "crc32c": "CRC32C"}

_logger = logging.getLogger(__name__)


class S3Upload:
    """Puts objects over a connection. ``single_bytes`` and ``part_bytes`` are for tests, where 64 MiB take too long."""

    def __init__(
        self, connection: S3Connection, single_bytes: int, part_bytes: int, budget: PartBudget = OF_PROCESS
    ) -> None:
        self._connection = connection
        self._settings = connection.settings
        self._single_bytes = single_bytes
        self._part_bytes = part_bytes
        self._budget = budget
        self._encryption = _encryption(connection.settings)
        self._placement = _placement(connection.settings)
        self._under_way: set[threading.Event] = set()

    def put(self, key: str, body: Iterable[Buffer], create_only: bool) -> None:
        """Store the buffers as ``key``, within the prefix. ExistsError, StoreError.

        A body that is no sequence is not held: it goes up part by part, and in one request where it has but one.
        """
        condition = {"IfNoneMatch": "*"} if create_only else {}
        if not isinstance(body, Sequence):
            self._put_made(key, Parts(body, self._part_bytes, self._budget), condition)
        elif sum(memoryview(buffer).nbytes for buffer in body) > self._single_bytes:
            self._put_parts(key, Parts(body, self._part_bytes, self._budget), condition)
        else:
            self._put_single(key, _join(body), condition)

    def put_in_parts(self, key: str, body: Iterable[Buffer]) -> None:
        """As a create-only ``put``, in parts whatever its size: a store may keep writers apart in the one alone."""
        self._put_parts(key, Parts(body, self._part_bytes, self._budget), {"IfNoneMatch": "*"})

    def close(self) -> None:
        """Have nothing tried anew that is under way: what is waiting for that ends with its last error."""
        for ended in self._under_way.copy():
            ended.set()

    def _put_made(self, key: str, parts: Parts, condition: dict[str, str]) -> None:
        """Put what is made as it goes: of what length shows only when the first part is full."""
        with parts.take() as first:
            if parts.has_more():
                self._put_parts(key, parts, condition, first)
            else:
                self._put_single(key, first.content[0], condition)

    def _put_single(self, key: str, content: bytes, condition: dict[str, str]) -> None:
        checked = digest(content, self._settings.checksum)
        self._request(
            "put", key, "put_object", Body=content, **checked, **condition, **self._placement, **self._encryption
        )

    def _put_parts(self, key: str, parts: Parts, condition: dict[str, str], first: Part | None = None) -> None:
        algorithm = _ALGORITHMS.get(self._settings.checksum)
        declared = {"ChecksumAlgorithm": algorithm} if algorithm else {}
        begun = self._request("put", key, "create_multipart_upload", **declared, **self._placement, **self._encryption)
        with self._connection.failures.reading("put", key):
            upload = _Upload(self._connection, key, str(begun["UploadId"]))
        try:
            self._send_parts(key, upload, parts, first)
            self._request(  # once: only who compares what is there tells a lost answer from another writer
                "put",
                key,
                "complete_multipart_upload",
                UploadId=upload.name,
                MultipartUpload={"Parts": upload.parts()},
                **condition,
                **_customer_key(self._settings),
            )
        except BaseException:
            self._abort(key, upload)
            raise

    def _send_parts(self, key: str, upload: _Upload, parts: Parts, first: Part | None) -> None:
        """Send them all, each tried anew by itself. The first that fails for good ends the others."""
        ended = threading.Event()
        self._under_way.add(ended)
        patient = RetryingStore(cast("ObjectStore", upload), ended, PART_RETRIES)

        def send(number: int, part: Part) -> None:
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
                self._under_way.discard(ended)

    def _abort(self, key: str, upload: _Upload) -> None:
        """Have the store forget the parts: it asks money for them. Its failure hides not what went wrong before."""
        try:
            RetryingStore(cast("ObjectStore", upload), threading.Event(), ABORT_RETRIES).delete([key])
        except StoreError as error:
            said = "%s: parts may be left, for a lifecycle rule to remove: %s"
            extra = fields("upload-not-aborted", replica=self._settings.url, key=key)
            _logger.warning(said, self._settings.url, error, extra=extra)

    def _request(self, operation: str, key: str, method: str, **parameters: object) -> dict[str, Any]:
        return self._connection.request(operation, key, method, Key=self._settings.prefix + key, **parameters)


class _Upload:
    """One upload in parts, as so much of an ObjectStore as its retries take: the parts are put, by their numbers, and
    to delete it is to abort it. Both can be said twice."""

    fences = True

    def __init__(self, connection: S3Connection, key: str, name: str) -> None:
        self.url = connection.settings.url
        self.name = name
        self._connection = connection
        self._settings = connection.settings
        self._key = key
        self._sent: dict[int, dict[str, Any]] = {}

    def put(self, number: str, body: Sequence[bytes], *, create_only: bool = True) -> None:  # noqa: ARG002  a store's
        """Send a part, of one buffer."""
        (content,) = body
        checked = digest(content, self._settings.checksum)
        sent: dict[str, Any] = {"Body": content, **checked, **_customer_key(self._settings)}
        answer = self._request("put", "upload_part", PartNumber=int(number), **sent)
        kept = {name: value for name, value in checked.items() if name != _DIGESTS["md5"]}
        with self._connection.failures.reading("put", self._key):
            self._sent[int(number)] = {"PartNumber": int(number), "ETag": str(answer["ETag"]), **kept}

    def delete(self, keys: Iterable[str]) -> None:  # noqa: ARG002  a store's
        """Have the store forget the parts, where it has not done so: by a request before, or by a completion."""
        try:
            self._request("abort", "abort_multipart_upload")
        except S3Error as error:
            if error.code != NO_SUCH_UPLOAD:
                raise

    def parts(self) -> list[dict[str, Any]]:
        """What completes the upload: an entry for each part, in order."""
        return [self._sent[number] for number in sorted(self._sent)]

    def _request(self, operation: str, method: str, **parameters: object) -> dict[str, Any]:
        place = {"Key": self._settings.prefix + self._key, "UploadId": self.name}
        return self._connection.request(operation, self._key, method, **place, **parameters)


def _wait_for(running: set[Future[None]], left: int) -> set[Future[None]]:
    """Wait until no more than ``left`` are running: those. The error of one that failed."""
    while len(running) > left:
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()
    return running


def digest(content: bytes, checksum: str) -> dict[str, str]:
    """The request parameter that carries the digest of ``content``."""
    if checksum == "sha256":
        value = hashlib.sha256(content).digest()
    elif checksum == "crc32c":
        value = crc32c(content).to_bytes(4, "big")
    else:
        value = hashlib.md5(content, usedforsecurity=False).digest()
    return {_DIGESTS[checksum]: base64.b64encode(value).decode()}


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
