"""Snapshots: the complete description of a log at the start of an index. An LZ4-framed JSON document.

Sealed segments are not written yet, so a snapshot here describes no log segments: it stands at a generation's first
index and carries what the chain begins with.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from litelog.compression import FrameError, compress_frame, decompress_frames
from litelog.errors import CorruptObjectError
from litelog.layout import snapshot_key
from litelog.position import generation

if TYPE_CHECKING:
    from typing_extensions import Buffer

VERSION = 1

MAX_SNAPSHOT_BYTES = 256 << 20
"""What a snapshot may hold, uncompressed: a million log segments."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The log at the start of index ``next``: log segments [first, next), none of them described yet."""

    log: str
    """The log's id, 32 hex digits."""
    format: str
    generation: str
    owner: str
    first: int
    next: int
    created: int
    """Microseconds since 1970."""
    predecessor_end: str | None = None
    """The position at which the predecessor was ended, if there is one."""

    @property
    def key(self) -> str:
        return snapshot_key(generation(self.generation), self.next)


def encode(snapshot: Snapshot) -> bytes:
    """The object's bytes."""
    fields = {"version": VERSION, **asdict(snapshot), "segments": []}
    return compress_frame(json.dumps(fields, separators=(",", ":")).encode())


def digest(body: Buffer) -> str:
    """SHA-256 of a snapshot's bytes, hex: what a generation's chain begins with."""
    return hashlib.sha256(body).hexdigest()


def decode(key: str, body: Buffer) -> Snapshot:
    """The snapshot in ``body``; CorruptObjectError names ``key``."""
    try:
        fields = json.loads(decompress_frames(body, MAX_SNAPSHOT_BYTES))
        if fields.pop("version") != VERSION:
            raise ValueError(f"version is not {VERSION}")
        if fields.pop("segments"):
            raise ValueError("describes sealed segments, which this version does not read")
        snapshot = Snapshot(**fields)
        generation(snapshot.generation)
        if not all(type(value) is int and value >= 0 for value in (snapshot.first, snapshot.next, snapshot.created)):
            raise ValueError("first, next and created are not whole numbers")
    except (FrameError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CorruptObjectError(key, f"snapshot: {error}") from error
    if snapshot.key != key:
        raise CorruptObjectError(key, "position in the snapshot", key, snapshot.key)
    return snapshot
