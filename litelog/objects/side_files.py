"""Side files: the small files that belong to a log next to its log segments. Each snapshot holds them.

Specified in litelog/objects/README.md#side-files.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING

from litelog.codec.decoding import is_valid_text
from litelog.dataclass import dataclass
from litelog.objects.fields import refuse

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_SIDE_FILES = 16
"""The most side files of a log."""

MAX_SIDE_FILE_BYTES = 256 << 10
"""The most bytes of one side file."""


@dataclass(frozen=True, slots=True)
class SideFile:
    """A small file of a log, as it was when a snapshot was made."""

    name: str
    body: bytes


def write_side_files(files: Iterable[SideFile]) -> dict[str, str]:
    """The side files as a JSON object: each name with the content in base64."""
    return {file.name: b64encode(file.body).decode() for file in files}


def read_side_files(name: str, written: object) -> tuple[SideFile, ...]:
    """Read what ``write_side_files`` wrote. Raises ValueError for anything else."""
    if not isinstance(written, dict) or not 0 < len(written) <= MAX_SIDE_FILES:
        refuse(name, written)
    return tuple(_read(file, body) for file, body in written.items())


def _read(name: str, written: object) -> SideFile:
    if not name or "/" in name or not is_valid_text(name) or not isinstance(written, str):
        refuse("a side file", name)
    body = b64decode(written, validate=True)
    if len(body) > MAX_SIDE_FILE_BYTES:
        raise ValueError(f"side file {name} has {len(body)} bytes, more than {MAX_SIDE_FILE_BYTES}")
    return SideFile(name, body)
