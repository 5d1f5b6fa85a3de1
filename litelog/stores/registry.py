"""The registry: replica clients by URL and log formats by name, found through entry points, ours and others' alike.

A package adds a backend or a format with one line in its pyproject.toml:

    [project.entry-points."litelog.object_stores"]
    s3 = "my_package.s3:open_store"         # called as open_store(url, options), returns an ObjectStore

    [project.entry-points."litelog.object_store_families"]
    fsspec = "my_package.fsspec:open_store" # asked for schemes that no package has by name, and for fsspec+SCHEME://

    [project.entry-points."litelog.formats"]
    journal = "my_package.journal:Journal"  # called without arguments, or with a pattern; returns a LogFormat

Nothing is imported before it is asked for, so a broken package does not stop those who do not use it.
"""

from __future__ import annotations

import inspect
import re
import sys
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote

from litelog.errors import ConfigError, LitelogError, UnknownFormatError, UnknownSchemeError
from litelog.stores.object_store import ObjectReplicaClient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from litelog.formats import LogFormat
    from litelog.stores.object_store import ObjectStore
    from litelog.stores.replica_client import ReplicaClient

OBJECT_STORES = "litelog.object_stores"
FAMILIES = "litelog.object_store_families"
"""Clients that know many schemes: each raises UnknownSchemeError for one that it does not know."""
FORMATS = "litelog.formats"

MASK = "***"
"""What stands in a message in the place of a secret."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://|(file):")
_SCHEME_LIKE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
"""How a URL begins whose slashes were forgotten: as a path it would be a new, empty folder."""
_EXTRAS = {"s3": "s3", **dict.fromkeys(("abfs", "az", "gcs", "gs", "hdfs", "hf", "sftp", "smb", "webdav"), "fsspec")}


def destination_of(url: str) -> str:
    """What fails together, of a replica's URL: a scheme, a host or bucket, and what the query says (an endpoint)."""
    place, _, query = url.partition("?")
    scheme, _, rest = place.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}?{query}"


def scheme_of(url: str) -> str:
    """A replica URL's scheme, in lower case; ``file`` for what is no URL but a path."""
    match = _URL.match(url)
    return (match[1] or match[2]).lower() if match else "file"


def local_folder(url: str) -> str | None:
    """The folder of a file replica, from the URL that its client goes by; None for a replica elsewhere."""
    return unquote(url.removeprefix("file://"), errors="surrogateescape") if url.startswith("file://") else None


def schemes() -> list[str]:
    """The schemes that a replica URL may have here, sorted."""
    return sorted({entry.name for entry in entry_points(group=OBJECT_STORES)})


def format_names() -> list[str]:
    """The log formats that are installed, sorted."""
    return sorted({entry.name for entry in entry_points(group=FORMATS)})


def open_client(url: str, options: Mapping[str, object] | None = None) -> ReplicaClient:
    """The replica client for a URL or path; ``options`` are its backend's own. UnknownSchemeError, ConfigError."""
    return ObjectReplicaClient(open_store(url, options))


def open_store(url: str, options: Mapping[str, object] | None = None) -> ObjectStore:
    """The object store for a URL or path, for those who put wrappers around it. UnknownSchemeError, ConfigError."""
    if not url.strip():
        raise ConfigError("a replica's URL is empty")
    scheme = scheme_of(url)
    is_path = _URL.match(url) is None
    if is_path and (like := _SCHEME_LIKE.match(url)):
        raise ConfigError(
            f"what begins with {like[0]} is no URL, and hardly a path: write {like[0]}// for a URL, "
            f"or ./{like[0]}... for a folder of that name"
        )
    spelled = url if is_path else scheme + url[len(scheme) :]
    if entry := _find(OBJECT_STORES, scheme):
        return _load_store(entry, scheme, _EXTRAS.get(scheme))(spelled, options or {})
    family, plus, _ = scheme.partition("+")
    if plus and (entry := _find(FAMILIES, family)):
        return _open_in_family(_load_store(entry, scheme, family), spelled, options or {})
    return _open_in_families(scheme, spelled, options or {})


def open_format(name: str, pattern: str | None = None) -> LogFormat:
    """The log format of that name. ``pattern`` says which file names are log segments, where the format asks for it.

    UnknownFormatError; ConfigError where a pattern is missing, or given to a format that knows its names.
    """
    entry = _find(FORMATS, name)
    if entry is None:
        raise UnknownFormatError(name, format_names())
    factory = cast("Callable[..., LogFormat]", _load(entry, f"format {name}", ""))
    arguments = () if pattern is None else (pattern,)
    try:
        inspect.signature(factory).bind(*arguments)
    except TypeError:
        fault = "needs a pattern for its file names" if pattern is None else "knows its file names and takes no pattern"
        raise ConfigError(f"format {name} {fault}") from None
    return factory(*arguments)


def open_stored_format(name: str, pattern: str | None = None) -> LogFormat:
    """The format of a replica's log. One that needs a pattern and has none takes every name: a replica holds nothing
    else. Raises as ``open_format``."""
    try:
        return open_format(name, pattern)
    except UnknownFormatError:
        raise
    except ConfigError:
        if pattern is not None:
            raise
        return open_format(name, "*")


def redact(url: str) -> str:
    """``url`` without what may be secret: user and password, the values of its query, its fragment. Paths stay."""
    match = _URL.match(url)
    if match is None:
        return url
    head, rest = url[: match.end()], url[match.end() :]
    rest, _, fragment = rest.partition("#")
    rest, _, query = rest.partition("?")
    host = rest.partition("/")[0]
    if "@" in host or (":" in host and "@" in rest):  # a password may hold a slash that nobody escaped
        rest = f"{MASK}@{rest.rpartition('@')[2]}"
    if query:
        rest += "?" + "&".join(f"{name}={MASK}" if equals else MASK for name, equals, _ in _parts(query))
    return f"{head}{rest}{f'#{MASK}' if fragment else ''}"


def _open_in_family(
    factory: Callable[[str, Mapping[str, object]], ObjectStore], url: str, options: Mapping[str, object]
) -> ObjectStore:
    """The store at a URL that names its family. The other clients that are known are none of its business."""
    family, _, inner = url.partition("+")
    try:
        return factory(inner, options)
    except UnknownSchemeError as error:
        if not error.hint:
            raise
        raise ConfigError(f"{family}+{error.scheme}://: what {family} needs for it is missing: {error.hint}") from error


def _open_in_families(scheme: str, url: str, options: Mapping[str, object]) -> ObjectStore:
    """The store of the first family that knows the scheme; UnknownSchemeError with what was lacking if none does."""
    hints = []
    for name in sorted({entry.name for entry in entry_points(group=FAMILIES)}):
        entry = cast("EntryPoint", _find(FAMILIES, name))
        try:
            factory = _load_store(entry, scheme, _EXTRAS.get(scheme))
        except ConfigError:
            continue  # not installed: the extra is in the message below
        try:
            return factory(url, options)
        except UnknownSchemeError as error:
            hints.append(error.hint)
    raise UnknownSchemeError(scheme, schemes(), _EXTRAS.get(scheme), "; ".join(filter(None, hints)))


def _load_store(
    entry: EntryPoint, scheme: str, extra: str | None
) -> Callable[[str, Mapping[str, object]], ObjectStore]:
    advice = f"; run: pip install 'litelog[{extra}]'" if extra else ""
    return cast("Callable[[str, Mapping[str, object]], ObjectStore]", _load(entry, f"{scheme}://", advice))


def _find(group: str, name: str) -> EntryPoint | None:
    """The entry point of that name; ConfigError where two packages differ about it."""
    found = {entry.value: entry for entry in _entries(group, tuple(sys.path)) if entry.name == name}
    if len(found) > 1:
        raise ConfigError(f"{name}: two packages provide it ({', '.join(sorted(found))}); uninstall one of them")
    return next(iter(found.values()), None)


@lru_cache(maxsize=16)
def _entries(group: str, _path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """A group's entry points. Finding them reads a file of each package that is installed, on ``_path``: once is
    enough, for all logs of a process."""
    return tuple(entry_points(group=group))


def _parts(query: str) -> list[tuple[str, str, str]]:
    return [part.partition("=") for part in query.split("&")]


def _load(entry: EntryPoint, what: str, advice: str) -> object:
    try:
        return entry.load()
    except LitelogError:
        raise
    except Exception as error:  # somebody else's module may fail in any way
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{what}: {entry.value} cannot be loaded: {reason}{advice}") from error
