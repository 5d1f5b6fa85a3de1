"""The S3 store: objects in a bucket, under a prefix, on Amazon S3 or a store that speaks its protocol.

It relies on ``If-None-Match: *`` for PUT and for the completion of an upload in parts, on listings that are ordered by
key and show earlier puts, and on digests that the store checks for each body: the signature's SHA-256, and the one
chosen with ``checksum`` (crc32c by default, which costs next to nothing; md5 for stores that support no other). A store
that ignores ``If-None-Match`` cannot keep writers apart; a claim's second put detects that. Other stores answer it with
501. Both kinds work with ``fencing: isolated``.

``settings`` has the options. Credentials come from the usual AWS provider chain, unless they are given.
"""

from __future__ import annotations

import io
import re
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from litelog.errors import NotFoundError, StoreError
from litelog.stores.object_store import (
    ByteRange,
    ByteStream,
    NotSupportedError,
    ObjectInfo,
    require_key,
    require_prefix,
)
from replica_clients.s3.clients import S3Connection
from replica_clients.s3.errors import NO_BATCHES, NotS3Error, S3Error
from replica_clients.s3.server_copy import copy_parts, is_one_service
from replica_clients.s3.settings import S3Settings, read_settings
from replica_clients.s3.upload import SINGLE_BYTES, S3Upload, choose_part_bytes
from replica_clients.s3.versions import VersionKeys, Versions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.stores.access import Access, Role
    from litelog.stores.capabilities import ObjectLocks, VersionListing
    from litelog.stores.object_store import ObjectStore
    from replica_clients.s3.errors import S3Failures

MAX_BATCH_KEYS = 1000
"""Keys that S3 deletes in one request, and objects that it lists in one."""

RANGE_AFTER_THE_END = 416
NOT_IMPLEMENTED = 501
"""How stores answer a header that asks for an unsupported feature. Others ignore the header."""

_OF_EVERY_LISTING = {"Name", "IsTruncated", "KeyCount"}
"""Elements of a listing. Every store that speaks S3 sends some of them, even if it has no objects."""

UNKNOWN_LENGTH = (
    "the answer does not say how long it is (Content-Length): let no proxy pass it on in chunks, or compressed"
)

_CONTENT_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19})$")


def open_store(url: str, options: Mapping[str, object]) -> S3Store:
    """Create the store at ``s3://bucket/prefix``. Sends no request. Raises ConfigError."""
    return S3Store(read_settings(url, options))


class S3Store:
    """An ObjectStore in a bucket."""

    enforces_create_only = True

    def __init__(self, settings: S3Settings, *, single_bytes: int = SINGLE_BYTES, part_bytes: int = 0) -> None:
        """``part_bytes``: the bytes of a part; 0: as the process's room for parts allows."""
        self.url = settings.url
        self.settings = settings
        self._prefix = settings.prefix
        self._connection = S3Connection(settings)
        self._upload = S3Upload(self._connection, single_bytes, part_bytes or choose_part_bytes())
        self._batches = self._copies = True
        as_of = settings.as_of
        self._versions = None if as_of is None else Versions(self._connection, settings.prefix, as_of)
        key = settings.sse_customer_key
        self._reading = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": key} if key else {}

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        require_key(key)
        self._require_now("put", key)
        with _conditional("put", key, "no create-only put (If-None-Match)" if create_only else ""):
            self._upload.put(key, body, create_only)

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        require_key(key)
        asked = {} if byte_range is None else {"Range": _range_header(byte_range)}
        if self._versions is not None:
            version = self._versions.find(key)
            if version is None:
                raise NotFoundError(key)
            asked["VersionId"] = version
        try:
            answer = self._request("open", key, "get_object", **asked, **self._reading)
        except S3Error as error:
            if byte_range is None or error.status != RANGE_AFTER_THE_END:
                raise
            return io.BytesIO()
        length = _body_length(answer, byte_range)
        if length is None:
            answer["Body"].close()
            is_known = "ContentLength" in answer
            reason = "the store answers with another range than requested" if is_known else UNKNOWN_LENGTH
            raise StoreError("open", key, reason, retryable=False)
        return cast("BinaryIO", S3Reader(key, answer["Body"], length, self._connection.failures))

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        require_prefix(prefix)
        return self._walk(prefix, start_after or "")

    @property
    def is_known_to_list(self) -> bool:
        return self._connection.is_known_to_list

    @property
    def kept_versions(self) -> VersionListing | None:
        return None if self._versions is not None else VersionKeys(self._connection, self._prefix)

    @property
    def locks(self) -> ObjectLocks | None:
        from replica_clients.s3.locks import BucketLocks  # noqa: PLC0415 - few replicas need it

        mode, retain = self.settings.object_lock, self.settings.retain
        return None if mode is None or retain is None else BucketLocks(self._connection, mode, retain)

    def examine(self, prefix: str) -> Access:
        from replica_clients.s3.access import AccessTrial  # noqa: PLC0415 - only ``litelog check`` needs it

        require_prefix(prefix)
        return AccessTrial(self._connection, prefix).run()

    def least_policy(self, role: Role, *, deletes: bool) -> Mapping[str, object]:
        from replica_clients.s3.policies import least_policy  # noqa: PLC0415 - only ``litelog check`` needs it

        return least_policy(self.settings, role, deletes=deletes)

    def put_in_parts(self, key: str, body: Sequence[Buffer]) -> None:
        require_key(key)
        with _conditional("put", key, "no create-only completion of an upload in parts (If-None-Match)"):
            self._upload.put_in_parts(key, body)

    def copy_from(self, source: ObjectStore, key: str, body: Iterable[Buffer]) -> bool:
        require_key(key)
        if not (self._copies and isinstance(source, S3Store)):
            return False
        if not is_one_service(source.settings, self.settings):
            return False
        self._copies = copy_parts(source.settings, self._connection, key, body)
        return self._copies

    def list_in_pages(self, prefix: str, keys: int) -> Iterator[Sequence[ObjectInfo]]:
        require_prefix(prefix)
        return self._pages(prefix, "", keys)

    def delete(self, keys: Iterable[str]) -> None:
        self._require_now("delete", self._prefix)
        left = iter(keys)
        while some := list(islice(left, MAX_BATCH_KEYS)):
            for key in some:
                require_key(key)
            if not (self._batches and len(some) > 1 and self._delete_batch(some)):
                for key in some:
                    self._request("delete", key, "delete_object")

    def sign(self, key: str, seconds: int) -> str | None:
        require_key(key)
        return None if self._reading or self._versions else self._connection.sign(self._prefix + key, seconds)

    def close(self) -> None:
        self._upload.close()
        self._connection.close()

    def _request(self, operation: str, key: str, method: str, **parameters: object) -> dict[str, Any]:
        return self._connection.request(operation, key, method, Key=self._prefix + key, **parameters)

    @property
    def read_only(self) -> str | None:
        if self._versions is None:
            return None
        return "the option as-of reads earlier versions, and writes nothing; leave it out to write a replica"

    def _require_now(self, operation: str, key: str) -> None:
        if self._versions is not None:
            raise NotSupportedError(operation, key, "as-of reads earlier versions, and writes nothing")

    def _walk(self, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        if self._versions is not None:
            found = self._versions.list(prefix, start_after)
            yield from (ObjectInfo(key, size) for key, size in found if key and not key.endswith("/"))
            return
        for page in self._pages(prefix, start_after, MAX_BATCH_KEYS):
            yield from page

    def _pages(self, prefix: str, start_after: str, page_keys: int) -> Iterator[Sequence[ObjectInfo]]:
        asked: dict[str, object] = {"Prefix": self._prefix + prefix, "MaxKeys": page_keys}
        if start_after:
            asked["StartAfter"] = self._prefix + start_after
        while True:
            page = self._connection.request("list", prefix, "list_objects_v2", **asked)
            if not page.keys() & _OF_EVERY_LISTING:
                raise self._connection.failures.explain("list", prefix, NotS3Error())
            with self._connection.failures.reading("list", prefix):  # not around yield: callers raise their own errors
                listed = [self._listed(entry) for entry in page.get("Contents", ())]
            # A placeholder for a folder ends with a slash.
            yield [info for info in listed if info.key and info.key > start_after and not info.key.endswith("/")]
            if not page.get("IsTruncated"):
                return
            token = page.get("NextContinuationToken")
            if not token or token == asked.get("ContinuationToken"):
                raise StoreError("list", prefix, "the store's listing is cut off, or repeats itself")
            asked["ContinuationToken"] = token

    def _listed(self, entry: Mapping[str, Any]) -> ObjectInfo:
        return ObjectInfo(str(entry["Key"])[len(self._prefix) :], int(entry["Size"]))

    def _delete_batch(self, keys: Sequence[str]) -> bool:
        """Delete up to 1000 objects in one request. Returns False if the store has no such request."""
        objects = [{"Key": self._prefix + key} for key in keys]
        try:
            answer = self._connection.request(
                "delete",
                f"{keys[0]} and {len(keys) - 1} more",
                "delete_objects",
                Delete={"Objects": objects, "Quiet": True},
            )
        except S3Error as error:
            if error.code not in NO_BATCHES and error.status not in {405, 501}:
                raise
            self._batches = False
            return False
        for refused in answer.get("Errors", ()):
            if refused.get("Code") != "NoSuchKey":
                key = str(refused.get("Key", ""))[len(self._prefix) :]
                code, message = str(refused.get("Code", "")), str(refused.get("Message", ""))
                raise self._connection.failures.refused("delete", key, code, message)
        return True


@contextmanager
def _conditional(operation: str, key: str, lacks: str) -> Iterator[None]:
    """Run a conditional request. Raises NotSupportedError, with what the store ``lacks``, if it has no such
    condition."""
    try:
        yield
    except S3Error as error:
        if lacks and error.status == NOT_IMPLEMENTED:
            raise NotSupportedError(operation, key, f"{lacks}: {error.reason}") from error
        raise


def _range_header(byte_range: ByteRange) -> str:
    """The header for a range. HTTP has no empty range: one byte is requested instead, to detect a missing object."""
    if byte_range.length is None:
        return f"bytes={byte_range.start}-"
    return f"bytes={byte_range.start}-{byte_range.start + max(byte_range.length, 1) - 1}"


def _body_length(answer: Mapping[str, Any], byte_range: ByteRange | None) -> int | None:
    """How many bytes of the body, from its start, were requested; None if it holds others, or if that is unknown."""
    sent: int | None = answer.get("ContentLength")
    if sent is None or byte_range is None:
        return sent
    start, length = byte_range.start, byte_range.length
    match = _CONTENT_RANGE.match(answer.get("ContentRange") or "")
    if match is None:  # the whole object, as some stores answer a range that covers it
        return sent if start == 0 and (length is None or sent <= length) else None
    first, last, total = (int(text) for text in match.groups())
    end = total if length is None else min(total, start + max(length, 1))
    if (first, last + 1) != (start, end) or sent != end - start:
        return None
    return sent if length is None else min(sent, length)


class S3Reader(ByteStream):
    """Reads ``length`` bytes of a response's body, and closes it. Raises a retryable StoreError if it ends early.

    ``body`` is botocore's StreamingBody.
    """

    def __init__(self, key: str, body: Any, length: int, failures: S3Failures) -> None:
        self._key = key
        self._body = body
        self._left = length
        self._failures = failures

    def read(self, size: int | None = -1, /) -> bytes:
        """Read ``size`` bytes, or all that are left if there are fewer or ``size`` is negative."""
        want = self._left if size is None or size < 0 else min(size, self._left)
        pieces: list[bytes] = []
        while want:
            try:
                piece: bytes = self._body.read(want)
            except MemoryError:
                raise
            except Exception as error:  # noqa: BLE001  errors of botocore, urllib3, http.client and ssl
                failure = self._failures.explain("read", self._key, error)
                raise failure from self._failures.cause(error, self._key)
            if not piece:
                raise StoreError("read", self._key, f"the answer ends {self._left} bytes early")
            pieces.append(piece)
            self._left -= len(piece)
            want -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._body.close()
