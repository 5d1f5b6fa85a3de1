"""boto3's clients of S3 replicas: how they are made, shared and replaced, and how their requests are sent."""

from __future__ import annotations

import base64
import hashlib
import io
import logging
import os
import re
import threading
from collections import deque
from dataclasses import replace
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import boto3
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError

from litelog.errors import ConfigError
from litelog.events import fields
from replica_clients.log_levels import silence_secrets
from replica_clients.s3.errors import STALE_CREDENTIALS, NotS3Error, S3Failures, error_code

if TYPE_CHECKING:
    from replica_clients.s3.settings import S3Settings

EXPRESS_SUFFIX = "--x-s3"
"""How the names of S3's directory buckets end, which take no MD5."""

DEFAULT_REGION = "us-east-1"
"""What stores that are not Amazon's are signed for where nobody says a region: they take any."""

CONTINUE_BYTES = 2 << 20
"""Larger bodies wait for the store's ``100 Continue``, so that one which is refused is not sent; for smaller ones that
round trip costs more than it saves."""

MAX_TOKENS = 4
"""Session tokens that are remembered: the last ones, as one that was replaced may still be in an answer under way."""

_PAGE = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?<(?:!doctype\s+)?html\b", re.I)
"""How HTML and XHTML begin."""

_logger = logging.getLogger(__name__)

Like = tuple["S3Settings", frozenset[tuple[str, str]]]
"""What makes two clients the same: all settings but the place in the bucket, and the environment that they read."""


class SharedClient:
    """One boto3 client for all replicas in a bucket that are spoken to alike, from any thread: each would take 13 MB
    and a tenth of a second of its own."""

    def __init__(self, settings: S3Settings) -> None:
        """ConfigError."""
        silence_secrets()
        _silence_refusals()
        self.tokens: deque[str] = deque(maxlen=MAX_TOKENS)
        """Session tokens that were sent, and that no message may show."""
        self.client = _make_client(settings, self.tokens)
        self._settings = settings
        self._renewing = threading.Lock()
        self._users = 0

    @classmethod
    def of(cls, settings: S3Settings) -> SharedClient:
        """The one for these settings; made if nobody has it. ``release`` gives it back. ConfigError."""
        environment = frozenset((name, value) for name, value in os.environ.items() if name.startswith("AWS_"))
        like = (replace(settings, prefix=""), environment)
        with _sharing:
            shared = _shared.get(like)
            if shared is None:
                shared = _shared[like] = cls(settings)
            shared._users += 1
            return shared

    def release(self) -> None:
        """Give it back, once for each ``of``: idle connections are closed behind the last one."""
        with _sharing:
            self._users -= 1
            if not self._users:
                self.client.close()

    def renew(self, stale: Any) -> bool:
        """Ask the credential chain anew, whether it has others: a client keeps what it found in a file for ever.

        The old client is not closed: other threads may be in a request with it.
        """
        with self._renewing:
            if self.client is not stale:
                return True
            try:
                self.client = _make_client(self._settings, self.tokens)
            except ConfigError as error:
                said = "%s: the credentials cannot be looked up again: %s"
                extra = fields("credentials-failed", replica=self._settings.url)
                _logger.warning(said, self._settings.url, error, extra=extra)
            return _access_key(self.client) != _access_key(stale)


_sharing = threading.Lock()
_shared: WeakValueDictionary[Like, SharedClient] = WeakValueDictionary()


def _make_client(settings: S3Settings, tokens: deque[str]) -> Any:
    """A boto3 client with a session of its own: sessions are not for several threads, clients are. ConfigError."""
    own = settings.endpoint is not None
    path_style = own if settings.path_style is None else settings.path_style
    config = Config(
        connect_timeout=settings.connect_timeout,
        read_timeout=settings.read_timeout,
        max_pool_connections=settings.connections,
        retries={"total_max_attempts": 1, "mode": "standard"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={
            "addressing_style": "path" if path_style else "auto" if settings.path_style is None else "virtual",
            "payload_signing_enabled": True,  # over TLS, too: every store that checks signatures checks this SHA-256
        },
        signature_version=UNSIGNED if settings.anonymous else None,
        tcp_keepalive=True,
        user_agent_extra=f"litelog/{_version()}",
    )
    try:
        session = boto3.Session(
            aws_access_key_id=settings.access_key_id,
            aws_secret_access_key=settings.secret_access_key,
            aws_session_token=settings.session_token,
            region_name=settings.region,
            profile_name=settings.profile,
        )
        client = session.client(
            "s3",
            region_name=session.region_name or (DEFAULT_REGION if own else None),
            endpoint_url=settings.endpoint,
            verify=settings.ca_bundle,
            config=config,
        )
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  what a source of credentials says may be of any kind
        failures = S3Failures(settings)
        raise ConfigError(f"{settings.url}: {failures.shown(str(error))}") from failures.cause(error)
    _register(client, settings, tokens)
    return client


def _register(client: Any, settings: S3Settings, tokens: deque[str]) -> None:
    """Have the client change requests before it signs them, and note the session ``tokens`` that it sends."""

    def unwrap_body(params: dict[str, Any], **_: object) -> None:
        """Bytes as bytes: botocore wraps them into a file, hashes and sends that in small pieces, and always waits.

        It asks the store to be told to go on behind this, for files alone.
        """
        if isinstance(params["body"], io.BytesIO):
            params["body"] = params["body"].getvalue()  # no copy: it shares what it was made of
        if len(params["body"]) > CONTINUE_BYTES:
            params["headers"]["Expect"] = "100-continue"

    def add_headers(params: dict[str, Any], **_: object) -> None:
        params["headers"].update(settings.headers)

    def add_digest(params: dict[str, Any], **_: object) -> None:
        """Content-MD5 in the place of botocore's CRC-32, which many stores do not count as the digest they require."""
        params["headers"]["Content-MD5"] = base64.b64encode(_md5(params["body"])).decode()
        params["context"].pop("checksum", None)

    def refuse_page(response_dict: dict[str, Any], **_: object) -> None:
        """A page for people: botocore takes it for an error inside S3, or, well-formed, for an empty answer."""
        if response_dict["status_code"] == 200 and _PAGE.match(response_dict["body"]):
            raise NotS3Error

    for operation in ("PutObject", "UploadPart", "CompleteMultipartUpload", "ListObjectsV2", "DeleteObjects"):
        client.meta.events.register_first(
            f"before-parse.*.{operation}", refuse_page
        )  # ``*`` comes before botocore's s3
    for operation in ("PutObject", "UploadPart"):
        client.meta.events.register(f"before-call.s3.{operation}", unwrap_body)
    client.meta.events.register("before-send.s3", partial(_note_token, tokens))
    if settings.headers:
        client.meta.events.register("before-call.s3", add_headers)
    if not settings.bucket.endswith(EXPRESS_SUFFIX):
        client.meta.events.register("before-call.s3.DeleteObjects", add_digest)


def _note_token(tokens: deque[str], request: Any, **_: object) -> None:
    """The credential chain's, which changes: a server, or a proxy, that shows requests in its errors repeats it."""
    token = request.headers.get("X-Amz-Security-Token")
    token = token.decode() if isinstance(token, bytes) else token
    if token and token not in tokens.copy():
        tokens.append(token)


def _silence_refusals() -> None:
    """botocore shows a traceback for each time that credentials cannot be had: the request's error says it."""
    logger = logging.getLogger("botocore.credentials")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.ERROR)


def _access_key(client: Any) -> str | None:
    """The id of the key that a client signs with; None where there is none, or it cannot be looked up now."""
    try:
        found = client._request_signer._credentials  # noqa: SLF001  there is no other name for it
        return found.get_frozen_credentials().access_key if found is not None else None
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001  a source of credentials may fail in any way, and the next request tells
        return None


def _md5(body: bytes) -> bytes:
    return hashlib.md5(body, usedforsecurity=False).digest()


def _version() -> str:
    try:
        return metadata.version("litelog")
    except metadata.PackageNotFoundError:
        return "0"


class S3Connection:
    """Sends requests to one bucket, from any thread. One attempt each: retries are a wrapper's."""

    def __init__(self, settings: S3Settings) -> None:
        self.settings = settings
        self._shared = SharedClient.of(settings)
        self.failures = S3Failures(settings, self._shared.tokens)
        self._closing = threading.Lock()
        self._closed = False

    def request(self, operation: str, key: str, method: str, **parameters: object) -> dict[str, Any]:
        """The answer to one request of the client's ``method``. StoreError, NotFoundError, ExistsError.

        Whatever else fails in it is a StoreError, too: where credentials come from, and what an answer holds, is not
        ours, and no replica's failure is the others'.
        """
        client = self._shared.client
        send = getattr(client, method)
        try:
            answer: dict[str, Any] = send(Bucket=self.settings.bucket, **parameters)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  botocore lets through what its sources and parsers raise
            explained = self.failures.explain(operation, key, error)
            if isinstance(error, ClientError) and error_code(error) in STALE_CREDENTIALS:
                explained.retryable = self._shared.renew(client) or explained.retryable
            raise explained from self.failures.cause(error, key)
        return answer

    def close(self) -> None:
        """Give the client back: idle connections are closed behind the last one who has it. Idempotent."""
        with self._closing:
            closed, self._closed = self._closed, True
        if not closed:
            self._shared.release()
