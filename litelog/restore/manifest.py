"""The manifest of a restored log: its writer loads only the log segments that it lists.

It follows from the log segments, so it is not in the replica. Specified in litelog/restore/README.md#manifests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.formats.capabilities import has_manifest, write_manifest
from litelog.objects.side_files import SideFile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from litelog.formats import LogFormat


def make_manifest(names: Iterable[str], log_format: LogFormat) -> SideFile | None:
    """Return the manifest that lists the log segments among ``names``; None if there are none, or the format has no
    manifests."""
    if not has_manifest(log_format):
        return None
    ordered = sorted((order, name) for name in names if (order := log_format.segment_order(name)) is not None)
    if not ordered:
        return None
    return SideFile(*write_manifest(log_format, [name for _, name in ordered]))
