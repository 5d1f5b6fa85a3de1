"""Reads a replica with lz4, zstandard, json, hashlib and crc32c alone, and checks every promise of its writer.

It shares no code with litelog, so it does not share litelog's errors.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from base64 import b64decode
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

import lz4.frame
import zstandard
from crc32c import crc32c

if TYPE_CHECKING:
    from litelog.stores.object_store import ObjectStore

_CHECKPOINT = re.compile(r"checkpoints/[0-9a-f]{16}/[0-9a-f]{16}\.json")
_WAL = re.compile(r"generations/([0-9a-f]{16})/wal/([0-9a-f]{16})/([0-9a-f]{16})\.wal\.lz4")
_SNAPSHOT = re.compile(r"generations/([0-9a-f]{16})/snapshots/([0-9a-f]{16})\.snapshot\.lz4")
_SEALED = re.compile(r"generations/([0-9a-f]{16})/segments/([0-9a-f]{16})\.segment\.lz4")
_CLAIM = re.compile(r"epochs/([0-9a-f]{8})(?:-([0-9a-f]{16}))?\.json")


@dataclass
class Generation:
    """One generation in a replica."""

    claim: dict[str, Any]
    snapshot: bytes = b""
    """The first snapshot."""
    segments: list[tuple[dict[str, Any], bytes, str]] = field(default_factory=list)
    """The header, bytes and digest of each WAL segment, in order."""
    terminal: dict[str, Any] | None = None
    snapshots: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Every snapshot's document, by its index."""
    stored: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    """The file name and bytes of each sealed segment that this generation stores, by its index."""
    sealed: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    """The file name and bytes of each log segment that the newest snapshot names, by its index. An earlier
    generation may store it."""

    @property
    def covered(self) -> int:
        """The newest snapshot's index: every log segment before it is sealed."""
        return max(self.snapshots, default=self.claim["first"])

    def pieces(self) -> list[tuple[str, bytes]]:
        """The file name and bytes of every piece, in order: sealed segments first, then WAL segments."""
        behind = [segment for segment in self.segments if segment[0]["index"] >= self.covered]
        shipped = [(header["file"], self._stood_for(header) or data) for header, data, _ in behind]
        return [*(self.sealed[index] for index in sorted(self.sealed)), *shipped]

    def _stood_for(self, header: dict[str, Any]) -> bytes:
        """The rest of a log segment, if its ``final`` names a sealed segment; else nothing."""
        if "sealed" not in header:
            return b""
        name, data = self.stored[header["index"]]
        assert (name, hashlib.sha256(data).hexdigest()) == (header["file"], header["sealed"])
        return data[header["offset"] :]

    def files(self) -> dict[str, bytes]:
        """The shipped bytes of each log segment, keyed by name."""
        found: dict[str, bytes] = {}
        for name, data in self.pieces():
            found[name] = found.get(name, b"") + data
        return found

    def text(self) -> bytes:
        """All bytes of the log segments, in order."""
        return b"".join(data for _, data in self.pieces())

    def holds(self, index: int, end: int) -> bool:
        """Whether the replica holds every byte of log segment ``index`` before offset ``end``."""
        if index in self.sealed:
            return len(self.sealed[index][1]) >= end
        reached = [header["offset"] + header["length"] for header, _, _ in self.segments if header["index"] == index]
        return max(reached, default=0) >= end


def objects(store: ObjectStore) -> dict[str, bytes]:
    """All objects of a store, by key."""
    found = {}
    for info in list(store.list("")):
        with store.open(info.key) as stream:
            found[info.key] = stream.read()
    return found


def split_wal(body: bytes) -> tuple[dict[str, Any], bytes]:
    """A WAL segment's header and bytes."""
    size = int.from_bytes(body[4:8], "little")
    return json.loads(body[8 : 8 + size]), _decompress(body[8 + size :])


def _decompress(rest: bytes) -> bytes:
    """The content of LZ4 frames, joined."""
    pieces = []
    while rest:
        decompressor = lz4.frame.LZ4FrameDecompressor()
        pieces.append(decompressor.decompress(rest))
        assert decompressor.eof
        rest = decompressor.unused_data or b""
    return b"".join(pieces)


def split_sealed(body: bytes) -> tuple[dict[str, Any], bytes]:
    """A sealed segment's footer and bytes."""
    size = int.from_bytes(body[-12:-8], "little")
    assert body[-4:] == b"seal"
    assert crc32c(body[-size:-8]) == int.from_bytes(body[-8:-4], "little")
    footer = json.loads(_decompress(body[8 - size : -16]))
    assert int.from_bytes(body[-16:-14], "little") == (2 if "codec" in footer else 1)
    if "codec" not in footer:
        return footer, _decompress(body[:-size])
    assert footer["codec"] == "zstd"
    return footer, zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True).readall()


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
    for key in sorted(held):  # sorted keys: sealed segments, then snapshots, then WAL segments
        if match := _SEALED.fullmatch(key):
            generations[match[1]].stored[int(match[2], 16)] = _check_sealed(held[key], match[1], int(match[2], 16))
        elif match := _SNAPSHOT.fullmatch(key):
            _add_snapshot(generations[match[1]], held[key], match[1], int(match[2], 16))
        elif match := _WAL.fullmatch(key):
            _add(generations[match[1]], key, held[key], int(match[2], 16), int(match[3], 16))
        else:
            assert _CLAIM.fullmatch(key) or _CHECKPOINT.fullmatch(key), key
    for generation in generations.values():
        _resolve(generations, generation)
    for name, generation in generations.items():
        if generation.terminal is not None:
            successor = generation.terminal["successor"]
            assert successor in held
            assert json.loads(held[successor])["generation"] > name
    return generations


def _check_sealed(body: bytes, name: str, index: int) -> tuple[str, bytes]:
    footer, data = split_sealed(body)
    assert (footer["generation"], footer["index"], footer["length"]) == (name, index, len(data))
    assert footer["crc"] == crc32c(data)
    assert footer["digest"] == hashlib.sha256(data).hexdigest()
    return footer["file"], data


def _add_snapshot(generation: Generation, body: bytes, name: str, index: int) -> None:
    document = json.loads(_decompress(body))
    claim = generation.claim
    assert (document["generation"], document["next"], document["log"]) == (name, index, claim["log"])
    assert index >= claim["first"]
    if index == claim["first"]:
        generation.snapshot = body
    generation.snapshots[index] = document


def _resolve(generations: dict[str, Generation], generation: Generation) -> None:
    """Find the sealed segments that the newest snapshot names, in any generation."""
    if not generation.snapshots or not generation.snapshots[generation.covered]["segments"]:
        return
    document = generation.snapshots[generation.covered]
    columns = document["segments"]
    names = chain.from_iterable([name] * times for name, times in columns["generation"])
    digests, lengths = b64decode(columns["digest"]), _column(columns["length"])
    for number, (name, index) in enumerate(zip(names, accumulate(_column(columns["sealed_index"])), strict=True)):
        file, data = generations[name].stored[index]
        assert hashlib.sha256(data).digest() == digests[32 * number : 32 * number + 32]
        assert lengths[number] == len(data)
        generation.sealed[document["first"] + number] = file, data
    assert len(generation.sealed) == document["next"] - document["first"]


def _column(written: list[Any]) -> list[int]:
    """The numbers of a column. Many numbers are stored as the first one, and the others packed as i32."""
    if len(written) == 2 and isinstance(written[1], str):
        packed = b64decode(written[1])
        return [written[0], *struct.unpack(f"<{len(packed) // 4}i", packed)]
    return written


def _add(generation: Generation, key: str, body: bytes, index: int, offset: int) -> None:
    header, data = split_wal(body)
    assert generation.terminal is None, f"{key} comes after a terminal"
    assert (header["index"], header["offset"], header["length"]) == (index, offset, len(data))
    assert header["generation"] == generation.claim["generation"]
    before = generation.segments[-1] if generation.segments else None
    last = before[0] if before else None
    same = last is not None and not last.get("final")
    is_first = (index, offset) == (generation.claim["first"], 0)
    if last is None and not is_first:  # earlier ones were pruned: this one is covered, or is (next, 0)
        if generation.snapshots:  # without one, retention left only this of an ended generation
            assert index <= generation.covered, f"{key} comes after a hole"
            assert index < generation.covered or offset == 0, f"{key} comes after a hole"
        chained = generation.snapshots.get(index, {}).get("chain") if offset == 0 else None
    elif last is None:
        chained = hashlib.sha256(generation.snapshot).hexdigest() if generation.snapshot else ""
    else:
        follows = (last["index"] + 1, 0) if last.get("final") else (last["index"], last["offset"] + last["length"])
        assert (index, offset) == follows, f"{key} does not lie in the next slot"
        chained = before[2] if before else ""
        assert header["shipped"] >= last["shipped"]
    if chained is None:
        chained = header["previous"]
    if "successor" in header:
        assert not data
        # A late owner may write the first snapshot after the generation was closed.
        assert header["previous"] == chained or (is_first and header["previous"] == "")
        generation.terminal = header
        return
    assert header["previous"] == chained, f"{key} breaks the chain"
    assert header["owner"] == generation.claim["owner"], f"{key} was written by another owner"
    assert header["crc"] == crc32c(data)
    if last is not None or offset == 0:
        assert header["crc_total"] == crc32c(data, last["crc_total"] if same and last else 0)
    if same and last is not None:
        assert header["file"] == last["file"]
    assert data or header.get("final")
    generation.segments.append((header, data, hashlib.sha256(body).hexdigest()))
