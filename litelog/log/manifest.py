"""Which files of a folder the log's writer lists as its log segments, in a format whose writers keep a manifest."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from litelog.errors import SourceError
from litelog.formats.capabilities import has_manifest, manifest_name, read_manifest
from litelog.system.files import read_regular

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.formats import LogFormat

MAX_BYTES = 1 << 20
"""The largest manifest in bytes: about ten thousand log segments."""


def listed_segments(folder: str, log_format: LogFormat, names: Sequence[str]) -> list[str]:
    """Return those of ``names``, the files in ``folder``, that may be log segments: all of them, or those that the
    manifest lists. Without its manifest, a folder has none.

    Raises:
        SourceError: The manifest cannot be read, or is not as the log's writer writes it.
    """
    if not has_manifest(log_format):
        return list(names)
    listed = set(_read_listed(folder, log_format, names))
    return [name for name in names if name in listed]


def require_whole(folder: str, log_format: LogFormat) -> None:
    """Check that all log segments are there that the manifest lists. Raises SourceError."""
    try:
        gone = missing_segments(folder, log_format)
        if gone and gone[0] in missing_segments(folder, log_format):  # the manifest was not replaced meanwhile
            raise SourceError(f"{folder}: its manifest lists {gone[0]}, which is not there: it is part of the log")
    except OSError as error:
        raise SourceError(f"{folder}: cannot be listed: {error.strerror}") from error


def missing_segments(folder: str, log_format: LogFormat) -> list[str]:
    """Return the log segments that the manifest of ``folder`` lists, and that are not there. Raises as
    ``listed_segments``, and OSError if the folder cannot be listed."""
    if not has_manifest(log_format):
        return []
    names = os.listdir(folder)
    return [name for name in _read_listed(folder, log_format, names) if name not in names]


def _read_listed(folder: str, log_format: LogFormat, names: Sequence[str]) -> list[str]:
    """The log segments that the manifest lists; none without a manifest."""
    manifest = manifest_name(log_format, names)
    if manifest is None:
        return []
    path = os.path.join(folder, manifest)
    try:
        return read_manifest(log_format, read_regular(path, MAX_BYTES))
    except FileNotFoundError:
        return []  # its writer has just removed it
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise SourceError(f"{path}: cannot be read as a manifest: {reason or error}") from error
