"""The registry of stores, by the schemes of their URLs. litelog's own stand in ``OBJECT_STORES`` and ``FAMILIES``.

Another package adds a backend with one line in its pyproject.toml:

    [project.entry-points."litelog.object_stores"]
    s3 = "my_package.s3:open_store"         # called as open_store(url, options), returns an ObjectStore

    [project.entry-points."litelog.object_store_families"]
    fsspec = "my_package.fsspec:open_store" # for schemes that no package names, and for fsspec+SCHEME://

A program registers its own backend with ``register_object_store``. Log formats are found in ``formats/registry``.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote

from litelog.encryption.identities import OPTION
from litelog.errors import ConfigError, UnknownSchemeError
from litelog.installation import install_command
from litelog.stores.capabilities import MayBeReadOnly
from litelog.stores.object_store import ObjectReplicaClient, StreamsWal
from litelog.system.entry_points import EntryPointGroup, load_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from litelog.stores.object_store import ObjectStore
    from litelog.stores.replica_client import ReplicaClient
    from litelog.system.entry_points import Entry

OBJECT_STORES = EntryPointGroup(
    "litelog.object_stores",
    {
        "file": "replica_clients.file:open_store",
        "http": "replica_clients.http:open_store",
        "https": "replica_clients.http:open_store",
        "memory": "replica_clients.memory:open_store",
        "s3": "replica_clients.s3:open_store",
    },
)
FAMILIES = EntryPointGroup("litelog.object_store_families", {"fsspec": "replica_clients.fsspec:open_store"})
"""Stores that serve many schemes. Each raises UnknownSchemeError for a scheme that it does not know."""

MASK = "***"
"""Replaces a secret in messages."""

_SCHEME = re.compile(r"[a-z][a-z0-9.-]*")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://|(file):")
_SCHEME_LIKE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
"""Matches a URL whose slashes were forgotten. Taken as a path, it would be a new, empty folder."""
_SLASHES = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)//")
"""Matches a URL whose colon was forgotten."""
_EXTRAS = {"s3": "s3", **dict.fromkeys(("abfs", "az", "gcs", "gs", "hdfs", "hf", "sftp", "smb", "webdav"), "fsspec")}


@lru_cache(maxsize=4096)
def destination_of(url: str) -> str:
    """The unit of failure of a replica's URL: scheme, host or bucket, and the query (which may name an endpoint)."""
    place, _, query = url.partition("?")
    scheme, _, rest = place.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}?{query}"


def scheme_of(url: str) -> str:
    """A replica URL's scheme, in lower case; ``file`` for a plain path."""
    match = _URL.match(url)
    return (match[1] or match[2]).lower() if match else "file"


def place_below(place: str, name: str) -> str:
    """The place of ``name`` below a URL or folder; without a name, the place itself. A URL keeps its query."""
    if not name:
        return place
    head, mark, query = place.partition("?") if scheme_of(place) != "file" else (place, "", "")
    return f"{head.rstrip('/')}/{name}{mark}{query}"


def local_folder(url: str) -> str | None:
    """The folder of a file replica, from its client's URL; None for a replica elsewhere."""
    return unquote(url.removeprefix("file://"), errors="surrogateescape") if url.startswith("file://") else None


def register_object_store(scheme: str, open_store: Callable[[str, Mapping[str, object]], ObjectStore]) -> None:
    """Let this process use a store for the URLs of a scheme, without an installed package: for tests and notebooks.

    A later call for the scheme replaces an earlier one. Processes that this one starts do not know the store.

    Args:
        scheme: The scheme of the URLs, in lower case: ``dict`` for ``dict://...``.
        open_store: Called with a replica's URL and its options. Returns the store; makes no request.

    Raises:
        ConfigError: The scheme cannot be part of a URL, or litelog or an installed package provides it.
    """
    if not _SCHEME.fullmatch(scheme):
        raise ConfigError(f"{scheme!r} is not the scheme of a URL: write dict, without ://, in lower case")
    OBJECT_STORES.register(scheme, open_store)


def schemes() -> list[str]:
    """The schemes that a replica URL may have in this installation, sorted."""
    return OBJECT_STORES.names()


def _likely_schemes() -> set[str]:
    """Schemes that a person may mean, installed or not."""
    return {*schemes(), *_EXTRAS}


def open_client(url: str, options: Mapping[str, object] | None = None) -> ReplicaClient:
    """Open the replica client for a URL or path.

    Args:
        url: The replica's URL or path.
        options: The backend's own options.

    Raises:
        UnknownSchemeError: No installed package serves the URL's scheme.
        ConfigError: The URL or an option is invalid.
    """
    return ObjectReplicaClient(open_store(url, options))


def open_store(url: str, options: Mapping[str, object] | None = None) -> ObjectStore:
    """Open the object store for a URL or path, to put wrappers around it. Args and Raises as ``open_client``.

    The option ``identity-file`` is for a wrapper: ``opening.decrypting``.
    """
    options = {name: value for name, value in (options or {}).items() if name != OPTION}
    if not url.strip():
        raise ConfigError("a replica's URL is empty")
    scheme = scheme_of(url)
    is_path = _URL.match(url) is None
    if is_path and (begun := _SLASHES.match(url)) and begun[1].lower() in _likely_schemes():
        raise ConfigError(f"{url}: did you mean {begun[1]}://{url[begun.end() :]}? (./{url} for a folder of that name)")
    if is_path and (like := _SCHEME_LIKE.match(url)):
        raise ConfigError(
            f"{like[0]} begins neither a URL nor a likely path: write {like[0]}// for a URL, "
            f"or ./{like[0]}... for a folder of that name"
        )
    normalized = url if is_path else scheme + url[len(scheme) :]
    if entry := OBJECT_STORES.find(scheme):
        return _load_store(entry, scheme, _EXTRAS.get(scheme))(normalized, options)
    family, plus, _ = scheme.partition("+")
    if plus and (entry := FAMILIES.find(family)):
        return _open_in_family(_load_store(entry, scheme, family), normalized, options)
    return _open_in_families(scheme, normalized, options)


def open_writable_store(url: str, options: Mapping[str, object] | None = None) -> ObjectStore:
    """Open a store as ``open_store`` does, to write a replica there. Raises ConfigError also for one that is read only,
    such as a log that a daemon serves."""
    store = open_store(url, options)
    if isinstance(store, MayBeReadOnly) and store.read_only is not None:
        store.close()
        raise ConfigError(f"{store.url}: {store.read_only}")
    return store


def is_served(store: ObjectStore) -> bool:
    """Whether the store is a log that a daemon serves."""
    return isinstance(store, StreamsWal)


def redact(url: str) -> str:
    """``url`` without its secrets: user and password, the values of its query, its fragment. The path stays."""
    match = _URL.match(url)
    if match is None:
        return url
    head, rest = url[: match.end()], url[match.end() :]
    rest, _, fragment = rest.partition("#")
    rest, _, query = rest.partition("?")
    host = rest.partition("/")[0]
    if "@" in host or (":" in host and "@" in rest):  # a password may hold an unescaped slash
        rest = f"{MASK}@{rest.rpartition('@')[2]}"
    if query:
        rest += "?" + "&".join(f"{name}={MASK}" if equals else MASK for name, equals, _ in _parts(query))
    return f"{head}{rest}{f'#{MASK}' if fragment else ''}"


def _open_in_family(
    factory: Callable[[str, Mapping[str, object]], ObjectStore], url: str, options: Mapping[str, object]
) -> ObjectStore:
    """The store at a URL that names its family. The other known clients are not tried."""
    family, _, inner = url.partition("+")
    try:
        return factory(inner, options)
    except UnknownSchemeError as error:
        if not error.hint:
            raise
        raise ConfigError(f"{family}+{error.scheme}://: {family} lacks a package for it: {error.hint}") from error


def _open_in_families(scheme: str, url: str, options: Mapping[str, object]) -> ObjectStore:
    """The store of the first family that knows the scheme. UnknownSchemeError, with what is missing, if none does."""
    hints = []
    for name in FAMILIES.names():
        entry = cast("Entry", FAMILIES.find(name))
        try:
            factory = _load_store(entry, scheme, _EXTRAS.get(scheme))
        except ConfigError:
            continue  # not installed: the extra is in the message below
        try:
            return factory(url, options)
        except UnknownSchemeError as error:
            hints.append(error.hint)
    raise UnknownSchemeError(scheme, schemes(), _EXTRAS.get(scheme), "; ".join(filter(None, hints)))


def _load_store(entry: Entry, scheme: str, extra: str | None) -> Callable[[str, Mapping[str, object]], ObjectStore]:
    def advice() -> str:
        return f"; run: {install_command(extra)}" if extra else ""

    return cast("Callable[[str, Mapping[str, object]], ObjectStore]", load_entry(entry, f"{scheme}://", advice))


def _parts(query: str) -> list[tuple[str, str, str]]:
    return [part.partition("=") for part in query.split("&")]
