"""Reads the numbers of a snapshot's entries as arrays: a snapshot may have half a million entries."""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]

_DIFFERENCES = ("sealed_index", "first", "lowest", "shipped_first")
_MORE = {"next": ("first", "records"), "highest": ("lowest",), "shipped_last": ("shipped_first",)}
"""Each of these columns is written as its excess over the sum of others."""

_LIMIT = 1 << 61
"""Sums of three numbers below it fit in 64 bits."""


def read_arrays(
    written: Mapping[str, Any], count: int, ranges: Mapping[str, tuple[int, int]], expansion: int
) -> dict[str, Numbers] | None:
    """The columns of numbers, except for ``crc``.

    None if an entry has no number, or if a number is out of range: the caller then reads the columns without arrays,
    and raises the error, if it is one.

    Args:
        written: the columns as ``write_entries`` wrote them.
        count: how many entries there are.
        ranges: the lowest number and the exclusive upper limit, by the names of columns.
        expansion: how many bytes of a log segment a byte of a sealed segment can hold.
    """
    try:
        found = {name: _read(written[name], count) for name in ("size", "length", "records", *_DIFFERENCES, *_MORE)}
    except (ValueError, OverflowError):
        return None
    is_sound = all(bool(np.all(found[name] >= 0)) for name in _MORE) and bool(np.all(found["records"] > 0))
    for name in _DIFFERENCES:
        found[name] = np.cumsum(found[name])
    for name, others in _MORE.items():
        for other in others:
            found[name] += found[other]
    for name, (low, high) in ranges.items():
        is_sound &= low <= int(found[name].min()) <= int(found[name].max()) < high
    is_sound &= bool(np.all(-(-found["length"] // expansion) <= found["size"]))
    return found if is_sound else None


def _read(written: object, count: int) -> Numbers:
    """A written column. Raises ValueError and OverflowError if sums of it may not fit in 64 bits."""
    if not isinstance(written, list):
        raise ValueError("not a list")
    if len(written) == 2 and isinstance(written[1], str):
        rest = np.frombuffer(b64decode(written[1], validate=True), "<i4")
        numbers = np.concatenate((_array(written[:1]), rest.astype(np.int64)))
    else:
        numbers = _array(written)
    if len(numbers) != count:
        raise ValueError("a number is missing")
    step = int(np.abs(numbers[1:]).max(initial=0))
    if abs(int(numbers[0])) + step * count >= _LIMIT:
        raise ValueError("its sums may be large")
    return numbers


def _array(numbers: list[Any]) -> Numbers:
    if set(map(type, numbers)) != {int} or not -_LIMIT < min(numbers) <= max(numbers) < _LIMIT:
        raise ValueError("a number is missing or large")
    return np.array(numbers, np.int64)
