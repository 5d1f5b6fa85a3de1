"""Turns failures of S3 and boto3 into litelog's errors: what happened, what to do, and whether a retry may succeed.

The sources are S3's list of error codes and botocore's exceptions. Unknown codes are judged by their status: 5xx, 408,
409 and 429 may be temporary, other 4xx are not.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from traceback import walk_tb
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from botocore import exceptions
from botocore.exceptions import ClientError

from litelog.errors import ExistsError, NotFoundError, StoreError
from replica_clients.s3.model_files import OPERATIONS
from replica_clients.tls_errors import explain_tls

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from replica_clients.s3.settings import S3Settings

MAX_SAID_CHARACTERS = 200
"""The longest quote of a store's message, which may be a proxy's error page. The error code follows it."""

MAX_REASON_CHARACTERS = 600
"""Longest error message."""

MIN_SECRET_CHARACTERS = 8
"""Shorter values are not taken as secrets: masks for them would garble messages."""

MIN_NAME_CHARACTERS = 40
"""Shorter object names may be masked, too: they might be part of a token."""

_TOKEN = re.compile(r"[A-Za-z0-9+/=_%-]{80,}")
"""Matches a token of unknown value, made by the store or by the issuer of credentials. It also matches a long object
key, so the names in the request are not masked."""

_SIGNATURE = re.compile(r"(Signature=)[0-9a-f]{64}")
"""Signatures, which make one request valid for some minutes."""

_SAY_ALL = (exceptions.ParamValidationError, exceptions.UnsupportedTLSVersionWarning)
"""botocore's errors that a retry does not fix. Messages show their text alone."""

_INCOMPLETE = (exceptions.PartialCredentialsError, exceptions.UnauthorizedSSOTokenError)

_CREDENTIAL_MODULES = frozenset({"botocore.credentials", "botocore.tokens"})

_NO_SUCH_KEY_ID = frozenset({"InvalidAccessKeyId", "XAdminUserNotFound", "NotSignedUp"})
"""How S3, versitygw and s3s-fs report an unknown access key."""

STALE_CREDENTIALS = _NO_SUCH_KEY_ID | {"ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired"}
"""The keys were replaced or have expired: the credential chain is asked again."""

NO_BATCHES = frozenset({"NotImplemented", "XNotImplemented", "MalformedXML", "MethodNotAllowed"})
"""How stores refuse to delete several objects in one request."""

_MAY_PASS = frozenset(
    {
        *("SlowDown", "Throttling", "ThrottlingException", "TooManyRequests", "RequestLimitExceeded", "Busy"),
        *("InternalError", "ServiceUnavailable", "RequestTimeout", "RequestTimeoutException", "OperationAborted"),
        *("ConditionalRequestConflict", "BadDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch"),
        *("IncompleteBody", "NoSuchUpload", "InvalidPart", "ExpiredToken", "ExpiredTokenException"),
        *("TokenRefreshRequired", "TemporaryRedirect"),
    }
)
_PASSING_STATUSES = frozenset({408, 409, 425, 429})

_ACTIONS = {
    "put": "s3:PutObject on {objects}",
    "open": "s3:GetObject on {objects} (and s3:ListBucket on {bucket}, or a missing object looks forbidden)",
    "read": "s3:GetObject on {objects}",
    "list": "s3:ListBucket on {bucket}",
    "versions": "s3:ListBucketVersions on {bucket}",
    "versioning": "s3:GetBucketVersioning on {bucket}",
    "lock settings": "s3:GetBucketObjectLockConfiguration on {bucket}",
    "lock": "s3:PutObjectRetention on {objects}",
    "lock of": "s3:GetObjectRetention on {objects}",
    "delete": "s3:DeleteObject on {objects}",
    "abort": "s3:AbortMultipartUpload on {objects}",
}
_KMS_ACTIONS = {"put": "kms:GenerateDataKey and kms:Decrypt", "open": "kms:Decrypt", "read": "kms:Decrypt"}

_CHECK_THE_KEY_ID = "the access key does not exist there: check the profile, the environment and the endpoint"

_WHAT_TO_DO = {
    **dict.fromkeys(_NO_SUCH_KEY_ID, _CHECK_THE_KEY_ID),
    "SignatureDoesNotMatch": "the secret key does not belong to the access key, or a proxy changes requests",
    "RequestTimeTooSkewed": "this machine's clock is wrong: set it (NTP)",
    "ExpiredToken": "the credentials have expired; they are looked up again",
    "ExpiredTokenException": "the credentials have expired; they are looked up again",
    "InvalidToken": "the session token is wrong; the credentials are looked up again",
    "InvalidObjectState": "it was moved to an archive storage class: restore it, and end that lifecycle rule",
    "AllAccessDisabled": "the bucket is disabled by its provider",
    "InvalidBucketName": "check the bucket in the replica's URL",
    "ConditionalRequestConflict": "another request is writing the same key",
    "TemporaryRedirect": "the bucket is new, and its name is not known everywhere yet",
    "BadDigest": "the bytes changed in transit",
    "XAmzContentSHA256Mismatch": "the bytes changed in transit",
    "InvalidStorageClass": "check storage-class",
    "KMS.NotFoundException": "check sse-kms-key-id",
    "KMS.DisabledException": "the KMS key is disabled",
}


_TAKEN = frozenset({"PreconditionFailed", "412", "NotModified", "304"})
"""Answers to a create-only put of an existing key; the latter two by S3Mock, for an upload in parts."""

_SPEAK_TLS = "if the endpoint speaks TLS, write https:// in its URL"
"""Advice. Most servers with TLS do not answer a request without it; Go's and nginx answer 400, with their own text."""


class NotS3Error(Exception):
    """The answer does not come from a store, but from a console, a portal or a web server."""


class S3Error(StoreError):
    """A StoreError with S3's answer: its error code (empty if there was no answer) and the HTTP status."""

    code: str = ""
    status: int = 0


class S3Failures:
    """Creates litelog's errors from a store's failures. ``operation``: a key of ``_ACTIONS``, or ``sign``."""

    def __init__(self, settings: S3Settings, tokens: Collection[str] = ()) -> None:
        """``tokens``: session tokens of earlier requests."""
        self._settings = settings
        self._tokens = tokens
        self._secrets = sorted((text for text in settings.secrets if len(text) >= MIN_SECRET_CHARACTERS), key=len)

    def explain(self, operation: str, key: str, error: BaseException) -> StoreError:
        """The StoreError (NotFoundError, ExistsError) for a failure. Operations of other services than S3 obtain
        credentials: AssumeRole, GetRoleCredentials, ..."""
        if isinstance(error, ClientError) and error.operation_name in OPERATIONS:
            return self._from_answer(operation, key, error)
        if isinstance(error, NotS3Error):
            where = self._settings.endpoint or "S3"
            return StoreError(
                operation, key, f"{where} does not answer as S3 does: check the endpoint", retryable=False
            )
        lacking = self._without_credentials(error)
        reason, retryable = self._from_client(error) if lacking is None else (lacking, True)
        return StoreError(operation, key, self.shown(reason, key), retryable=retryable)

    @contextmanager
    def reading(self, operation: str, key: str) -> Iterator[None]:
        """Turn missing or malformed parts of an answer into a StoreError that a retry may fix."""
        try:
            yield
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            reason = self.shown(f"the store's answer is damaged: {type(error).__name__}: {error}", key)
            raise StoreError(operation, key, reason) from self.cause(error, key)

    def refused(self, operation: str, key: str, code: str, message: str) -> StoreError:
        """The StoreError for one key of a batch."""
        reason = self._reason(operation, key, code, message)
        return StoreError(operation, key, reason, retryable=code in _MAY_PASS)

    def shown(self, reason: str, key: str = "") -> str:
        """``reason`` as a single line of bounded length, without secrets. ``key``: the key in the request."""
        return _shorten(self._masked(" ".join(reason.split()), key), MAX_REASON_CHARACTERS)

    def cause(self, error: BaseException, key: str = "") -> BaseException | None:
        """The cause to show in a traceback; None if the store's message contains a secret."""
        said = " ".join(str(error).split())
        return error if self._masked(said, key) == said else None

    def _from_answer(self, operation: str, key: str, error: ClientError) -> StoreError:
        said: Mapping[str, Any] = error.response.get("Error", {})
        facts: Mapping[str, Any] = error.response.get("ResponseMetadata", {})
        status, headers = int(facts.get("HTTPStatusCode", 0)), facts.get("HTTPHeaders", {})
        code = str(said.get("Code") or status)
        if operation in {"open", "read"} and code in {"NoSuchKey", "404", "NoSuchVersion"}:
            return NotFoundError(key, operation)
        if operation == "put" and code in _TAKEN:
            return ExistsError(key)
        message = str(said.get("Message", ""))
        reason = self._region(code, said, headers) or self._reason(operation, key, code, message)
        retryable = code in _MAY_PASS or (status >= 500 and status != 501) or status in _PASSING_STATUSES
        answered = S3Error(operation, key, reason, retryable=retryable, retry_after=_retry_after(headers))
        answered.code, answered.status = code, status
        return answered

    def _region(self, code: str, said: Mapping[str, Any], headers: Mapping[str, str]) -> str | None:
        """Advice if the bucket is in another region; None if it is not."""
        if code not in {
            "PermanentRedirect",
            "301",
            "AuthorizationHeaderMalformed",
            "IllegalLocationConstraintException",
        }:
            return None
        right = headers.get("x-amz-bucket-region") or said.get("Region")
        where = f"set region: {right}" if right else "set its region"
        return f"bucket {self._settings.bucket} is in another region: {where} ({code})"

    def _reason(self, operation: str, key: str, code: str, message: str) -> str:
        bucket, endpoint = self._settings.bucket, self._settings.endpoint
        at = f" at {endpoint}" if endpoint else ""
        whole = self._masked(message.strip().rstrip("."), key)  # before it is cut: half a secret is still a secret
        short = _shorten(whole, MAX_SAID_CHARACTERS)
        said = f"{short} ({code})" if short else code
        if code == "NoSuchBucket":
            advice = f"bucket {bucket} does not exist{at}: create it, or correct the replica's URL"
        elif code in {"AccessDenied", "403", "Forbidden", "AllAccessDisabled", "KMS.AccessDeniedException"}:
            advice = f"no permission on bucket {bucket}{at}: grant {self._actions(operation, code, message)}"
        elif code == "400" and (endpoint or "").startswith("http://"):  # S3 has no error named only 400
            advice = _SPEAK_TLS
        elif "x-amz-checksum" in message.lower():
            advice = "the store does not know that checksum: set checksum: md5"
        else:
            advice = _WHAT_TO_DO.get(code, "")
        return self.shown(f"{advice}: {said}" if advice else said, key)

    def _actions(self, operation: str, code: str, message: str) -> str:
        kms = _KMS_ACTIONS.get(operation)
        if kms and ("kms" in code.lower() or "kms:" in message.lower()):
            return f"{kms} on {self._settings.sse_kms_key_id or 'the key'}"
        also = f", and {kms} on the key" if kms and (self._settings.sse or "").startswith("aws:kms") else ""
        bucket = self._settings.bucket
        return _ACTIONS[operation].format(bucket=bucket, objects=f"{bucket}/{self._settings.prefix}*") + also

    def _without_credentials(self, error: BaseException) -> str | None:
        """The report of a source of credentials; None for other failures, and if a person has to act."""
        if isinstance(error, ClientError):
            message = str(error.response.get("Error", {}).get("Message", ""))
            said = (
                f"{error.operation_name}: {_shorten(self._masked(message), MAX_SAID_CHARACTERS)} ({error_code(error)})"
            )
        elif _asked_for_credentials(error) and not isinstance(error, _INCOMPLETE):
            said = f"{type(error).__name__}: {error}"
        else:
            return None
        return f"cannot get credentials: {said}"

    def _from_client(self, error: BaseException) -> tuple[str, bool]:
        """The reason of a failure on this machine or on the way, and whether a retry may succeed."""
        where = self._settings.endpoint or "S3"
        detail = str(error)
        if isinstance(error, exceptions.NoCredentialsError):
            return (
                "no credentials: set a profile, the environment (AWS_ACCESS_KEY_ID, ...) or the machine's role",
                False,
            )
        if isinstance(error, _INCOMPLETE):
            return f"the credentials are incomplete: {detail}", False
        if isinstance(error, exceptions.SSLError):
            return explain_tls(where, detail, "check the endpoint and its certificate, or set ca-bundle")
        if isinstance(error, exceptions.EndpointConnectionError | exceptions.ConnectionError):
            cause = str(error.kwargs.get("error", ""))
            unknown = any(word in cause for word in ("NameResolution", "resolve", "Name or service", "nodename"))
            advice = "cannot resolve its name: check endpoint, region and DNS" if unknown else "is it up and reachable?"
            return f"cannot reach {where}: {advice}: {detail}", True
        if isinstance(error, exceptions.ConnectionClosedError) and where.startswith("http://"):
            return f"{where} ended the connection without an answer: is it up? {_SPEAK_TLS}: {detail}", True
        kind = "" if isinstance(error, _SAY_ALL) else f"{type(error).__name__}: "
        return f"{kind}{detail}", bool(kind)

    def _masked(self, text: str, key: str = "") -> str:
        tokens = (token for token in tuple(self._tokens) if len(token) >= MIN_SECRET_CHARACTERS)
        for secret in (*reversed(self._secrets), *tokens):
            text = text.replace(secret, "***")
        named = f"{self._settings.bucket}/{self._settings.prefix}{key}"
        own = (named, quote(named), f"{self._settings.prefix}{key}", quote(named.partition("/")[2], safe=""))
        kept = "|".join(re.escape(name) for name in own if len(name) >= MIN_NAME_CHARACTERS)
        apart = re.split(f"({kept})", text) if kept else [text]
        apart[::2] = (_TOKEN.sub("***", _SIGNATURE.sub(r"\1***", other)) for other in apart[::2])
        return "".join(apart)


def _asked_for_credentials(error: BaseException) -> bool:
    """Whether botocore raised the error while it asked a program, a service or a file for credentials."""
    frames = (frame for frame, _ in walk_tb(error.__traceback__))
    return any(frame.f_globals.get("__name__") in _CREDENTIAL_MODULES for frame in frames)


def error_code(error: ClientError) -> str:
    """The error code of an answer; empty if it has none."""
    return str(error.response.get("Error", {}).get("Code", ""))


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}..."


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the store asks to wait: given directly, or as a date, compared with the store's own clock."""
    value = headers.get("retry-after")
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        wait = parsedate_to_datetime(value) - parsedate_to_datetime(headers.get("date", ""))
    except (OverflowError, TypeError, ValueError):
        return None
    return max(0.0, wait.total_seconds())
