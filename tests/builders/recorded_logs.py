"""Logs that real writers recorded, in ``tests/fixtures``: packs them, and unpacks them for a test.

Each ``<scene>.tar.gz`` has a log's folder as it lay on disk, and ``<scene>.json`` what its writer's own reader read.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

FIXTURES = Path(__file__).parent.parent / "fixtures"


def unpack(log_format: str, scene: str, folder: Path) -> Path:
    """The folder of a recorded log, in ``folder``."""
    with tarfile.open(FIXTURES / log_format / f"{scene}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
        return folder / archive.getnames()[0].partition("/")[0]


def recorded_segments(log_format: str, scene: str, suffix: str = ".log") -> list[tuple[str, bytes]]:
    """The names and bytes of a recorded log's files that end in ``suffix``, sorted by name."""
    found = {}
    with tarfile.open(FIXTURES / log_format / f"{scene}.tar.gz") as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member)
            if file is not None and member.name.endswith(suffix):
                found[member.name.rpartition("/")[2]] = file.read()
    return sorted(found.items())


def what_was_read(log_format: str, scene: str) -> dict[str, Any]:
    """What the log's own reader read of it."""
    return cast("dict[str, Any]", json.loads((FIXTURES / log_format / f"{scene}.json").read_text()))


def pack(log_format: str, scene: str, folder: Path, left_out: Sequence[str] = ()) -> None:
    """Record a folder. ``left_out``: the endings of names that are left out."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.name.endswith(tuple(left_out)):
                content = path.read_bytes()
                member = tarfile.TarInfo(f"{folder.name}/{path.relative_to(folder)}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    (FIXTURES / log_format / f"{scene}.tar.gz").write_bytes(gzip.compress(packed.getvalue(), mtime=0))
