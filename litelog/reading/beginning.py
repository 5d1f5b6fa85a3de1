"""Whether a generation began: one rule for its owner, its successors and its readers
(litelog/shipping/README.md#which-generations-began).

An owner begins its generation with the first snapshot. A new owner that closes a generation looks for that snapshot
before it puts the terminal, and the terminal names the snapshot as the object before it. If a terminal in the first
slot names no object, its owner saw no snapshot, and the generation never began. A snapshot that exists all the same
came too late: its owner was paused, found the newer claim after the put, and was fenced. So nothing that this snapshot
names was ever acknowledged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from litelog.objects.wal_segment import WalHeader


def never_began(first: int, header: WalHeader) -> bool:
    """Whether a WAL segment shows that its generation never began. ``first``: the claim's first index."""
    in_first_slot = (header.index, header.offset) == (first, 0)
    return header.successor is not None and in_first_slot and not header.previous
