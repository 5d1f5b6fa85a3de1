"""Puts other bytes where a sealed segment is damaged: those of its WAL segments, or of another replica."""

from __future__ import annotations

import hashlib
import os
from itertools import pairwise
from typing import TYPE_CHECKING

from litelog.codec.lz4_frames import xxh32
from litelog.errors import CorruptObjectError, StoreError, UnknownVersionError
from litelog.formats import Expectation
from litelog.restore.commit_writer import Part
from litelog.restore.repair.donors import NoDonorError
from litelog.restore.repair.repair import Mended

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from litelog.errors import LitelogError
    from litelog.formats import LogFormat
    from litelog.objects.sealed_segment import SealedFooter
    from litelog.restore.plan import SealedPiece
    from litelog.restore.repair.generation_bytes import Chunk
    from litelog.restore.repair.substitutes import Substitutes


class SealedMender:
    """Fills what sealed segments lost. Shared by threads."""

    def __init__(self, substitutes: Substitutes, log_format: LogFormat) -> None:
        self._substitutes = substitutes
        self._format = log_format

    def replace_group(
        self, footer: SealedFooter, piece: SealedPiece, group: Sequence[range], why: LitelogError
    ) -> tuple[bytearray, list[Mended]]:
        """The bytes of some frames, which their checksums allow, and where they are from; raises ``why``."""
        frames, mended = footer.frames, []
        start, last = frames.offsets[group[0].start], frames[group[-1].stop - 1]
        data = bytearray(last.end - start)
        for chunk in self._chunks(piece, start, last.end, why):
            data[chunk.start - start : chunk.end - start] = chunk.data
            mended.append(_mended(piece, chunk, why))
        for number in range(group[0].start, group[-1].stop):
            frame = frames[number]
            if xxh32(memoryview(data)[frame.offset - start : frame.end - start]) != frame.checksum:
                raise why
        return data, mended

    def replace_all(self, piece: SealedPiece, file: int, why: LitelogError) -> tuple[list[Part], list[Mended]]:
        """Write a piece from others who have its log segment whole, with the digest that is named; raises ``why``."""
        entry, digest = piece.entry, hashlib.sha256()
        parts, mended, expect = [], [], Expectation(entry.first)
        try:
            for chunk in self._chunks(piece, 0, entry.length, why):
                digest.update(chunk.data)
                for start, data in _cut(chunk, piece):
                    scan = self._format.scan(entry.path, data, start, expect)
                    expect = scan.expectation
                    if piece.start <= start < piece.stop:
                        parts.append(Part(entry.key, _write(file, data, start), scan, scan))
                mended.append(_mended(piece, chunk, why))
        except CorruptObjectError as error:
            raise why from error
        if digest.hexdigest() != entry.digest:
            raise why
        return parts, mended

    def _chunks(self, piece: SealedPiece, start: int, stop: int, why: LitelogError) -> Iterator[Chunk]:
        if isinstance(why, UnknownVersionError):
            raise why
        try:
            yield from self._substitutes.chunks(piece.entry, start, stop, proven=False)
        except (NoDonorError, StoreError) as error:
            raise why from error


def _cut(chunk: Chunk, piece: SealedPiece) -> Iterator[tuple[int, memoryview]]:
    """A chunk in parts, none of which reaches over an end of ``piece``: each one's offset and bytes."""
    bounds = sorted({chunk.start, chunk.end, *(at for at in (piece.start, piece.stop) if chunk.start < at < chunk.end)})
    for start, end in pairwise(bounds):
        yield start, chunk.data[start - chunk.start : end - chunk.start]


def _write(file: int, data: memoryview, offset: int) -> int:
    length = len(data)
    while data:
        written = os.pwrite(file, data, offset)
        data, offset = data[written:], offset + written
    return length


def _mended(piece: SealedPiece, chunk: Chunk, why: LitelogError) -> Mended:
    return Mended(piece.entry.key, str(why), piece.entry.file, chunk.start, chunk.end, chunk.replica, chunk.generation)
