"""The fsspec store: objects on any file system that fsspec supports (gs, az, sftp, hf, webdav, ...).

fsspec has no call to create a key only once that all file systems honour, so the way depends on the file system. Those
that are known to refuse a second writer (see ``creation``) keep writers apart. On others a put looks first and then
writes, and ``enforces_create_only`` is False: two concurrent writers may overwrite each other. The file system decides
how durable a put is; local puts are synced.

fsspec's caches are off, so each listing asks again. Listings proceed folder by folder, so stopping one early costs
little, and they hold the names of one folder in memory. Options are the file system's own (the arguments of its class).
A key in a URL is refused, since it would appear in process lists and logs.
"""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Sequence
from contextlib import contextmanager, nullcontext, suppress
from io import BytesIO
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from fsspec.registry import available_protocols, get_filesystem_class

from litelog.errors import ConfigError, ExistsError, LitelogError, NotFoundError, StoreError, UnknownSchemeError
from litelog.stores.object_store import ByteRange, ByteStream, ObjectInfo, require_key, require_prefix
from litelog.stores.registry import redact, schemes
from replica_clients.fsspec.connections import (
    Connections,
    bucket_in,
    is_misconfigured,
    is_missing,
    is_refusal,
    is_shared,
    may_lack_a_bucket,
    protocols_of,
)
from replica_clients.fsspec.creation import TEMPORARY, Creation, choose_creation
from replica_clients.fsspec.kinds import defaults_of, end_retries, find_kind
from replica_clients.log_levels import silence_secrets
from replica_clients.plain_http import is_reached

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.stores.object_store import Root


CA_BUNDLES = "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"
"""Environment variables by which an SDK trusts further authorities."""

MIN_SECRET_CHARACTERS = 6
"""Shorter options are not taken as secrets: masks for them would garble messages."""

_LOOKS_SECRET = re.compile(r"secret|token|passw|passphrase|credential|signature|sas|key|connection_string|pkey", re.I)
_READ_ONLY = frozenset({"http", "https", "data", "git", "github", "gist", "zip", "tar", "libarchive", "reference"})
_WRAPPERS = frozenset({"simplecache", "filecache", "blockcache", "cached", "dir", "generic", "dask", "async_wrapper"})
TAKEN = frozenset({"skip_instance_cache", "use_listings_cache", "asynchronous"})
"""Options that litelog sets itself."""


def require_usable(scheme: str, url: str) -> None:
    """Raise UnknownSchemeError for a scheme unknown to fsspec, and ConfigError for a scheme that cannot hold a
    replica."""
    if scheme not in available_protocols():
        raise UnknownSchemeError(scheme, schemes())
    if scheme in _READ_ONLY:
        raise ConfigError(f"{scheme}:// is read-only: a replica needs a place to write to")
    if scheme in _WRAPPERS or "::" in url:
        raise ConfigError(f"{scheme}://: a replica's URL names one file system, without caches or chains")
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    _, colon, port = host.rpartition(":")
    cut = colon and port and not (port.isdecimal() or host.endswith("]"))  # a password with a slash ends the host early
    if ":" in user or cut or _LOOKS_SECRET.search(parts.query):
        raise ConfigError(
            f"{scheme}://: a URL takes no secrets: put them into the configuration file's options as ${{VARIABLE}}"
        )


def plain(value: object) -> object:
    """``value`` as plain types, since some SDKs compare types."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, dict):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value


def secrets_in(arguments: Mapping[str, object]) -> list[str]:
    """The values of options whose names suggest secrets, longest first."""
    found = []
    for name, value in arguments.items():
        if isinstance(value, dict):
            found += secrets_in(value)
        elif isinstance(value, str) and len(value) >= MIN_SECRET_CHARACTERS and _LOOKS_SECRET.search(name):
            found.append(value)
    return sorted(found, key=len, reverse=True)


MAX_REASON_CHARACTERS = 400

_NO_OBJECT = frozenset({errno.ENOENT, errno.EISDIR, errno.ENOTDIR})
_SPARING_FOLDERS = frozenset({"sftp", "ssh", "smb", "ftp"})
"""Servers that refuse to delete a folder as a file. The asynchronous class of sftp has other errors for that."""

_WILL_NOT_PASS = (PermissionError, NotImplementedError, ImportError, TypeError, AttributeError)


def open_store(url: str, options: Mapping[str, object]) -> FsspecStore:
    """Open the store at a URL of a scheme that fsspec supports. Raises UnknownSchemeError and ConfigError."""
    scheme = url.partition("://")[0]
    require_usable(scheme, url)
    silence_secrets()
    arguments = {str(name).replace("-", "_"): plain(value) for name, value in options.items()}
    if taken := TAKEN & arguments.keys():
        raise ConfigError(f"{scheme}://: {', '.join(sorted(taken))} is set by litelog itself")
    secrets = secrets_in(arguments)
    try:
        in_url = get_filesystem_class(scheme)._get_kwargs_from_urls(url)  # noqa: SLF001  as fsspec.core does; no public name
        arguments = in_url | arguments
        kind = find_kind(scheme, arguments)
    except ImportError as error:
        raise UnknownSchemeError(scheme, schemes(), hint=str(error)) from error

    def connect() -> Any:
        file_system = kind(**(defaults_of(kind) | arguments), skip_instance_cache=True)
        end_retries(file_system)
        file_system.dircache.use_listings_cache = False  # some classes would pass an argument on to their server
        return file_system

    return FsspecStore(redact(url), kind._strip_protocol(url), kind, connect, secrets)  # noqa: SLF001


class FsspecStore:
    """An ObjectStore in a folder, bucket or container of a ``kind`` of file system, created by ``connect``.

    If each thread has its own connection, the first request creates it, so a server that is down raises StoreError.
    """

    def __init__(self, url: str, root: str, kind: Any, connect: Callable[[], Any], secrets: Sequence[str] = ()) -> None:
        self.url = url
        self._root = root.rstrip("/")
        self._bucket = bucket_in(kind, self._root)
        self._bucket_seen = False
        self._secrets = secrets
        self._connections = Connections(connect, shared=is_shared(kind))
        self._spares_folders = bool(_SPARING_FOLDERS & protocols_of(kind)) and not kind.async_impl
        self._creation: Creation = choose_creation(protocols_of(kind))
        self.enforces_create_only = self._creation.enforces_create_only
        self._anchor: str | None = None
        if self._connections.shared:
            with suppress(StoreError):  # a token server may fail; wrong options still raise
                self._file_system()

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        require_key(key)
        # No file system both takes a stream and refuses a second writer, so objects are held whole. A streamed body may
        # be large, so only one is held at a time: a daemon that syncs logs for the first time sends several.
        with _made_whole if not isinstance(body, Sequence) else nullcontext():
            self._put_whole(key, _join(body), create_only)

    def _put_whole(self, key: str, content: bytes, create_only: bool) -> None:
        with self._mapped("put", key):
            try:
                self._require_anchor(key)
                self._creation.write(self._file_system(), self._path(key), content, create_only)
            except FileExistsError:
                raise ExistsError(key) from None
            except Exception as error:
                if may_lack_a_bucket(error):
                    self._require_bucket("put", key)
                raise

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        require_key(key)
        with self._mapped("open", key):
            try:
                facts = self._file_system().info(self._path(key))
            except OSError as error:
                if not _is_missing(error):
                    raise
                raise NotFoundError(key) from None
        if facts.get("type") == "directory" or facts.get("size") is None:
            raise NotFoundError(key)
        start, length = (0, None) if byte_range is None else (byte_range.start, byte_range.length)
        end = facts["size"] if length is None else min(facts["size"], start + length)
        return cast("BinaryIO", _Reader(start, end, lambda first, last: self._read(key, first, last)))

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return self._walk(require_prefix(prefix), prefix, start_after or "")

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            require_key(key)
            with self._mapped("delete", key):
                try:
                    if self._spares_folders or self._is_file(key):
                        self._file_system().rm_file(self._path(key))
                except OSError as error:
                    if not _is_missing(error) and self._is_file(key):  # a folder is not an object, and stays
                        raise

    def sign(self, key: str, seconds: int) -> str | None:
        """As Signing requires. Also None if the file system has no signed URLs, or its credentials cannot sign: each
        then raises its own error."""
        require_key(key)
        try:
            url = str(self._file_system().sign(self._path(key), expiration=seconds))
        except (StoreError, MemoryError):
            raise
        except Exception:  # noqa: BLE001  each SDK has its own errors
            return None
        return url if is_reached(url, trusts=any(map(os.environ.get, CA_BUNDLES))) else None

    def close(self) -> None:
        self._connections.close()

    def look_at_root(self) -> None:
        """Return None: file systems reached through fsspec do not identify their root."""

    def keep_to_root(self, root: Root, anchor: str) -> None:  # noqa: ARG002
        """As Rooted requires, if a put creates folders. Ignores ``root``: only the anchor decides."""
        require_key(anchor)
        self._anchor = anchor if self._creation.makes_folders else None

    def _require_anchor(self, key: str) -> None:
        """Raise StoreError if the root lacks the anchor: a put would create folders in a different one."""
        if self._anchor is None:
            return
        try:
            self._file_system().info(self._path(self._anchor))
        except OSError as error:
            if not _is_missing(error):
                raise
            reason = f"{self.url}: holds no {self._anchor} any more: is the right folder there, and mounted?"
            raise StoreError("put", key, reason) from None

    def _file_system(self) -> Any:
        """The calling thread's file system. Raises ConfigError or StoreError, never errors that describe a path."""
        try:
            return self._connections.get()
        except LitelogError:
            raise
        except Exception as error:  # noqa: BLE001  an SDK's own, of any kind
            if is_misconfigured(error):
                raise ConfigError(self._shown(error)) from self._cause(error)
            retryable = not isinstance(error, _WILL_NOT_PASS) and not is_refusal(error)
            raise StoreError("connect", "", self._shown(error), retryable=retryable) from self._cause(error)

    def _require_bucket(self, operation: str, key: str) -> None:
        """Raise StoreError if the file system has buckets, and the replica's is missing."""
        if self._bucket and is_missing(self._file_system(), self._bucket):
            reason = f"{self.url}: bucket {self._bucket} does not exist: create it, or correct the replica's URL"
            raise StoreError(operation, key, reason, retryable=False)
        self._bucket_seen = True

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"

    def _is_file(self, key: str) -> bool:
        """Whether the path is a file that may be deleted. Some file systems delete a folder with its contents.

        Does not use ``isfile``, which returns False if the connection is broken.
        """
        return bool(self._file_system().info(self._path(key))["type"] == "file")

    def _read(self, key: str, first: int, last: int) -> bytes:
        with self._mapped("read", key):
            piece = cast("bytes", self._file_system().cat_file(self._path(key), start=first, end=last))
        if len(piece) > last - first and len(piece) >= last:  # the whole file, as the package sshfs answers
            piece = piece[first:last]
        if len(piece) != last - first:
            raise StoreError("read", key, f"{len(piece)} bytes came instead of the {last - first} requested")
        return piece

    def _walk(self, folder: str, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        """Yield the objects in ``folder`` (empty, or ending in a slash) and below, in order."""
        for key, size in self._scan(folder, prefix, start_after):
            if key.endswith("/"):
                yield from self._walk(key, prefix, start_after)
            else:
                yield ObjectInfo(key, size)

    def _scan(self, folder: str, prefix: str, start_after: str) -> Sequence[tuple[str, int]]:
        """The entries of a folder that a listing may include: (key, size), in order. A folder's key ends in a slash."""
        place = self._path(folder).rstrip("/")
        found = {}
        with self._mapped("list", folder):
            file_system = self._file_system()
            file_system.invalidate_cache()
            try:
                entries = file_system.ls(place, detail=True)
            except OSError as error:
                if not _is_missing(error):
                    raise
                if not self._bucket_seen:  # check once: empty folders are listed often
                    self._require_bucket("list", folder)
                return []
        self._bucket_seen = True
        for entry in entries:
            path = str(entry["name"]).rstrip("/")
            name = path.rpartition("/")[2]
            if not path.endswith(f"/{folder}{name}") or path == place or not name or name.startswith(TEMPORARY):
                continue  # the folder itself, which some list, or a file with a folder's name
            key = f"{folder}{name}"
            if entry["type"] == "directory":
                key += "/"
                wanted = key > start_after or start_after.startswith(key)
                wanted = wanted and (key.startswith(prefix) or prefix.startswith(key))
            else:
                wanted = key > start_after and key.startswith(prefix) and entry.get("size") is not None
            if wanted:
                found[key] = int(entry.get("size") or 0)
        return sorted(found.items())

    @contextmanager
    def _mapped(self, operation: str, key: str) -> Iterator[None]:
        try:
            yield
        except LitelogError:
            raise
        except Exception as error:  # noqa: BLE001  each SDK has its own errors
            self._connections.drop()
            retryable = not isinstance(error, _WILL_NOT_PASS)
            raise StoreError(operation, key, self._shown(error), retryable=retryable) from self._cause(error)

    def _shown(self, error: BaseException) -> str:
        """An SDK's message as a single line of bounded length, without secrets."""
        reason = self._masked(" ".join(f"{type(error).__name__}: {error}".split()))
        reason = reason if len(reason) <= MAX_REASON_CHARACTERS else f"{reason[:MAX_REASON_CHARACTERS]}..."
        advice = "; grant the credentials this permission" if isinstance(error, PermissionError) else ""
        return f"{self.url}: {reason}{advice}"

    def _cause(self, error: BaseException) -> BaseException | None:
        """The cause to show in a traceback; None if an SDK's message contains a secret."""
        return error if self._masked(str(error)) == str(error) else None

    def _masked(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return re.sub(r"(?i)(sig|signature|token)=[^&\s\"']+", r"\1=***", text)


_made_whole = threading.Lock()
"""Held while a streamed object is put, by any store: the limit of memory is per process."""


def _join(body: Iterable[Buffer]) -> bytes:
    """Join a body into one bytes object. A streamed body is joined as it comes, so it is not held twice."""
    if isinstance(body, Sequence):
        return body[0] if len(body) == 1 and isinstance(body[0], bytes) else b"".join(body)
    whole = BytesIO()
    for buffer in body:
        whole.write(buffer)
    return whole.getvalue()


class _Reader(ByteStream):
    """The bytes from ``start`` to ``end``, fetched as they are read."""

    def __init__(self, start: int, end: int, fetch: Callable[[int, int], bytes]) -> None:
        self._at = start
        self._end = max(start, end)
        self._fetch = fetch

    def read(self, size: int | None = -1, /) -> bytes:
        last = self._end if size is None or size < 0 else min(self._end, self._at + size)
        if last == self._at:
            return b""
        piece = self._fetch(self._at, last)
        self._at = last
        return piece


def _is_missing(error: OSError) -> bool:
    """Whether the object does not exist. smb's errors have only the number, and some of s3fs's only the class."""
    return isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError) or error.errno in _NO_OBJECT
