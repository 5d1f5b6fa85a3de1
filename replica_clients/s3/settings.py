"""The URL and options of an S3 replica, as one checked value. Its repr shows no secrets."""

from __future__ import annotations

import base64
import binascii
import os
import re
from dataclasses import field
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from litelog.dataclass import dataclass
from litelog.errors import ConfigError
from litelog.stores.object_store import require_key
from litelog.system.files import find_other_kind, read_regular
from litelog.units import parse_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_CONNECTIONS = 256
"""The most idle connections: more than a daemon has threads for requests, and fewer than the usual limit of files."""

MAX_TIMEOUT_SECONDS = 3600.0

CHECKSUMS = ("crc32c", "sha256", "md5")
LOCKS = ("governance", "compliance")
MAX_RETAIN_SECONDS = 100 * 365 * 86400.0
SSE_KINDS = ("AES256", "aws:kms", "aws:kms:dsse")
ARCHIVES = ("GLACIER", "DEEP_ARCHIVE")
"""Storage classes that answer a GET with an error, so a claim stored there could not be read back."""

CUSTOMER_KEY_BYTES = 32

MAX_KEY_FILE_BYTES = 1024

_SECRETS = ("access-key-id", "secret-access-key", "session-token")
_OPTIONS = (
    *("anonymous", "profile", "region", "endpoint", "path-style", "storage-class", "checksum", "ca-bundle", "headers"),
    *("object-lock", "retain", "legal-hold", "as-of"),
    *("sse", "sse-kms-key-id", "sse-customer-key-file", "connect-timeout", "read-timeout", "connections", *_SECRETS),
)
_LOOKS_SECRET = re.compile(
    r"secret|token|passw|passphrase|credential|signature|authorization|x-auth|bearer|cookie|session|jwt"
    r"|(?:access|account|api|app|auth|functions|master|private|service|shared|subscription)[-_. ]?key"
    r"|customer-key(?!-file)",
    re.I,
)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OURS = ("authorization", "host", "content-length", "content-md5", "if-none-match", "if-match", "range", "date")
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
_ADVICE = "put it into the environment, a profile, or the configuration file as ${VARIABLE}"


@dataclass(frozen=True, slots=True)
class S3Settings:
    """A replica's location in S3, and how to access it. Times are in seconds. The repr shows no secrets."""

    bucket: str
    prefix: str
    """Empty, or ending in a slash."""
    profile: str | None = None
    region: str | None = None
    endpoint: str | None = None
    anonymous: bool = False
    """Send unsigned requests, for public buckets that are only read."""
    path_style: bool | None = None
    """None: S3's own default, and path style for a custom endpoint."""
    storage_class: str | None = None
    checksum: str = "crc32c"
    """The digest sent in addition to the signature's SHA-256, which some stores do not check."""
    object_lock: str | None = None
    """``governance`` or ``compliance``: the bucket refuses to delete an object for ``retain`` seconds after its put."""
    retain: float | None = None
    as_of: datetime | None = None
    """Read the bucket as it was then, from the versions of its objects. Nothing is written."""
    legal_hold: bool = False
    """The bucket refuses to delete an object until a person ends that."""
    ca_bundle: str | None = None
    sse: str | None = None
    sse_kms_key_id: str | None = None
    connect_timeout: float = 10.0
    read_timeout: float = 60.0
    connections: int = 64
    """Idle connections to keep: more than all threads that a daemon uses for one destination."""
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    sse_customer_key: bytes | None = field(default=None, repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def url(self) -> str:
        """The location, safe to log. Includes an endpoint other than Amazon's."""
        place = f"s3://{self.bucket}/{self.prefix}".rstrip("/")
        return f"{place}?endpoint={self.endpoint}" if self.endpoint else place

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that no message may show."""
        key = base64.b64encode(self.sse_customer_key).decode() if self.sse_customer_key else None
        shown = [value for _, value in self.headers]
        return tuple(text for text in (self.secret_access_key, self.session_token, key, *shown) if text)


def read_settings(url: str, options: Mapping[str, object]) -> S3Settings:
    """Read the settings from a URL (``s3://bucket/prefix?region=...``) and options, which take precedence.

    Raises ConfigError for unknown or invalid options, and for a secret in the URL, which logs and process lists show.
    """
    parts = urlsplit(url)
    if "@" in parts.netloc or ":" in parts.netloc:  # a password may hold an unescaped slash
        raise ConfigError(f"an S3 URL takes no credentials: {_ADVICE}")
    if not _BUCKET.fullmatch(parts.netloc):
        named = f"{parts.netloc!r} is not a bucket's name (3 letters or more)" if parts.netloc else "it names no bucket"
        raise ConfigError(f"not an S3 URL, as {named}: write s3://bucket/prefix")
    if parts.fragment:
        raise ConfigError("not an S3 URL: write s3://bucket/prefix (%3F for ? and %23 for # in names)")
    prefix = unquote(parts.path).strip("/")
    if prefix:
        try:
            require_key(prefix)
        except ValueError as error:
            raise ConfigError(f"s3://{parts.netloc}: {error}") from None
    asked = _from_query(parts.query) | {_known(name): value for name, value in options.items()}
    texts = {name: _text(name, value) for name, value in asked.items() if name != "headers" and value is not None}
    settings = S3Settings(
        bucket=parts.netloc,
        prefix=f"{prefix}/" if prefix else "",
        profile=texts.get("profile"),
        region=texts.get("region"),
        endpoint=_endpoint(texts.get("endpoint")),
        anonymous=bool(_switch("anonymous", texts.get("anonymous"))),
        path_style=_switch("path-style", texts.get("path-style")),
        storage_class=_storage_class(texts.get("storage-class")),
        checksum=_choice("checksum", texts.get("checksum", "crc32c").lower(), CHECKSUMS),
        object_lock=_choice("object-lock", texts["object-lock"].lower(), LOCKS) if "object-lock" in texts else None,
        retain=_age("retain", texts["retain"]) if "retain" in texts else None,
        as_of=_time("as-of", texts["as-of"]) if "as-of" in texts else None,
        legal_hold=bool(_switch("legal-hold", texts.get("legal-hold"))),
        ca_bundle=_file("ca-bundle", texts.get("ca-bundle")),
        sse=_choice("sse", texts["sse"], SSE_KINDS) if "sse" in texts else None,
        sse_kms_key_id=texts.get("sse-kms-key-id"),
        connect_timeout=_timeout("connect-timeout", texts.get("connect-timeout", "10s")),
        read_timeout=_timeout("read-timeout", texts.get("read-timeout", "60s")),
        connections=_count("connections", texts.get("connections", "64")),
        access_key_id=texts.get("access-key-id"),
        secret_access_key=texts.get("secret-access-key"),
        session_token=texts.get("session-token"),
        sse_customer_key=_customer_key(texts.get("sse-customer-key-file")),
        headers=_headers(asked.get("headers")),
    )
    _require_consistent(settings)
    return settings


def _from_query(query: str) -> dict[str, object]:
    asked: dict[str, object] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if _LOOKS_SECRET.search(name.replace("_", "-")):
            raise ConfigError(f"an S3 URL takes no secrets, such as {name}: {_ADVICE}")
        asked[_known(name)] = value
    headers = asked.get("headers")
    if isinstance(headers, str) and _LOOKS_SECRET.search(headers):
        raise ConfigError(f"an S3 URL takes no secrets, such as a header that looks like one: {_ADVICE}")
    return asked


def _known(name: str) -> str:
    """The option's canonical name. Raises a ConfigError with the nearest name if there is none."""
    spelled = str(name).lower().replace("_", "-")
    if spelled in _OPTIONS:
        return spelled
    from difflib import get_close_matches  # noqa: PLC0415 - only a mistake needs it

    near = get_close_matches(spelled, _OPTIONS, 1, 0.5)
    advice = f"; did you mean {near[0]}?" if near else ""
    raise ConfigError(f"an S3 replica has no option {name!r}{advice} (it has {', '.join(sorted(_OPTIONS))})")


def _require_consistent(settings: S3Settings) -> None:
    if settings.sse_kms_key_id and not (settings.sse or "").startswith("aws:kms"):
        raise ConfigError("sse-kms-key-id needs sse: aws:kms")
    if (settings.object_lock is None) != (settings.retain is None):
        raise ConfigError("object-lock and retain go together: write object-lock: governance and retain: 30d")
    if settings.sse_customer_key and settings.sse:
        raise ConfigError("sse and sse-customer-key-file exclude each other")
    if (settings.access_key_id is None) != (settings.secret_access_key is None):
        raise ConfigError("access-key-id and secret-access-key go together")
    if settings.session_token and not settings.access_key_id:
        raise ConfigError("session-token needs access-key-id and secret-access-key")
    if settings.anonymous and (settings.profile or settings.access_key_id):
        raise ConfigError("anonymous excludes a profile and access-key-id")
    if settings.profile and settings.access_key_id:
        raise ConfigError("profile and access-key-id exclude each other")
    if settings.sse_customer_key and settings.endpoint:
        parts = urlsplit(settings.endpoint)
        if parts.scheme != "https" and parts.hostname not in _LOCAL_HOSTS:
            raise ConfigError("sse-customer-key-file needs an https endpoint: every request holds the key")


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise ConfigError(f"{name} must be text")
    text = str(value)
    if not text or not text.isprintable():
        raise ConfigError(f"{name} is empty or holds characters that cannot be printed")
    return text


def _choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(choices)}")
    return value


def _switch(name: str, value: str | None) -> bool | None:
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    if value is not None and value.lower() not in words:
        raise ConfigError(f"{name} must be true or false")
    return None if value is None else words[value.lower()]


def _timeout(name: str, value: str) -> float:
    try:
        seconds = parse_duration(value)
    except ValueError:
        raise ConfigError(f"{name} must be a duration such as 10s or 1m30s") from None
    if not 0 < seconds <= MAX_TIMEOUT_SECONDS:
        raise ConfigError(f"{name} must be above 0s and at most 1h")
    return seconds


def _time(name: str, value: str) -> datetime:
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise ConfigError(f"{name} must be a time such as 2026-11-21T10:00:00Z") from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _age(name: str, value: str) -> float:
    try:
        seconds = parse_duration(value)
    except ValueError:
        raise ConfigError(f"{name} must be a duration such as 30d or 12h") from None
    if not 0 < seconds <= MAX_RETAIN_SECONDS or value.strip().isdecimal():
        raise ConfigError(f"{name} must be a duration with a unit, such as 30d or 12h, and at most 36500d")
    return seconds


def _count(name: str, value: str) -> int:
    if not value.isdecimal() or not 1 <= int(value) <= MAX_CONNECTIONS:
        raise ConfigError(f"{name} must be a number from 1 to {MAX_CONNECTIONS}")
    return int(value)


def _endpoint(value: str | None) -> str | None:
    if value is None:
        return None
    parts = urlsplit(value)
    if "@" in value:
        raise ConfigError(f"an endpoint takes no credentials: {_ADVICE}")
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError("endpoint must be a URL such as https://s3.example.com or http://127.0.0.1:9000")
    return value.rstrip("/")


def _storage_class(value: str | None) -> str | None:
    if value is not None and value.upper() in ARCHIVES:
        raise ConfigError(f"storage-class {value} cannot be read without being restored first: use another one")
    return None if value is None else value.upper()


def _file(name: str, value: str | None) -> str | None:
    if value is None:
        return None
    try:
        kind = find_other_kind(os.stat(value).st_mode)
    except FileNotFoundError:
        raise ConfigError(f"{name}: {value} does not exist") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{name}: {value}: {error}") from error
    if kind not in (None, "a folder"):  # a folder of certificates is fine
        raise ConfigError(f"{name}: {value} is {kind}, not a regular file")
    return value


def _customer_key(path: str | None) -> bytes | None:
    """Read the key from a file: 32 bytes, or their base64."""
    if path is None:
        return None
    try:
        content = read_regular(path, MAX_KEY_FILE_BYTES)
    except OSError as error:
        raise ConfigError(f"sse-customer-key-file: {path}: {error.strerror}") from error
    if len(content) != CUSTOMER_KEY_BYTES:
        try:
            content = base64.b64decode(content.strip(), validate=True)
        except binascii.Error:
            content = b""
    if len(content) != CUSTOMER_KEY_BYTES:
        raise ConfigError(f"sse-customer-key-file: {path} does not hold 32 bytes, or the base64 of 32 bytes")
    return content


def _headers(value: object) -> tuple[tuple[str, str], ...]:
    """Headers from a mapping, or from ``name:value,name:value`` as in a URL."""
    if value is None:
        return ()
    if isinstance(value, str):
        pairs = [part.partition(":")[::2] for part in value.split(",")]
    elif isinstance(value, dict):
        pairs = [(str(name), _text("a header", text)) for name, text in value.items()]
    else:
        raise ConfigError("headers must be a mapping of names to values")
    for name, text in pairs:
        if not _HEADER.fullmatch(name.strip()) or not text.isprintable() or not text.isascii():
            raise ConfigError(f"headers: {name!r} is not a header's name, or its value is not plain text")
        if name.strip().lower() in _OURS:
            raise ConfigError(f"headers: {name} is set by litelog itself")
    return tuple((name.strip(), text.strip()) for name, text in pairs)
