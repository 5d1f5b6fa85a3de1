"""The compiled wait for a descriptor, and the sync of its file."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from litelog.native.library import load

if TYPE_CHECKING:
    import ctypes


def await_and_sync(pipe: int) -> int | None:
    """Wait for a descriptor in a pipe, 4 bytes in the machine's order, and make the data of its file durable.

    Other threads of Python run all the time: nothing waits for the interpreter between the two. Returns 0 or the number
    of the error, -1 if the pipe has ended or a descriptor below 0 was in it, and None if the library is not there.
    """
    library = load()
    return None if library is None else int(_function(library)(pipe))


@cache
def _function(library: ctypes.CDLL) -> ctypes._NamedFuncPointer:
    import ctypes  # noqa: PLC0415  # takes as long as the start of a small command

    function = library.litelog_await_and_sync
    function.restype, function.argtypes = ctypes.c_int64, [ctypes.c_int64]
    return function
