"""Acknowledgement: what an append waits for after its records are durable here, for example a mirror."""

from __future__ import annotations

from typing import Protocol


class Acknowledgement(Protocol):
    """Several threads call it at once."""

    def wait(self, sequence: int) -> bool:
        """Wait until all records before ``sequence`` are durable elsewhere, too. Return whether they are: False if the
        append is to return without that."""
