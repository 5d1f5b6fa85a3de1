"""CRC-32C (Castagnoli) of buffers, and of joined buffers without their bytes; and a check for SHA-256 in hex."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from functools import cache
from typing import TYPE_CHECKING

from litelog.native import checksums

if TYPE_CHECKING:
    from types import ModuleType

    from typing_extensions import Buffer


def _load_extension() -> ModuleType:
    """The compiled module of the package crc32c, without the package: that imports argparse and importlib.metadata, and
    looks for its own version among all installed packages, which is a tenth of the start of a command."""
    name = "crc32c._crc32c"
    finder = importlib.machinery.PathFinder
    package = finder.find_spec("crc32c")
    spec = package and finder.find_spec(name, package.submodule_search_locations)
    if spec is None or spec.loader is None or name in sys.modules:
        return importlib.import_module(name)  # it lies elsewhere, or the package is imported already
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if TYPE_CHECKING:

    def crc32c(data: Buffer, value: int = 0) -> int:
        """CRC-32C of ``data`` when it follows bytes whose CRC is ``value``."""

else:
    crc32c = _load_extension().crc32c  # a function of Python around it takes as long as the CRC of 300 bytes

_HEX = frozenset("0123456789abcdef")
_POLYNOMIAL = 0x82F63B78  # reflected


def combine(first: int, second: int, second_length: int) -> int:
    """CRC-32C of two joined runs of bytes, from the CRC of each and the second's length in bytes."""
    if second_length < 0:
        raise ValueError(f"not a length: {second_length}")
    if (found := checksums.combine(first, second, second_length)) is not None:
        return found
    power = 0
    while second_length:
        if second_length & 1:
            first = _apply(_zeros(power), first)
        second_length >>= 1
        power += 1
    return first ^ second


def is_sha256(text: object) -> bool:
    """Whether ``text`` is a SHA-256 in hex, as ``hexdigest`` writes it."""
    return isinstance(text, str) and len(text) == 64 and set(text) <= _HEX


@cache
def _zeros(power: int) -> tuple[int, ...]:
    """The linear operator (one column per bit) that appends 2**power zero bytes."""
    if power == 0:
        one_bit = (_POLYNOMIAL, *(1 << bit for bit in range(31)))
        return _square(_square(_square(one_bit)))
    return _square(_zeros(power - 1))


def _square(operator: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(_apply(operator, column) for column in operator)


def _apply(operator: tuple[int, ...], value: int) -> int:
    result = 0
    for column in operator:
        if not value:
            break
        if value & 1:
            result ^= column
        value >>= 1
    return result
