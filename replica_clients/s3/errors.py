"""What S3 and boto3 say when a request fails, as litelog's errors: what happened, what to do, and whether it may pass.

The sources are S3's list of error codes and botocore's exceptions. A code that is not known is judged by its status:
5xx, 408, 409 and 429 may pass, other 4xx will not.
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

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from replica_clients.s3.settings import S3Settings

MAX_SAID_CHARACTERS = 200
"""Of what a store says: a proxy's error page may be long. Its error code comes behind."""

MAX_REASON_CHARACTERS = 600
"""Of all that an error says."""

MIN_SECRET_CHARACTERS = 8
"""Shorter values are no secrets, and masking them would garble messages."""

MIN_NAME_CHARACTERS = 40
"""Shorter names of objects are no part of what looks like a token, and might be a part of one."""

_TOKEN = re.compile(r"[A-Za-z0-9+/=_%-]{80,}")
"""Matches a token whose value is not known here, made by the store or by the issuer of credentials. A long object's key
matches, too: what the request names is not masked."""

_SIGNATURE = re.compile(r"(Signature=)[0-9a-f]{64}")
"""What makes one request valid for some minutes."""

_OPERATIONS = frozenset(
    {
        *("PutObject", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload", "AbortMultipartUpload"),
        *("GetObject", "HeadObject", "ListObjectsV2", "DeleteObject", "DeleteObjects", "HeadBucket", "CreateSession"),
    }
)
"""S3's, as botocore names them. All others are of who gives credentials: AssumeRole, GetRoleCredentials, ..."""

_SAY_ALL = (exceptions.ParamValidationError, exceptions.UnsupportedTLSVersionWarning)
"""What is wrong on this side, and will stay so."""

_INCOMPLETE = (exceptions.PartialCredentialsError, exceptions.UnauthorizedSSOTokenError)

_CREDENTIAL_MODULES = frozenset({"botocore.credentials", "botocore.tokens"})

_NO_SUCH_KEY_ID = frozenset({"InvalidAccessKeyId", "XAdminUserNotFound", "NotSignedUp"})
"""S3, versitygw and s3s-fs, of an access key that they do not know."""

STALE_CREDENTIALS = _NO_SUCH_KEY_ID | {"ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired"}
"""The keys were replaced or ran out: the credential chain is asked anew."""

NO_BATCHES = frozenset({"NotImplemented", "XNotImplemented", "MalformedXML", "MethodNotAllowed"})
"""How stores refuse to delete several objects at once."""

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
    "open": "s3:GetObject on {objects} (and s3:ListBucket on {bucket}, or an object that is missing looks forbidden)",
    "read": "s3:GetObject on {objects}",
    "list": "s3:ListBucket on {bucket}",
    "delete": "s3:DeleteObject on {objects}",
    "abort": "s3:AbortMultipartUpload on {objects}",
}
_KMS_ACTIONS = {"put": "kms:GenerateDataKey and kms:Decrypt", "open": "kms:Decrypt", "read": "kms:Decrypt"}

_CHECK_THE_KEY_ID = "the access key does not exist there: check the profile, the environment and the endpoint"

_WHAT_TO_DO = {
    **dict.fromkeys(_NO_SUCH_KEY_ID, _CHECK_THE_KEY_ID),
    "SignatureDoesNotMatch": "the secret key does not belong to the access key, or a proxy changes requests",
    "RequestTimeTooSkewed": "this machine's clock is wrong: set it (NTP)",
    "ExpiredToken": "the credentials ran out; they are looked up again",
    "ExpiredTokenException": "the credentials ran out; they are looked up again",
    "InvalidToken": "the session token is wrong; the credentials are looked up again",
    "InvalidObjectState": "it was moved to an archive storage class: restore it, and end that lifecycle rule",
    "AllAccessDisabled": "the bucket is disabled by its provider",
    "InvalidBucketName": "check the bucket in the replica's URL",
    "ConditionalRequestConflict": "another request writes the same key",
    "TemporaryRedirect": "the bucket's name is not known everywhere yet, as it is new: it will be",
    "BadDigest": "the bytes changed on their way",
    "XAmzContentSHA256Mismatch": "the bytes changed on their way",
    "InvalidStorageClass": "check storage-class",
    "KMS.NotFoundException": "check sse-kms-key-id",
    "KMS.DisabledException": "the KMS key is disabled",
}


_TAKEN = frozenset({"PreconditionFailed", "412", "NotModified", "304"})
"""What a create-only put of a key that is taken is answered with; the latter two by S3Mock, of an upload in parts."""

_SPEAK_TLS = "if the endpoint speaks TLS, write https:// in its URL"
"""To a request without TLS most such servers say nothing; Go's and nginx answer 400, with words of their own."""


class NotS3Error(Exception):
    """An answer is of something else than a store: a console, a portal, a web server."""


class S3Error(StoreError):
    """A StoreError with what S3 answered: its error code (empty where there was no answer) and the HTTP status."""

    code: str = ""
    status: int = 0


class S3Failures:
    """Makes litelog's errors of a store's failures. ``operation`` is put, open, read, list, delete or abort."""

    def __init__(self, settings: S3Settings, tokens: Collection[str] = ()) -> None:
        """``tokens``: the session tokens of requests that are known by now."""
        self._settings = settings
        self._tokens = tokens
        self._secrets = sorted((text for text in settings.secrets if len(text) >= MIN_SECRET_CHARACTERS), key=len)

    def explain(self, operation: str, key: str, error: BaseException) -> StoreError:
        """The StoreError (NotFoundError, ExistsError) that a failure is."""
        if isinstance(error, ClientError) and error.operation_name in _OPERATIONS:
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
        """What an answer lacks, or holds in another form than S3's, becomes a StoreError that may pass."""
        try:
            yield
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            reason = self.shown(f"the store's answer is damaged: {type(error).__name__}: {error}", key)
            raise StoreError(operation, key, reason) from self.cause(error, key)

    def refused(self, operation: str, key: str, code: str, message: str) -> StoreError:
        """The StoreError for one key that a batch answered with an error."""
        reason = self._reason(operation, key, code, message)
        return StoreError(operation, key, reason, retryable=code in _MAY_PASS)

    def shown(self, reason: str, key: str = "") -> str:
        """``reason`` as one line of bounded length without secrets. ``key``: of the object that the request names."""
        return _shorten(self._masked(" ".join(reason.split()), key), MAX_REASON_CHARACTERS)

    def cause(self, error: BaseException, key: str = "") -> BaseException | None:
        """What a traceback may show as the reason of our error: None where the store's words hold a secret."""
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
        """What to do where the bucket is in another region; None if that is not the matter."""
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
        whole = self._masked(message.strip().rstrip("."), key)  # before it is cut: half a secret is one, too
        short = _shorten(whole, MAX_SAID_CHARACTERS)
        said = f"{short} ({code})" if short else code
        if code == "NoSuchBucket":
            advice = f"bucket {bucket} does not exist{at}: create it, or correct the replica's URL"
        elif code in {"AccessDenied", "403", "Forbidden", "AllAccessDisabled", "KMS.AccessDeniedException"}:
            advice = f"no permission on bucket {bucket}{at}: grant {self._actions(operation, code, message)}"
        elif code == "400" and (endpoint or "").startswith("http://"):  # no error of S3's has only that name
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
        """What whoever gives credentials says, or does; None if they are not the matter, or a person has to act."""
        if isinstance(error, ClientError):
            message = str(error.response.get("Error", {}).get("Message", ""))
            said = (
                f"{error.operation_name}: {_shorten(self._masked(message), MAX_SAID_CHARACTERS)} ({error_code(error)})"
            )
        elif _asked_for_credentials(error) and not isinstance(error, _INCOMPLETE):
            said = f"{type(error).__name__}: {error}"
        else:
            return None
        return f"the credentials cannot be had: {said}"

    def _from_client(self, error: BaseException) -> tuple[str, bool]:
        """What happened on this side, and whether it may pass."""
        where = self._settings.endpoint or "S3"
        detail = str(error)
        if isinstance(error, exceptions.NoCredentialsError):
            return (
                "no credentials: set a profile, the environment (AWS_ACCESS_KEY_ID, ...) or the machine's role",
                False,
            )
        if isinstance(error, _INCOMPLETE):
            return f"credentials are not complete: {detail}", False
        if isinstance(error, exceptions.SSLError):
            trusted = "certificate verify failed" not in detail.lower()
            return (
                f"TLS with {where} failed: check the endpoint and its certificate, or set ca-bundle: {detail}",
                trusted,
            )
        if isinstance(error, exceptions.EndpointConnectionError | exceptions.ConnectionError):
            cause = str(error.kwargs.get("error", ""))
            unknown = any(word in cause for word in ("NameResolution", "resolve", "Name or service", "nodename"))
            advice = "its name is not known: check endpoint, region and DNS" if unknown else "is it up, and reachable?"
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
    """Whether it was raised where botocore asks a program, a service or a file for them."""
    frames = (frame for frame, _ in walk_tb(error.__traceback__))
    return any(frame.f_globals.get("__name__") in _CREDENTIAL_MODULES for frame in frames)


def error_code(error: ClientError) -> str:
    """What an answer calls its error; empty where it has no name for it."""
    return str(error.response.get("Error", {}).get("Code", ""))


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}..."


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the store asks to wait: given as such, or as a date, counted from the store's own clock."""
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
