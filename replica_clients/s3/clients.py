"""Creates, shares and replaces botocore clients for S3 replicas, and sends their requests."""

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
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.session import Session

from litelog.errors import ConfigError
from litelog.events import fields
from litelog.version import VERSION
from replica_clients.log_levels import silence_secrets
from replica_clients.plain_http import is_reached
from replica_clients.s3.errors import STALE_CREDENTIALS, NotS3Error, S3Failures, error_code
from replica_clients.s3.model_files import ModelFiles, ServiceLoader

if TYPE_CHECKING:
    from replica_clients.s3.settings import S3Settings

EXPRESS_SUFFIX = "--x-s3"
"""Suffix of the names of S3's directory buckets, which do not accept MD5."""

DEFAULT_REGION = "us-east-1"
"""Region for signatures to stores other than Amazon's if none is set: they accept any."""

CONTINUE_BYTES = 2 << 20
"""Larger bodies wait for the store's ``100 Continue``, so that a refused one is not sent. For smaller ones the round
trip costs more than it saves."""

CA_BUNDLES = "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"
"""Variables that name certificates for botocore, which other programs do not know."""

MAX_TOKENS = 4
"""How many session tokens to remember, since a late answer may contain a replaced one."""

_PAGE = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?<(?:!doctype\s+)?html\b", re.I)
"""How HTML and XHTML begin."""

_AMAZONS_HOST = re.compile(
    r"(?:^|\.)s3(?:express)?(?:-[a-z0-9-]+)?(?:\.dualstack)?(?:\.[a-z]+(?:-[a-z]+)+-\d+)?(?:\.vpce)?"
    r"\.(?:amazonaws\.com(?:\.cn)?|api\.aws|api\.amazonwebservices\.com\.cn)$"
)
"""The hosts of Amazon S3: those of its regions, in China, and with IPv6. Below the same domains, others name their own
servers: load balancers and virtual machines."""

LISTING_SERVERS = frozenset({"MinIO", "VERSITYGW"})
"""The names in the header ``Server`` of servers that were tested to list any number of objects. ``AmazonS3`` is
not among them: servers that imitate Amazon's send it as well."""

_logger = logging.getLogger(__name__)

Like = tuple["S3Settings", frozenset[tuple[str, str]]]
"""Clients are interchangeable if these are equal: all settings except the prefix, and the environment they read."""


_model_files = ModelFiles()


class SharedClient:
    """A botocore client shared by all replicas in a bucket with the same settings, for use from any thread.

    Separate clients would each have their own connections and credentials.
    """

    def __init__(self, settings: S3Settings) -> None:
        """Create a client. Raises ConfigError."""
        silence_secrets()
        _silence_refusals()
        self.tokens: deque[str] = deque(maxlen=MAX_TOKENS)
        """Session tokens that were sent. No message may show them."""
        self.client = _make_client(settings, self.tokens)
        self._settings = settings
        self._renewing = threading.Lock()
        self._users = 0

    @classmethod
    def of(cls, settings: S3Settings) -> SharedClient:
        """Return the client for these settings; create it if needed. ``release`` gives it back. Raises ConfigError."""
        environment = frozenset((name, value) for name, value in os.environ.items() if name.startswith("AWS_"))
        like = (replace(settings, prefix=""), environment)
        with _sharing:
            shared = _shared.get(like)
            if shared is None:
                shared = _shared[like] = cls(settings)
            shared._users += 1
            return shared

    def release(self) -> None:
        """Give the client back, once for each ``of``. The last release closes idle connections."""
        with _sharing:
            self._users -= 1
            if not self._users:
                self.client.close()

    def renew(self, stale: Any) -> bool:
        """Ask the credential chain again, since a client never re-reads credentials from a file.

        Returns whether the credentials are others now. Does not close the old client: other threads may use it.
        """
        with self._renewing:
            if self.client is not stale:
                return True
            try:
                self.client = _make_client(self._settings, self.tokens)
            except ConfigError as error:
                said = "%s: cannot look up the credentials again: %s"
                extra = fields("credentials-failed", replica=self._settings.url)
                _logger.warning(said, self._settings.url, error, extra=extra)
            return _access_key(self.client) != _access_key(stale)


_sharing = threading.Lock()
_shared: WeakValueDictionary[Like, SharedClient] = WeakValueDictionary()


def _make_client(settings: S3Settings, tokens: deque[str]) -> Any:
    """Create a botocore client with its own session: sessions are not thread-safe, clients are. Raises ConfigError."""
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
            "payload_signing_enabled": True,  # also over TLS: stores that check signatures check this SHA-256
        },
        signature_version=UNSIGNED if settings.anonymous else None,
        tcp_keepalive=True,
        user_agent_extra=f"litelog/{VERSION}",
    )
    try:
        session = Session(profile=settings.profile)
        session.register_component("data_loader", ServiceLoader(session.get_config_variable("data_path"), _model_files))
        region = settings.region or session.get_config_variable("region") or (DEFAULT_REGION if own else None)
        client = session.create_client(
            "s3",
            region_name=region,
            endpoint_url=settings.endpoint,
            verify=settings.ca_bundle,
            aws_access_key_id=settings.access_key_id,
            aws_secret_access_key=settings.secret_access_key,
            aws_session_token=settings.session_token,
            config=config,
        )
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  sources of credentials raise errors of any kind
        failures = S3Failures(settings)
        raise ConfigError(f"{settings.url}: {failures.shown(str(error))}") from failures.cause(error)
    _register(client, settings, tokens)
    return client


def _register(client: Any, settings: S3Settings, tokens: deque[str]) -> None:
    """Make the client modify requests before it signs them, and record in ``tokens`` the session tokens it sends."""

    def unwrap_body(params: dict[str, Any], **_: object) -> None:
        """Send bytes as bytes. botocore would wrap them in a file, hash and send it in small pieces, and always wait.

        It then asks for ``100 Continue``, which it does for files only.
        """
        if isinstance(params["body"], io.BytesIO):
            params["body"] = params["body"].getvalue()  # no copy: it shares the original buffer
        if len(params["body"]) > CONTINUE_BYTES:
            params["headers"]["Expect"] = "100-continue"

    def add_headers(params: dict[str, Any], **_: object) -> None:
        params["headers"].update(settings.headers)

    def add_digest(params: dict[str, Any], **_: object) -> None:
        """Send Content-MD5 instead of botocore's CRC-32, which many stores do not accept as the required digest."""
        params["headers"]["Content-MD5"] = base64.b64encode(_md5(params["body"])).decode()
        params["context"].pop("checksum", None)

    def refuse_page(response_dict: dict[str, Any], **_: object) -> None:
        """Refuse a web page. botocore takes it as an error inside S3 or, if it is well-formed, as an empty answer."""
        if response_dict["status_code"] == 200 and _PAGE.match(response_dict["body"]):
            raise NotS3Error

    for operation in ("PutObject", "UploadPart", "CompleteMultipartUpload", "ListObjectsV2", "DeleteObjects"):
        client.meta.events.register_first(f"before-parse.*.{operation}", refuse_page)  # ``*`` runs before botocore's s3
    for operation in ("PutObject", "UploadPart"):
        client.meta.events.register(f"before-call.s3.{operation}", unwrap_body)
    client.meta.events.register_first("choose-signer.s3", partial(_keep_signature, settings.anonymous))
    client.meta.events.register("before-send.s3", partial(_note_token, tokens))
    if settings.headers:
        client.meta.events.register("before-call.s3", add_headers)
    if not settings.bucket.endswith(EXPRESS_SUFFIX):
        client.meta.events.register("before-call.s3.DeleteObjects", add_digest)


def _keep_signature(anonymous: bool, signature_version: object, **_: object) -> object:
    """Sign URLs with version 4, too. botocore would choose version 2, which many stores do not accept."""
    if anonymous:
        return UNSIGNED
    return signature_version if str(signature_version).endswith("-query") else None


def _note_token(tokens: deque[str], request: Any, **_: object) -> None:
    """Record the credential chain's token, which changes. Servers and proxies may repeat it in error messages."""
    token = request.headers.get("X-Amz-Security-Token")
    token = token.decode() if isinstance(token, bytes) else token
    if token and token not in tokens.copy():
        tokens.append(token)


def _silence_refusals() -> None:
    """Silence botocore's tracebacks about missing credentials: the request's error reports them."""
    logger = logging.getLogger("botocore.credentials")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.ERROR)


def _access_key(client: Any) -> str | None:
    """The id of the key that a client signs with; None if there is none, or it cannot be looked up now."""
    try:
        found = client._request_signer._credentials  # noqa: SLF001  no public name
        return found.get_frozen_credentials().access_key if found is not None else None
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001  sources of credentials raise anything; the next request reports it
        return None


def _md5(body: bytes) -> bytes:
    return hashlib.md5(body, usedforsecurity=False).digest()


class S3Connection:
    """Sends requests to one bucket, from any thread. One attempt each: a wrapper retries."""

    def __init__(self, settings: S3Settings) -> None:
        self.settings = settings
        self._shared = SharedClient.of(settings)
        self.failures = S3Failures(settings, self._shared.tokens)
        self._closing = threading.Lock()
        self._closed = False
        self._server = ""

    @property
    def is_known_to_list(self) -> bool:
        """Whether requests go to Amazon's own hosts, or the last answer was from a server in LISTING_SERVERS. A
        setting, or the environment, may name another endpoint than Amazon's."""
        endpoint = urlsplit(self._shared.client.meta.endpoint_url).hostname or ""
        return self._server in LISTING_SERVERS or bool(_AMAZONS_HOST.search(endpoint))

    def request(self, operation: str, key: str, method: str, **parameters: object) -> dict[str, Any]:
        """Send a request with the client's ``method``. Raises StoreError, NotFoundError and ExistsError.

        Any other failure becomes a StoreError, too: sources of credentials and answers may raise anything, and one
        replica's failure must not affect others.
        """
        client = self._shared.client
        send = getattr(client, method)
        try:
            answer: dict[str, Any] = send(Bucket=self.settings.bucket, **parameters)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  botocore passes on errors of its sources and parsers
            explained = self.failures.explain(operation, key, error)
            if isinstance(error, ClientError) and error_code(error) in STALE_CREDENTIALS:
                explained.retryable = self._shared.renew(client) or explained.retryable
            raise explained from self.failures.cause(error, key)
        self._server = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("server", "")
        return answer

    def sign(self, key: str, seconds: int) -> str | None:
        """A signed URL of an object; None if the settings ask for headers, or for a certificate or proxy of their own.

        Raises StoreError.
        """
        settings, client = self.settings, self._shared.client
        endpoint = client.meta.endpoint_url
        trusts = bool(settings.ca_bundle) or any(map(os.environ.get, CA_BUNDLES))
        if settings.headers or not is_reached(endpoint, trusts=trusts):
            return None
        asked = {"Bucket": settings.bucket, "Key": key}
        try:
            return str(client.generate_presigned_url("get_object", asked, ExpiresIn=seconds))
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  botocore passes on errors of its sources
            raise self.failures.explain("sign", key, error) from self.failures.cause(error, key)

    def close(self) -> None:
        """Give the client back; the last user's release closes idle connections. Idempotent."""
        with self._closing:
            closed, self._closed = self._closed, True
        if not closed:
            self._shared.release()
