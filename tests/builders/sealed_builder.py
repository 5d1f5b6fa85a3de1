"""Makes sealed segments with a few commits in each frame, so that small segments have many frames.

Every second one is compressed with zstd, so that all suites read mixed replicas.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from litelog.codec.checksum import crc32c
from litelog.codec.frame_codecs import Compression
from litelog.codec.lz4_frames import content_checksum
from litelog.formats import Expectation
from litelog.objects.frame_table import FrameTable, SealedFrame, ShipTimes
from litelog.objects.sealed_segment import SealedFooter, encode_footer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.formats import LogFormat
    from litelog.objects.claim import Claim


def make_sealed(
    claim: Claim,
    index: int,
    name: str,
    data: bytes,
    log_format: LogFormat,
    *,
    marks: Sequence[tuple[int, int]],
    previous: str = "",
    expect: int | None = None,
    frame_commits: int = 1,
    compression: Compression | None = None,
) -> tuple[SealedFooter, bytes]:
    """The footer and the bytes of the sealed segment that holds ``data``, with ``frame_commits`` commits in each frame.

    ``marks``: (offset, time shipped) of each WAL segment; ``expect``: the first commit's sequence. ``compression``:
    None for LZ4 with an even index, and zstd with an odd one.
    """
    compression = compression or (Compression.LZ4, Compression.ZSTD)[index % 2]
    view = memoryview(data)
    ends = [commit.end for commit in log_format.commits(name, view, 0, Expectation(expect))]
    cuts = [*ends[frame_commits - 1 :: frame_commits]]
    if len(data) and (not cuts or cuts[-1] != len(data)):
        cuts = [cut for cut in cuts if cut != ends[-1]] if ends and ends[-1] != len(data) else cuts
        cuts.append(len(data))
    frames, bodies, start, stored, follows = [], [], 0, 0, Expectation(expect)
    for end in cuts:
        piece = view[start:end]
        scan = log_format.scan(name, piece, start, follows)
        made = compression.compress(piece)
        body = bytes(made.body)
        first = follows.sequence or 0 if scan.first is None else scan.first
        sums = (made.crc, content_checksum(body), made.stored)
        frames.append(
            SealedFrame(stored, len(body), start, len(piece), first, scan.records, scan.lowest, scan.highest, *sums)
        )
        bodies.append(body)
        start, stored, follows = end, stored + len(body), scan.expectation
    footer = SealedFooter(
        log=claim.log,
        format=claim.format,
        generation=claim.generation,
        owner=claim.owner,
        index=index,
        file=name,
        length=len(data),
        first=frames[0].first if any(frame.records for frame in frames) else None,
        next=follows.sequence,
        records=sum(frame.records for frame in frames),
        lowest=min((frame.lowest for frame in frames if frame.lowest is not None), default=None),
        highest=max((frame.highest for frame in frames if frame.highest is not None), default=None),
        crc=crc32c(data),
        digest=hashlib.sha256(data).hexdigest(),
        previous=previous,
        marks=ShipTimes(tuple(offset for offset, _ in marks), tuple(time for _, time in marks)),
        frames=FrameTable.of(frames),
        codec=compression.codec,
    )
    return footer, b"".join((*bodies, encode_footer(footer)))
