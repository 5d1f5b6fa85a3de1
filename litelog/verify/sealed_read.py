"""One sealed segment: its footer, then its frames, read run by run in bounded memory, and judged by itself."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from litelog.codec.checksum import combine
from litelog.errors import CorruptionError, CorruptObjectError, NotFoundError, StoreError
from litelog.formats import Expectation
from litelog.objects.layout import sealed_key
from litelog.objects.sealed_decoding import check_run, decode_frames
from litelog.objects.sealed_segment import read_footer
from litelog.objects.snapshot_entries import SnapshotEntry, make_entry
from litelog.reading.fetch import READS, read_checked
from litelog.stores.object_store import ByteRange
from litelog.verify.anomaly import Anomaly, anomaly_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import BinaryIO

    from litelog.formats import LogFormat
    from litelog.objects.position import Generation
    from litelog.objects.sealed_segment import SealedFooter
    from litelog.stores.object_store import ObjectStore
    from litelog.verify.scope import Scope


MAX_PROBLEMS = 100
"""How many runs of frames are named in one sealed segment."""


@dataclass(frozen=True, slots=True)
class SealedRead:
    """What was found at one key."""

    generation: Generation
    index: int
    size: int
    """Of the object, as it was listed."""
    entry: SnapshotEntry | None = None
    """What a snapshot says of it, made from its footer; None where that cannot be read."""
    identity: tuple[str, str, str] = ("", "", "")
    """Log, format and owner that its footer names."""
    previous: str = ""
    """The chain digest that it continues from."""
    problems: tuple[Anomaly, ...] = ()
    gone: bool = False
    failure: StoreError | None = None
    content: int = 0
    """Bytes of the log that were read and checked."""

    @property
    def key(self) -> str:
        return sealed_key(self.generation, self.index)


class SealedReader:
    """Reads sealed segments, each on some thread."""

    def __init__(
        self,
        store: ObjectStore,
        scope: Scope,
        formats: Callable[[str], LogFormat | None],
        known: Mapping[tuple[Generation, int, int], SealedRead] | None = None,
    ) -> None:
        """``formats`` gives None for a format that is not known here: then commits are not judged. ``known``: what was
        read before, by generation, index and bytes."""
        self._known = known or {}
        self._store = store
        self._scope = scope
        self._formats = formats

    def read(self, listed: tuple[Generation, int, int]) -> SealedRead:
        """Read and check the sealed segment of a generation and index, of so many bytes. Raises nothing that a store
        may raise."""
        if listed in self._known:
            return self._known[listed]
        try:
            return self._read(*listed)
        except NotFoundError:
            return SealedRead(*listed, gone=True)
        except StoreError as error:
            return SealedRead(*listed, failure=error)

    def footer(self, generation: Generation, index: int) -> SealedFooter:
        """The footer of a sealed segment whose size is not known. StoreError, CorruptObjectError."""
        key = sealed_key(generation, index)
        size = next((info.size for info in self._store.list(key) if info.key == key), None)
        if size is None:
            raise NotFoundError(key)
        return self._checked_footer(key, size)

    def follows(self, read: SealedRead, sequence: int) -> Anomaly | None:
        """What its format says of a sealed segment whose first record should have ``sequence``, and has another one."""
        try:
            footer = self._checked_footer(read.key, read.size)
            log_format = self._formats(footer.format)
            if log_format is not None:
                run = footer.frames.run_of(0)
                stop = footer.frames[run.stop - 1].stop
                data = read_checked(
                    lambda: self._read_range(read.key, 0, stop), partial(decode_frames, read.key, footer, run)
                )
                log_format.scan(footer.path, data, 0, Expectation(sequence))
        except CorruptionError as error:
            return anomaly_of(read.key, error)
        except StoreError:
            return None  # it was read before
        return None

    def _read(self, generation: Generation, index: int, size: int) -> SealedRead:
        key = sealed_key(generation, index)
        try:
            footer = self._checked_footer(key, size)
        except CorruptObjectError as error:
            return SealedRead(generation, index, size, problems=(anomaly_of(key, error),))
        problems: list[Anomaly] = []
        content = 0
        for length, problem in self._judge(key, footer):
            content += length
            if problem is not None and len(problems) < MAX_PROBLEMS:
                problems.append(problem)
        identity = (footer.log, footer.format, footer.owner)
        entry = make_entry(footer, size)
        return SealedRead(generation, index, size, entry, identity, footer.previous, tuple(problems), content=content)

    def _judge(self, key: str, footer: SealedFooter) -> Iterator[tuple[int, Anomaly | None]]:
        """Check what is to be read, run by run: (bytes of the log that hold, what is wrong)."""
        crc = 0
        for frame_crc, length in zip(footer.frames.crcs, footer.frames.lengths, strict=True):
            crc = combine(crc, frame_crc, length)
        if crc != footer.crc:
            yield 0, _other(key, "CRC-32C of the log segment", f"{footer.crc:#010x}", f"{crc:#010x}")
        if not self._scope.is_all:
            for run in footer.frames.runs():
                if self._scope.takes(key, run.start):
                    data, problem = self._read_run(key, footer, run)
                    yield len(data), problem
            return
        sha = hashlib.sha256()
        whole = True
        for data, problem in self._read_runs(key, footer):
            sha.update(data)
            whole &= problem is None
            yield len(data), problem
        if whole and (digest := sha.hexdigest()) != footer.digest:
            yield 0, _other(key, "SHA-256 of the log segment", footer.digest, digest)

    def _read_runs(self, key: str, footer: SealedFooter) -> Iterator[tuple[memoryview, Anomaly | None]]:
        """All runs, from one stream; what fails is read once more by itself."""
        if not footer.data_bytes:
            return
        with self._store.open(key, ByteRange(0, footer.data_bytes)) as stream:
            for run in footer.frames.runs():
                length = footer.frames[run.stop - 1].stop - footer.frames.starts[run.start]
                body = _read_all(key, stream, length)
                try:
                    yield self._decode(key, footer, run, body), None
                except CorruptionError:
                    yield self._read_run(key, footer, run)

    def _read_run(self, key: str, footer: SealedFooter, run: range) -> tuple[memoryview, Anomaly | None]:
        """One run, read up to READS times: bytes may change on their way."""
        problem: Anomaly | None = None
        for _ in range(READS):
            body = self._read_range(key, footer.frames.starts[run.start], footer.frames[run.stop - 1].stop)
            try:
                return self._decode(key, footer, run, body), None
            except CorruptionError as error:
                problem = anomaly_of(key, error)
        return memoryview(b""), problem

    def _decode(self, key: str, footer: SealedFooter, run: range, body: bytes) -> memoryview:
        log_format = self._formats(footer.format)
        data = decode_frames(key, footer, run, body)
        if log_format is not None:
            check_run(key, footer, run, data, log_format)
        return data

    def _checked_footer(self, key: str, size: int) -> SealedFooter:
        def read(start: int, length: int) -> bytes:
            return self._read_range(key, start, start + length)

        return read_checked(lambda: None, lambda _: read_footer(key, read, size))

    def _read_range(self, key: str, start: int, stop: int) -> bytes:
        with self._store.open(key, ByteRange(start, stop - start)) as stream:
            return _read_all(key, stream, stop - start)


def _read_all(key: str, stream: BinaryIO, length: int) -> bytes:
    """``length`` bytes, or fewer where the object ends before."""
    try:
        return stream.read(length)
    except OSError as error:
        raise StoreError("read", key, str(error)) from error


def _other(key: str, what: str, expected: str, actual: str) -> Anomaly:
    return anomaly_of(key, CorruptObjectError(key, what, expected, actual))
