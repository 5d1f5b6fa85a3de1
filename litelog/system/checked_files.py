"""Small private files of state: JSON with a version and a checksum, replaced atomically and durably.

A flipped digit would be another valid position, owner or verdict. So a file with a wrong checksum counts as lost.
"""

from __future__ import annotations

import json
import logging
import os
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from litelog.codec.checksum import crc32c
from litelog.codec.decoding import build
from litelog.events import fields as event_fields
from litelog.system.files import sync_folder
from litelog.system.private_files import read_json, write_private

if TYPE_CHECKING:
    from dataclasses import Field

VERSION = 1

_logger = logging.getLogger(__name__)


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


_Note = TypeVar("_Note", bound=_Dataclass)


class NoteFile(Generic[_Note]):
    """A file that holds one dataclass, without which its owner can continue."""

    def __init__(self, path: str, kind: type[_Note], loss: str, *, once_unchecked: bool = False) -> None:
        """``loss``: what follows if the file cannot be read, as text for people. ``once_unchecked``: earlier releases
        wrote this file without version and checksum; such a file is read too."""
        self.path = path
        self._kind = kind
        self._loss = loss
        self._once_unchecked = once_unchecked
        self._reported = False

    def read(self) -> _Note | None:
        """Return what the file holds; None if there is none. A file that cannot be used counts as missing, and is
        logged once."""
        try:
            found = build(self._kind, read_checked(self.path, once_unchecked=self._once_unchecked))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            if not self._reported:
                message = "%s: cannot be used: %s; it is treated as lost: %s"
                extra = event_fields("state-lost", path=self.path)
                _logger.warning(message, self.path, error, self._loss, extra=extra)
            self._reported = True
            return None
        self._reported = False
        return found

    def write(self, note: _Note) -> None:
        """Replace the file, durably and atomically. Raises OSError."""
        write_checked(self.path, asdict(note))

    def remove(self) -> None:
        """Remove the file, durably, if there is one. Raises OSError."""
        with suppress(FileNotFoundError):
            os.unlink(self.path)
            sync_folder(os.path.dirname(self.path))


def read_checked(path: str, *, once_unchecked: bool = False) -> dict[str, Any]:
    """Return the fields of a file that states its version and checksum. OSError, ValueError.

    ``once_unchecked``: a file that states neither was written by an earlier release, and is read too.
    """
    fields = read_json(path)
    if not isinstance(fields, dict):
        raise ValueError("is not an object")
    if once_unchecked and fields.keys().isdisjoint(("version", "checksum")):
        return fields
    version, stated = fields.pop("version", None), fields.pop("checksum", None)
    if version != VERSION or isinstance(version, bool):
        raise ValueError(f"version is not {VERSION}")
    if isinstance(stated, bool) or stated != _checksum(fields):
        raise ValueError("the checksum is wrong")
    return fields


def write_checked(path: str, fields: dict[str, Any]) -> None:
    """Write a file that ``read_checked`` reads, durably and atomically. Raises OSError."""
    write_private(path, json.dumps({"version": VERSION, "checksum": _checksum(fields), **fields}).encode())


def _checksum(fields: dict[str, Any]) -> int:
    return crc32c(json.dumps(fields, sort_keys=True).encode())
