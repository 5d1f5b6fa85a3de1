"""Describes what a place holds where a replica was expected: nothing, a log, or replicas one level below."""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING

from litelog.errors import ConfigError
from litelog.formats.signatures import find_fragment, recognise_below, recognise_log
from litelog.objects.layout import CLAIMS, ROOTS
from litelog.stores.registry import local_folder
from litelog.system.files import has_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.stores.object_store import ObjectStore

LAST = f"/{chr(0x10FFFF)}"
"""Sorts after all keys of a folder."""

LOOKED_AT = 1000
"""The most keys that are listed: one page of S3."""

MAX_NAMED = 5
"""The most replicas below a place that a message names."""

_FRAGMENTS = (
    "holds fragments of a Gazette journal, and no replica: litelog cat and verify read them with --format gazette"
)

MAX_LEVELS = 3
"""How many levels below a place are searched for replicas."""


def find_replicas(store: ObjectStore, prefix: str = "", levels: int = MAX_LEVELS) -> Iterator[str]:
    """Yield the places at or below ``prefix`` (empty, or with its slash) that hold replicas, without the last slash.

    Makes two requests for each name on the way, no matter how many objects lie below it.
    """
    if any(next(store.list(prefix + root), None) is not None for root in ROOTS):
        yield prefix.rstrip("/")
        return
    after: str | None = None
    while levels > 0 and (info := next(iter(store.list(prefix, after)), None)) is not None:
        name, slash, _ = info.key.removeprefix(prefix).partition("/")
        if slash:
            yield from find_replicas(store, f"{prefix}{name}/", levels - 1)
        after = f"{prefix}{name}{slash and LAST}"


def describe_missing(store: ObjectStore) -> str:
    """The message about a store that holds no replica. Makes one listing."""
    folder = local_folder(store.url)
    return _describe_store(store) if folder is None else _describe_folder(folder)


def _describe_folder(folder: str) -> str:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except FileNotFoundError:
        return f"{folder}: no such folder"
    except NotADirectoryError:
        return f"{folder}: a file, not a replica"
    if below := [entry.name for entry in entries if entry.is_dir() and has_folder(entry.path, ROOTS)]:
        return f"{folder}: no replica there, but below it: {_name(below)}"
    files = [entry.name for entry in entries if entry.is_file() and not entry.name.startswith(".")]
    return f"{folder}: {_describe_files(folder, files)}"


def _describe_files(folder: str, files: list[str]) -> str:
    """What a folder without replicas holds: a log, logs, fragments or other files."""
    if (found := recognise_log(folder)) is not None:
        return f"a log of {found.written_by}, not a replica; give its replica, or its configuration (--config)"
    if find_fragment(files) is not None:
        return _FRAGMENTS
    if (below := recognise_below(folder)) is not None:
        name, found = below
        return (
            f"holds logs of {found.written_by}, such as {name}, and no replica; give a replica, or the configuration "
            "of the logs (--config)"
        )
    if files:
        return "a folder of files, not a replica; if it is a log, name its configuration (--config)"
    return "no replica there"


def require_no_log(url: str) -> None:
    """Raise ConfigError if the place of a replica is the folder of a log, which the replica's folders would change.
    ``url``: that of the replica's store."""
    folder = local_folder(url)
    if folder is None or not os.path.isdir(folder) or has_folder(folder, ROOTS):
        return
    if (found := recognise_log(folder)) is not None:
        raise ConfigError(f"{folder} is the folder of a log of {found.written_by}: give the replica its own folder")


def _describe_store(store: ObjectStore) -> str:
    keys = [info.key for info in islice(store.list(""), LOOKED_AT)]
    if not keys:
        return f"{store.url}: no replica there (nothing is stored below it)"
    if find_fragment(key.rpartition("/")[2] for key in keys) is not None:
        return f"{store.url}: {_FRAGMENTS}"
    parts = (key.split("/") for key in keys)
    below = dict.fromkeys(name for name, *rest in parts if rest[:1] == [CLAIMS.rstrip("/")])
    return f"{store.url}: no replica there{f', but below it: {_name(list(below))}' if below else ''}"


def _name(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more
