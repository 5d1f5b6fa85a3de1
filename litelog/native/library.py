"""Loads the compiled library, if it was built and fits its source."""

from __future__ import annotations

import os
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Iterator

FOLDER = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.join(FOLDER, "walks.c")
"""The compiled source. It includes the headers that lie next to it."""

LIBRARY = os.path.join(FOLDER, "libwalks.so.1")
"""Its name ends in a number, since Python takes every file that ends in ``.so`` for a module."""


@dataclass(slots=True)
class _State:
    """The library that this process has loaded."""

    library: ctypes.CDLL | None = None
    why_not: str = ""
    tried: bool = False
    fast_checksums: bool = False


_STATE = _State()


def load() -> ctypes.CDLL | None:
    """The library; None if it is not there, or was not built from the source that is here. Loads it once."""
    if not _STATE.tried:
        _STATE.library, _STATE.why_not = _open(LIBRARY, FOLDER)
        _STATE.fast_checksums = _STATE.library is not None and bool(_STATE.library.litelog_has_fast_checksums())
        _STATE.tried = True
    return _STATE.library


def loaded() -> ctypes.CDLL | None:
    """The library, if ``load`` was called before and has found it."""
    return _STATE.library


def has_fast_checksums() -> bool:
    """Whether the library computes checksums at least as fast as the packages that do so otherwise."""
    return load() is not None and _STATE.fast_checksums


def describe() -> str:
    """Whether the library is used, for people: "used", or "not used", and why."""
    return "used" if load() is not None else f"not used: {_STATE.why_not}"


@contextmanager
def without_library() -> Iterator[None]:
    """Do all of the work in Python and NumPy for a while, in all threads: for tests and measurements."""
    load()
    before = (_STATE.library, _STATE.why_not, _STATE.fast_checksums)
    _STATE.library, _STATE.why_not, _STATE.fast_checksums = None, "switched off", False
    try:
        yield
    finally:
        _STATE.library, _STATE.why_not, _STATE.fast_checksums = before


def source_checksum(folder: str) -> int:
    """The CRC-32 of the files in C in a folder, in the order of their names. Raises OSError."""
    found = 0
    for name in sorted(os.listdir(folder)):
        if name.endswith((".c", ".h")):
            with open(os.path.join(folder, name), "rb") as file:
                found = zlib.crc32(file.read(), found)
    return found


def _open(path: str, folder: str) -> tuple[ctypes.CDLL | None, str]:
    """The library at ``path``, or why it cannot be used. ``folder`` holds its source."""
    if not os.path.exists(path):
        return None, "it was not compiled when litelog was installed"
    import ctypes  # noqa: PLC0415  # takes as long as the start of a small command

    try:
        library = ctypes.CDLL(path)
        library.litelog_source_checksum.restype = ctypes.c_uint32
        library.litelog_has_fast_checksums.restype = ctypes.c_int64
        built_from = int(library.litelog_source_checksum())
        expected = source_checksum(folder)
    except (OSError, AttributeError) as error:
        return None, f"it cannot be loaded: {error}"
    if built_from != expected:
        return None, "it was compiled from another source; install litelog again"
    return library, ""
