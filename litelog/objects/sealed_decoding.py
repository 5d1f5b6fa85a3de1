"""Reads sealed segments: decompresses their frames, run by run, and checks every statement of the footer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from litelog.codec.checksum import crc32c
from litelog.codec.frame_codecs import DECODERS
from litelog.codec.lz4_frames import FrameError, content_checksum
from litelog.codec.page_buffer import make_page_buffer
from litelog.dataclass import dataclass
from litelog.errors import CorruptObjectError, NotEnoughMemoryError
from litelog.formats import Expectation, FinishedTail, Scan
from litelog.formats.capabilities import scan_whole
from litelog.native.calls import make_bytes
from litelog.objects.frame_table import frames_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

    from litelog.formats import LogFormat
    from litelog.objects.sealed_segment import SealedFooter


@dataclass(frozen=True, slots=True)
class DecodedRun:
    """Bytes [start, start + len(data)) of a log segment, as whole commits, and their scan."""

    data: memoryview
    scan: Scan

    @property
    def start(self) -> int:
        return self.scan.start


def decode_frame(
    key: str, footer: SealedFooter, number: int, body: Buffer, into: memoryview | None = None
) -> memoryview:
    """Decompress frame ``number`` from its bytes in the object, and check it against the footer.

    Checks the length, the CRC-32C of these bytes, the content checksum that they end with, and the CRC-32C of the
    content. A CorruptObjectError names ``key`` and what is wrong. ``decode_run`` checks the commits in the frame.
    ConfigError shows that the codec needs a package that is missing. ``into``: receives the content, and has its size;
    None: a new buffer.
    """
    return _placed(_decompress(key, footer, number, body, into, with_crc=True), into)


def _decompress(
    key: str, footer: SealedFooter, number: int, body: Buffer, into: memoryview | None, *, with_crc: bool
) -> memoryview:
    """As ``decode_frame``, with the CRC-32C of the content only if ``with_crc``. The content may lie elsewhere than in
    ``into``."""
    frame, view, read = footer.frames[number], memoryview(body).cast("B"), DECODERS[footer.codec].read
    try:
        found = read(view, frame.stored, frame.length, into, with_crc=with_crc) if len(view) == frame.size else None
    except MemoryError as error:
        raise NotEnoughMemoryError(key) from error
    if found and (found.checksum, found.crc) == (frame.checksum, frame.crc if with_crc else 0):
        return found.content
    data = _decompress_by_steps(key, footer, number, view, into)
    if with_crc:
        _check_content(key, footer, number, data)
    return data


def _decompress_by_steps(
    key: str, footer: SealedFooter, number: int, view: memoryview, into: memoryview | None
) -> memoryview:
    """As ``_decompress`` without the CRC-32C of the content, for a frame that one call did not read, or found to be
    damaged. Each step has its own error."""
    frame, decoder = footer.frames[number], DECODERS[footer.codec]
    what = f"frame {number} at {frame.start}"
    if len(view) != frame.size:
        raise CorruptObjectError(key, f"bytes of {what}", frame.size, len(view))
    if (crc := crc32c(view)) != frame.stored:
        raise CorruptObjectError(key, f"CRC-32C of the bytes of {what}", f"{frame.stored:#010x}", f"{crc:#010x}")
    try:
        found = decoder.find(view)
        if found.size != frame.length:
            raise CorruptObjectError(key, f"length of {what}", frame.length, found.size)
        if (checksum := content_checksum(view)) != frame.checksum:
            raise CorruptObjectError(key, f"content checksum of {what}", f"{frame.checksum:#010x}", f"{checksum:#010x}")
        data = decoder.decompress(view, found, into)
    except FrameError as error:
        raise CorruptObjectError(key, f"{what}: {error.reason}") from error
    except MemoryError as error:
        raise NotEnoughMemoryError(key) from error
    return data


def _check_content(key: str, footer: SealedFooter, number: int, data: memoryview) -> None:
    frame = footer.frames[number]
    if (crc := crc32c(data)) != frame.crc:
        what = f"CRC-32C of frame {number} at {frame.start}"
        raise CorruptObjectError(key, what, f"{frame.crc:#010x}", f"{crc:#010x}")


def _placed(data: memoryview, into: memoryview | None) -> memoryview:
    if into is not None and data.obj is not into.obj:
        into[:] = data
        return into
    return data


def decode_run(
    key: str, footer: SealedFooter, run: range, body: Buffer, log_format: LogFormat, into: memoryview | None = None
) -> DecodedRun:
    """Decode a run of frames (``FrameTable.runs``, ``run_of``) from their bytes in the object.

    Checks each frame, that the run consists of whole commits, that they match the footer, and that they continue the
    run before and are continued by the run after. The contents and timestamps of commits were checked when these very
    bytes were sealed; ``check_run`` checks them again. A CorruptObjectError names ``key``; a CorruptCommitError or
    SequenceGapError names the log segment. ``into``: as ``decode_frames``.
    """
    data, scan = _decode_scanned(key, footer, run, body, log_format, into)
    frame = footer.frames[run.start]
    if scan is None:
        scan = log_format.scan(footer.path, data, frame.offset, Expectation(frame.first), known=True)
    scan = replace(scan, lowest=frame.lowest, highest=frame.highest)
    return DecodedRun(data, check_scan(key, footer, run, data, scan, log_format))


def decode_checked(key: str, footer: SealedFooter, run: range, body: Buffer, log_format: LogFormat) -> memoryview:
    """The bytes of a run of frames, with all checks of ``decode_frames`` and of ``check_run``."""
    data, scan = _decode_scanned(key, footer, run, body, log_format, None)
    if scan is None:
        check_run(key, footer, run, data, log_format)
    else:
        check_scan(key, footer, run, data, scan, log_format)
    return data


def _decode_scanned(
    key: str, footer: SealedFooter, run: range, body: Buffer, log_format: LogFormat, into: memoryview | None
) -> tuple[memoryview, Scan | None]:
    """The bytes of a run of frames, as ``decode_frames``. If the checksums of its commits show the CRC-32C of its only
    frame, also its scan."""
    if len(run) > 1:
        return decode_frames(key, footer, run, body, into), None
    _require_size(key, footer, run, memoryview(body).cast("B"))
    frame, data = footer.frames[run.start], _decompress(key, footer, run.start, body, into, with_crc=False)
    scan = scan_whole(log_format, footer.path, data, frame.offset, Expectation(frame.first), frame.crc)
    if scan is None:
        _check_content(key, footer, run.start, data)
    return _placed(data, into), scan


def decode_runs(
    key: str, footer: SealedFooter, runs: Sequence[range], body: Buffer, log_format: LogFormat
) -> memoryview:
    """The bytes of runs of frames that lie back to back, each checked as ``decode_run`` does. They lie in memory as in
    the log segment's pages (``make_page_buffer``)."""
    view, whole = memoryview(body).cast("B"), frames_of(runs)
    content = footer.frames.content_range(whole)
    try:
        data = make_page_buffer(len(content), content.start)
    except MemoryError as error:
        raise NotEnoughMemoryError(key) from error
    for run in runs:
        part = footer.frames.content_range(run)
        room = data[part.start - content.start : part.stop - content.start]
        decode_run(key, footer, run, footer.frames.stored_part(view, whole, run), log_format, room)
    return data


def decode_frames(
    key: str, footer: SealedFooter, run: range, body: Buffer, into: memoryview | None = None
) -> memoryview:
    """The bytes of a run of frames, each checked as ``decode_frame`` does. ``into``: receives them, and has their size;
    None: a new buffer."""
    frames, view = footer.frames, memoryview(body).cast("B")
    first = frames.content_range(run).start
    _require_size(key, footer, run, view)
    if into is None and len(run) == 1:
        return decode_frame(key, footer, run.start, view)
    try:
        room = memoryview(make_bytes(len(frames.content_range(run)))) if into is None else into
    except MemoryError as error:
        raise NotEnoughMemoryError(key) from error
    for number in run:
        alone = range(number, number + 1)
        content = frames.content_range(alone)
        part = room[content.start - first : content.stop - first]
        decode_frame(key, footer, number, frames.stored_part(view, run, alone), part)
    return room


def _require_size(key: str, footer: SealedFooter, run: range, body: memoryview) -> None:
    size = len(footer.frames.stored_range(run))
    if len(body) != size:
        raise CorruptObjectError(key, f"bytes of frames {run.start} to {run.stop - 1}", size, len(body))


def check_run(key: str, footer: SealedFooter, run: range, data: memoryview, log_format: LogFormat) -> Scan:
    """Scan a run's uncompressed bytes, and check the scan against the footer. Raises as ``decode_run``.

    The scan's ``end`` is the end of the run, even if it ends with bytes that are not a commit, which some formats ship
    at the end of a log segment.
    """
    frame = footer.frames[run.start]
    scan = log_format.scan(footer.path, data, frame.offset, Expectation(frame.first))
    return check_scan(key, footer, run, data, scan, log_format)


def check_scan(key: str, footer: SealedFooter, run: range, data: memoryview, scan: Scan, log_format: LogFormat) -> Scan:
    """Check a scan as ``check_run`` does."""
    frames = footer.frames
    frame, last = frames[run.start], run.stop == len(frames)
    follows = footer.next if last else frames.firsts[run.stop]
    facts: list[tuple[str, int | None, int | None]] = [("records", frame.records, scan.records)]
    if scan.commits:
        facts += [("first sequence", frame.first, scan.first), ("sequence after", follows, scan.next)]
        facts += [("lowest timestamp", frame.lowest, scan.lowest), ("highest timestamp", frame.highest, scan.highest)]
    end = frame.offset + len(data)
    if not (last and log_format.finished_tail is FinishedTail.SHIP):
        facts.append(("end of the last whole commit", end, scan.end))
    for what, expected, actual in facts:
        if expected != actual:
            raise CorruptObjectError(key, f"{what} of frame {run.start} at {frame.start}", expected, actual)
    return scan if scan.end == end else replace(scan, end=end)
