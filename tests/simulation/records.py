"""What the writer writes: a reader of a record sees whether it is the one that was written."""

from __future__ import annotations


def record(number: int) -> bytes:
    """The record with that sequence: no two are the same, some are long."""
    return f"{number:010d} ".encode() + bytes([number % 251]) * (number * 7919 % 300)
