"""Finds the logs to read: takes named ones as given, and matches patterns by a listing."""

from __future__ import annotations

import glob
import hashlib
import os
import re
import threading
from collections import Counter
from dataclasses import field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import ConfigError, NothingToRestoreError
from litelog.formats.litelog import LitelogFormat
from litelog.log.source import SegmentFolder
from litelog.objects.layout import CLAIMS, GENERATIONS, ROOTS
from litelog.spark.options import Mode, is_pattern
from litelog.spark.scan.task import kept_store, open_log_format
from litelog.stores.registry import local_folder, redact, scheme_of
from litelog.stores.retrying_store import RetryingStore
from litelog.system.clock import SystemClock
from litelog.system.files import has_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from litelog.formats import LogFormat
    from litelog.spark.options import ReadOptions
    from litelog.stores.object_store import ObjectStore

_SUFFIX = re.compile(r"#[0-9a-f]{8}$")
"""In the name of a log that shares its path: the checksum of its endpoint."""

_PLACING = re.compile(r"endpoint|host|port|account|url", re.IGNORECASE)
"""Names in a URL's query that say where the store is. Others may be secrets."""

_BEHIND = "\U0010ffff"
"""Sorts after all names in a folder."""


@dataclass(frozen=True, slots=True)
class ScanInput:
    """A log to read. ``folder``: the folder of a local log; None for a replica."""

    url: str = field(repr=False)
    name: str = ""
    """Its name in the column ``log``, in messages and in a stream's offsets: its whole path, without secrets. If
    another log has the same path at another endpoint, ``#`` and a checksum of the endpoint follow."""
    folder: str | None = None
    format: str | None = None
    """For a replica: the requested format, which must be the replica's own."""
    is_matched: bool = False
    """Whether only a pattern selected it."""
    bounds: Mapping[str, int | None] = field(default_factory=dict)
    """The bounds of this log alone, by option."""


def find_places(options: ReadOptions) -> list[ScanInput]:
    """The logs that the options name, each once.

    Raises NothingToRestoreError if there is none, and ConfigError if a bound is for a log that is not among them.
    """
    urls: list[str] = []
    named = {_identity(path) for path in options.paths if not is_pattern(path)}
    for path in options.paths:
        found = sorted(_match(path, options)) if is_pattern(path) else [path]
        if not found:
            raise NothingToRestoreError(f"{redact(path)}: no log matches the pattern")
        urls += found
    each: dict[tuple[str, str], str] = {}
    for url in urls:
        each.setdefault(_identity(url), url)
    places = [
        ScanInput(url, folder=_log_folder(url, options), is_matched=key not in named) for key, url in each.items()
    ]
    remote = all(place.folder is None for place in places)
    wanted = options.format if remote else None  # with folders among the places, it is theirs
    names = _names([place.url for place in places])
    bounds = options.by_log.of(names)
    return [
        replace(place, name=name, format=wanted, bounds=own)
        for place, name, own in zip(places, names, bounds, strict=True)
    ]


def _names(urls: Sequence[str]) -> list[str]:
    """A name for each place. Raises ConfigError if two of them differ only in secrets."""
    paths = [path_of(url) for url in urls]
    counts = Counter(paths)
    names = [path if counts[path] == 1 else f"{path}#{_mark(url)}" for path, url in zip(paths, urls, strict=True)]
    named = Counter(names)
    twice = [url for url, name in zip(urls, names, strict=True) if named[name] > 1]
    if twice:
        raise ConfigError(
            f"{redact(twice[0])} and {redact(twice[1])}: have the same path and endpoint: name the log once"
        )
    return names


def _mark(url: str) -> str:
    """Eight hex digits that show the scheme, user and endpoint of a place, and change with no secret."""
    head, _, query = url.partition("#")[0].partition("?")
    scheme, _, rest = head.partition("://")
    host, slash, path = rest.rpartition("@")[2].partition("/")
    user = rest.rpartition("@")[0].partition(":")[0]
    parts = sorted(part for part in query.split("&") if _PLACING.search(part.partition("=")[0]))
    return hashlib.sha256("\n".join([scheme, user, host + slash + path.rstrip("/"), *parts]).encode()).hexdigest()[:8]


def _log_folder(url: str, options: ReadOptions) -> str | None:
    """The folder of a log; None for a replica.

    Raises NothingToRestoreError for a folder that is missing, or is neither a log nor a replica. Raises
    ConfigError for an option that applies only to replicas.
    """
    folder = _local_folder(url)
    if folder is None or has_folder(folder, ROOTS):
        return None
    if not os.path.isdir(folder):
        raise NothingToRestoreError(f"{folder}: no such folder")
    if not _segment_names(folder, options):
        raise NothingToRestoreError(
            f"{folder}: is not a replica, and has no log segment of format {log_format_of(options).name}: "
            "choose another format with option format; for logs in subfolders use a pattern"
        )
    _require_fit(folder, options)
    return folder


def _local_folder(url: str) -> str | None:
    """The local folder at ``url``; None for a place elsewhere."""
    return local_folder(kept_store(url, {}).url) if scheme_of(url) == "file" else None


def _require_fit(folder: str, options: ReadOptions) -> None:
    """Raise ConfigError for an option that does not apply to a log in a folder."""
    if options.generation is not None:
        raise ConfigError(f"{folder}: is the folder of a log, not a replica: it has no generation {options.generation}")
    if options.mode is not Mode.FAILFAST:
        raise ConfigError(
            f"{folder}: is the folder of a log, not a replica: mode {options.mode} works for replicas only; malformed "
            "data in a folder is an error"
        )


def log_format_of(options: ReadOptions) -> LogFormat:
    """The format of logs in local folders. Raises UnknownFormatError and ConfigError."""
    return open_log_format(options.format or LitelogFormat.name, options.pattern)


def _segment_names(folder: str, options: ReadOptions) -> list[str]:
    return SegmentFolder(folder, log_format_of(options), SystemClock(), reports=False).all()


def _match(path: str, options: ReadOptions) -> Iterator[str]:
    root, pattern = split_pattern(path)
    folder = _local_folder(root)
    if folder is not None:
        found = glob.glob(os.path.join(glob.escape(folder), pattern))
        folders = (place for place in found if os.path.isdir(place))
        yield from (place for place in folders if has_folder(place, ROOTS) or _segment_names(place, options))
        return
    store = RetryingStore(kept_store(root, options.store), threading.Event())
    base, _, query = root.partition("?")
    for folder in _replicas(store, pattern):
        yield f"{base.rstrip('/')}/{folder}{f'?{query}' if query else ''}"


def split_pattern(path: str) -> tuple[str, str]:
    """Split ``path`` into the folders before its first wildcard, and the pattern that follows."""
    query = ""
    if scheme_of(path) != "file":
        path, _, query = path.partition("?")
    scheme, mark, rest = path.rpartition("://")
    parts = rest.split("/")
    number = next(number for number, part in enumerate(parts) if any(sign in part for sign in "*?["))
    head = "/".join(parts[:number]) or ("/" if rest.startswith("/") else ".")
    return f"{scheme}{mark}{head}{f'?{query}' if query else ''}", "/".join(parts[number:])


def _replicas(store: ObjectStore, pattern: str) -> Iterator[str]:
    """The folders in a store that hold a replica and match the pattern. Lists one page for each folder."""
    depth = pattern.count("/") + 1
    after: str | None = None
    while True:
        info = next(store.list("", after), None)
        if info is None:
            return
        parts = info.key.split("/")
        folder = "/".join(parts[:depth])
        below = "/".join(parts[depth:])
        if below.startswith((CLAIMS, GENERATIONS)) and fits_pattern(parts[:depth], pattern):
            yield folder
        after = f"{folder}/{_BEHIND}" if len(parts) > depth else info.key


def fits_pattern(parts: Sequence[str], pattern: str) -> bool:
    """Whether the parts of a place's path match the parts of a pattern, each to each."""
    wanted = pattern.split("/")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


def _identity(url: str) -> tuple[str, str]:
    """A key that is the same for each spelling of a place."""
    if scheme_of(url) == "file":
        return "file", "/".join(_parts(url))
    head, _, query = url.partition("?")
    return head.rstrip("/"), query


def is_ambiguous(name: str, other: str) -> bool:
    """Whether two names may mean the same log: their paths are the same, and only one name has an endpoint."""
    path, other_path = _SUFFIX.sub("", name), _SUFFIX.sub("", other)
    return path == other_path and (path == name) != (other_path == other)


def path_of(url: str) -> str:
    """A place's whole path without secrets."""
    return "/".join(_parts(url))


def _parts(url: str) -> list[str]:
    """The parts of a place's path, without scheme, query or secrets."""
    head = url
    if "://" in url:
        head = redact(url).partition("#")[0].partition("?")[0].partition("://")[2]
    if scheme_of(url) == "file":
        head = os.path.abspath(head.removeprefix("file:"))
    return [part for part in head.split("/") if part] or [head]
