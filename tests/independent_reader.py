"""Reads a replica with lz4, json and hashlib alone, and checks what its writer promised: a second opinion."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import lz4.frame
from crc32c import crc32c

if TYPE_CHECKING:
    from litelog.object_store import ObjectStore

_WAL = re.compile(r"generations/([0-9a-f]{16})/wal/([0-9a-f]{16})/([0-9a-f]{16})\.wal\.lz4")
_SNAPSHOT = re.compile(r"generations/([0-9a-f]{16})/snapshots/([0-9a-f]{16})\.snapshot\.lz4")
_CLAIM = re.compile(r"epochs/([0-9a-f]{8})(?:-([0-9a-f]{16}))?\.json")


@dataclass
class Generation:
    """What a replica holds of one generation."""

    claim: dict[str, Any]
    snapshot: bytes = b""
    segments: list[tuple[dict[str, Any], bytes, str]] = field(default_factory=list)
    """Header, bytes and digest of each WAL segment, in order."""
    terminal: dict[str, Any] | None = None

    def files(self) -> dict[str, bytes]:
        """The log segments, by name, as far as they were shipped."""
        found: dict[str, bytes] = {}
        for header, data, _ in self.segments:
            found[header["file"]] = found.get(header["file"], b"") + data
        return found

    def text(self) -> bytes:
        """All bytes, one log segment behind the other."""
        return b"".join(data for _, data, _ in self.segments)

    def holds(self, index: int, end: int) -> bool:
        """Whether every byte of log segment ``index`` before ``end`` is there."""
        reached = [header["offset"] + header["length"] for header, _, _ in self.segments if header["index"] == index]
        return max(reached, default=0) >= end


def objects(store: ObjectStore) -> dict[str, bytes]:
    """Everything in a store."""
    found = {}
    for info in list(store.list("")):
        with store.open(info.key) as stream:
            found[info.key] = stream.read()
    return found


def split_wal(body: bytes) -> tuple[dict[str, Any], bytes]:
    """A WAL segment's header and bytes."""
    size = int.from_bytes(body[4:8], "little")
    header = json.loads(body[8 : 8 + size])
    rest, pieces = body[8 + size :], []
    while rest:
        decompressor = lz4.frame.LZ4FrameDecompressor()
        pieces.append(decompressor.decompress(rest))
        assert decompressor.eof
        rest = decompressor.unused_data or b""
    return header, b"".join(pieces)


def read_replica(store: ObjectStore) -> dict[str, Generation]:
    """All generations, oldest first, after every promise of their writers was checked."""
    held = objects(store)
    generations: dict[str, Generation] = {}
    for key in sorted(held):
        if match := _CLAIM.fullmatch(key):
            claim = json.loads(held[key])
            assert claim["generation"][:8] == match[1]
            assert match[2] == (claim["generation"] if claim.get("fencing") == "isolated" else None)
            assert claim["generation"] not in generations
            generations[claim["generation"]] = Generation(claim)
    generations = dict(sorted(generations.items()))
    for key in sorted(held):
        if match := _SNAPSHOT.fullmatch(key):
            generations[match[1]].snapshot = held[key]
        elif match := _WAL.fullmatch(key):
            _add(generations[match[1]], key, held[key], int(match[2], 16), int(match[3], 16))
        else:
            assert _CLAIM.fullmatch(key), key
    for name, generation in generations.items():
        if generation.terminal is not None:
            successor = generation.terminal["successor"]
            assert successor in held
            assert json.loads(held[successor])["generation"] > name
    return generations


def _add(generation: Generation, key: str, body: bytes, index: int, offset: int) -> None:
    header, data = split_wal(body)
    assert generation.terminal is None, f"{key} lies behind a terminal"
    assert (header["index"], header["offset"], header["length"]) == (index, offset, len(data))
    assert header["generation"] == generation.claim["generation"]
    before = generation.segments[-1] if generation.segments else None
    last = before[0] if before else None
    same = last is not None and not last.get("final")
    if last is None:
        assert (index, offset) == (generation.claim["first"], 0)
        chained = hashlib.sha256(generation.snapshot).hexdigest() if generation.snapshot else ""
    else:
        follows = (last["index"] + 1, 0) if last.get("final") else (last["index"], last["offset"] + last["length"])
        assert (index, offset) == follows, f"{key} does not lie in the next slot"
        chained = before[2] if before else ""
        assert header["shipped"] >= last["shipped"]
    if "successor" in header:
        assert not data
        # A closed generation may get its first snapshot afterwards: its owner was late.
        assert header["previous"] == chained or (last is None and header["previous"] == "")
        generation.terminal = header
        return
    assert header["previous"] == chained, f"{key} breaks the chain"
    assert header["owner"] == generation.claim["owner"], f"{key} was written by another owner"
    assert header["crc"] == crc32c(data)
    assert header["crc_total"] == crc32c(data, last["crc_total"] if same and last else 0)
    if same and last is not None:
        assert header["file"] == last["file"]
    assert data or header.get("final")
    generation.segments.append((header, data, hashlib.sha256(body).hexdigest()))
