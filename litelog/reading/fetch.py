"""Reading an object until it passes its own checks: bytes may change on their way, and a store's answer is no proof."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from litelog.errors import CorruptObjectError

if TYPE_CHECKING:
    from collections.abc import Callable

_Checked = TypeVar("_Checked")
_Read = TypeVar("_Read")

READS = 3
"""How often an object is read before what is wrong with it is believed to be wrong in the store."""


def read_checked(read: Callable[[], _Read], check: Callable[[_Read], _Checked], held: _Read | None = None) -> _Checked:
    """What ``check`` makes of what was read. Where it raises CorruptObjectError the object is read again; the last
    error is passed on. ``held``: what was read already, which is the first read."""
    for number in range(READS - 1):
        body = read() if number or held is None else held
        try:
            return check(body)
        except CorruptObjectError:
            pass
    return check(read())
