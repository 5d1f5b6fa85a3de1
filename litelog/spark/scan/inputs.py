"""Which logs are meant: places as they are, and patterns by what is there."""

from __future__ import annotations

import glob
import os
import threading
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from litelog.errors import ConfigError, NothingToRestoreError
from litelog.formats.litelog import LitelogFormat
from litelog.log.source import SegmentNames
from litelog.objects.layout import CLAIMS, GENERATIONS
from litelog.spark.options import Mode, is_pattern
from litelog.spark.scan.task import kept_store, open_log_format
from litelog.stores.registry import local_folder, redact, scheme_of
from litelog.stores.retrying_store import RetryingStore
from litelog.system.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from litelog.formats import LogFormat
    from litelog.spark.options import ReadOptions
    from litelog.stores.object_store import ObjectStore

_BEHIND = "\U0010ffff"
"""Sorts behind all names in a folder."""


@dataclass(frozen=True, slots=True)
class Place:
    """A log. ``folder``: where it lies, if it is none of a replica but the log itself."""

    url: str = field(repr=False)
    name: str = ""
    """The last part of its path; the whole path where there may be others beside it, so that they change nothing."""
    folder: str | None = None
    format: str | None = None
    """Of a replica: the format that was asked for, which must be its own."""
    is_matched: bool = False
    """Whether a pattern found it, and nobody named it."""


def find_places(options: ReadOptions) -> list[Place]:
    """The logs that the options name, each once. NothingToRestoreError where there is none."""
    urls: list[str] = []
    named = {_identity(path) for path in options.paths if not is_pattern(path)}
    for path in options.paths:
        found = sorted(_match(path, options)) if is_pattern(path) else [path]
        if not found:
            raise NothingToRestoreError(f"{redact(path)}: there is no log that the pattern fits")
        urls += found
    each: dict[tuple[str, str], str] = {}
    for url in urls:
        each.setdefault(_identity(url), url)
    places = [Place(url, folder=_log_folder(url, options), is_matched=key not in named) for key, url in each.items()]
    several, remote = options.has_several, all(place.folder is None for place in places)
    wanted = options.format if remote else None  # beside folders it is of these
    return [
        replace(place, name=full_name(place) if several else _parts(place.url)[-1], format=wanted) for place in places
    ]


def _log_folder(url: str, options: ReadOptions) -> str | None:
    """The folder of a log; None for a replica. NothingToRestoreError for a folder that is not there, or is neither;
    ConfigError for an option that is for replicas alone."""
    if scheme_of(url) != "file":
        return None
    folder = local_folder(kept_store(url, {}).url)
    assert folder is not None
    if _is_replica(folder):
        return None
    if not os.path.isdir(folder):
        raise NothingToRestoreError(f"{folder}: there is no such folder")
    if not _segment_names(folder, options):
        raise NothingToRestoreError(
            f"{folder}: is no replica, and holds no log segment of format {log_format_of(options).name}: "
            "option format names another one, and a pattern names logs that lie in folders below"
        )
    _require_fit(folder, options)
    return folder


def _require_fit(folder: str, options: ReadOptions) -> None:
    """ConfigError for an option that says nothing of a log in a folder."""
    if options.generation is not None:
        raise ConfigError(
            f"{folder}: is the folder of a log, and no replica: it has no generation {options.generation}"
        )
    if options.mode is not Mode.FAILFAST:
        raise ConfigError(
            f"{folder}: is the folder of a log, and no replica: mode {options.mode} is for replicas alone, and what is "
            "malformed in a folder an error"
        )


def log_format_of(options: ReadOptions) -> LogFormat:
    """The format of logs in local folders. UnknownFormatError, ConfigError."""
    return open_log_format(options.format or LitelogFormat.name, options.pattern)


def _is_replica(folder: str) -> bool:
    return any(os.path.isdir(os.path.join(folder, part)) for part in (CLAIMS, GENERATIONS))


def _segment_names(folder: str, options: ReadOptions) -> list[str]:
    return SegmentNames(folder, log_format_of(options), SystemClock(), reports=False).all()


def _match(path: str, options: ReadOptions) -> Iterator[str]:
    if scheme_of(path) == "file":
        root, pattern = _split(path)
        folder = local_folder(kept_store(root, {}).url)
        assert folder is not None
        found = glob.glob(os.path.join(glob.escape(folder), pattern))
        folders = (place for place in found if os.path.isdir(place))
        yield from (place for place in folders if _is_replica(place) or _segment_names(place, options))
        return
    root, pattern = _split(path)
    store = RetryingStore(kept_store(root, options.store), threading.Event())
    base, _, query = root.partition("?")
    for folder in _replicas(store, pattern):
        yield f"{base.rstrip('/')}/{folder}{f'?{query}' if query else ''}"


def _split(path: str) -> tuple[str, str]:
    """The part of ``path`` before its first wildcard, whole folders, and the pattern behind it."""
    query = ""
    if scheme_of(path) != "file":
        path, _, query = path.partition("?")
    scheme, mark, rest = path.rpartition("://")
    parts = rest.split("/")
    number = next(number for number, part in enumerate(parts) if any(sign in part for sign in "*?["))
    head = "/".join(parts[:number]) or ("/" if rest.startswith("/") else ".")
    return f"{scheme}{mark}{head}{f'?{query}' if query else ''}", "/".join(parts[number:])


def _replicas(store: ObjectStore, pattern: str) -> Iterator[str]:
    """The folders in a store that hold a replica and fit the pattern: a page of a listing for each folder passed."""
    depth = pattern.count("/") + 1
    after: str | None = None
    while True:
        info = next(store.list("", after), None)
        if info is None:
            return
        parts = info.key.split("/")
        folder = "/".join(parts[:depth])
        below = "/".join(parts[depth:])
        if below.startswith((CLAIMS, GENERATIONS)) and _fits(parts[:depth], pattern):
            yield folder
        after = f"{folder}/{_BEHIND}" if len(parts) > depth else info.key


def _fits(parts: Sequence[str], pattern: str) -> bool:
    wanted = pattern.split("/")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


def _identity(url: str) -> tuple[str, str]:
    """The same for each way to spell a place."""
    if scheme_of(url) == "file":
        return "file", "/".join(_parts(url))
    head, _, query = url.partition("?")
    return head.rstrip("/"), query


def full_name(place: Place) -> str:
    """Its whole path, without what may be secret: the same one whichever other logs there are."""
    return "/".join(_parts(place.url))


def _parts(url: str) -> list[str]:
    """The parts of a place's name, without scheme, query, or what may be secret."""
    head = redact(url).partition("#")[0]
    if "://" in head:
        head = head.partition("?")[0].partition("://")[2]
    if scheme_of(url) == "file":
        head = os.path.abspath(head.removeprefix("file:"))
    return [part for part in head.split("/") if part] or [head]
