"""The records of the writer: their content shows a reader whether they are the written ones."""

from __future__ import annotations


def record(number: int) -> bytes:
    """The record with that sequence. No two are equal, and some are long."""
    return f"{number:010d} ".encode() + bytes([number % 251]) * (number * 7919 % 300)
