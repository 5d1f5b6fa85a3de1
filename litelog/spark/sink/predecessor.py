"""The log before a write: the generation that the write continues or replaces, and where it ends."""

from __future__ import annotations

from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import CorruptionError, CorruptObjectError, ExistsError, NothingToRestoreError
from litelog.formats import Expectation
from litelog.formats.litelog import LitelogFormat
from litelog.objects.claim import Writer
from litelog.objects.frame_table import ShipTimes
from litelog.objects.sealed_encoding import FinishedSegment, Sealing
from litelog.objects.snapshot_entries import make_entry
from litelog.reading.contents import list_pieces, read_snapshot
from litelog.reading.generations import find_tip, tip_of
from litelog.reading.latest import find_latest_contents
from litelog.reading.sealed_reader import open_sealed
from litelog.reading.search import read_segment
from litelog.shipping.sealer import WalBytes, read_sealed_footer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from litelog.codec.frame_codecs import Compression
    from litelog.objects.claim import Claim
    from litelog.objects.position import ClaimName, Generation, Position
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalSegment
    from litelog.reading.contents import GenerationContents
    from litelog.reading.generations import GenerationEnd
    from litelog.stores.replica_client import ReplicaClient
    from litelog.system.clock import Clock

KEPT_BYTES = 64 << 20
"""Stored bytes of WAL segments that are kept in memory, so that each is read once. More are read again."""


@dataclass(frozen=True, slots=True)
class Predecessor:
    """The generation before a write. Small and picklable: each task gets it."""

    claim: Claim
    tip: GenerationEnd
    snapshot: int | None = None
    """The index of the snapshot that names its log segments; None without one."""
    sealed: tuple[SnapshotEntry, ...] = ()
    """The log segments after that snapshot, which the write has sealed."""

    def read_entries(self, client: ReplicaClient) -> list[SnapshotEntry]:
        """An entry for each of its log segments. One GET. Raises CorruptionError and StoreError."""
        named = () if self.snapshot is None else read_snapshot(client, self.claim, self.snapshot)[0].segments
        entries = [*named, *self.sealed]
        if entries and entries[0].index + len(entries) - 1 != entries[-1].index:
            raise CorruptionError(f"{client.url}: generation {self.claim.generation} lacks a log segment")
        return entries


class LogBefore:
    """Looks at the log before a write. Reads each object once, as long as memory allows."""

    def __init__(self, client: ReplicaClient, contents: GenerationContents) -> None:
        self._client = client
        self._contents = contents
        self._kept: dict[Position, WalSegment] = {}
        self._room = KEPT_BYTES
        self.claim = contents.base.claim
        self.tip = tip_of(client, contents, self._read)

    @classmethod
    def find(cls, client: ReplicaClient, names: Sequence[ClaimName], read: dict[ClaimName, Claim]) -> LogBefore | None:
        """Find the latest generation; None if the replica holds nothing of a log. ``names``, ``read``: as
        ``find_latest_contents`` takes them."""
        try:
            claim, contents = find_latest_contents(client, names=names, read=read)
        except NothingToRestoreError:
            return None
        return cls(client, contents or list_pieces(client, claim))

    @property
    def is_open_batch(self) -> bool:
        """Whether a batch wrote the generation, and no generation has followed: it holds its first snapshot alone."""
        tip = self.tip
        return self.claim.writer is Writer.BATCH and tip.started and tip.last is None and tip.terminal is None

    def end(self, tips: Mapping[Generation, GenerationEnd]) -> None:
        """Take note of where the generations below a new claim ended. It looks again if more has followed."""
        tip = tips.get(self.claim.generation, self.tip)
        if tip.terminal is None:  # a newer generation that began had ended it
            tip = find_tip(self._client, self.claim)
        if tip.digest != self.tip.digest or tip.last != self.tip.last:
            self._contents = list_pieces(self._client, self.claim)
        self.tip = tip

    def find_end(self) -> tuple[int, int]:
        """(the next sequence, the newest epoch of commits). Raises CorruptionError and StoreError."""
        contents = self._whole()
        for info in reversed(contents.wal):
            segment = self._read(info.position)
            header = segment.header
            if header.length:
                data = segment.data()
                scan = LitelogFormat().scan(header.path, data, header.offset, Expectation(header.first))
                return header.next or 0, scan.epoch
            if header.sealed is not None:
                footer = read_sealed_footer(self._client, self.claim.generation, header.index)
                return header.next or 0, epoch_of_entry(self._client, make_entry(*footer))
        entry = next((entry for entry in reversed(contents.base.entries) if entry.records), None)
        return (0, 0) if entry is None or entry.next is None else (entry.next, epoch_of_entry(self._client, entry))

    def seal(self, staging: Claim, clock: Clock, compression: Compression) -> tuple[SnapshotEntry, ...]:
        """Seal the log segments that are in WAL segments, into the generation of ``staging``."""
        contents, entries = self._whole(), []
        follows = contents.base.entries[-1].next if contents.base.entries else None
        positions = [info.position for info in contents.wal]
        for index, found in groupby(positions, key=lambda position: position.index):
            entry = self._seal(staging, index, list(found), follows, clock, compression)
            if entry is not None:
                entries.append(entry)
                follows = entry.next
        return tuple(entries)

    def predecessor(self, sealed: tuple[SnapshotEntry, ...] = ()) -> Predecessor:
        """The part of it that tasks and the commit of the write need."""
        snapshot = self._contents.base.snapshot
        return Predecessor(self.claim, self.tip, None if snapshot is None else snapshot.next, sealed)

    def _whole(self) -> GenerationContents:
        if self._contents.gap is not None:
            raise self._contents.gap
        return self._contents

    def _read(self, position: Position) -> WalSegment:
        segment = self._kept.get(position)
        if segment is None:
            segment = read_segment(self._client, position)
            size = len(segment.body)
            if size <= self._room:
                self._room -= size
                self._kept[position] = segment
        return segment

    def _seal(
        self,
        staging: Claim,
        index: int,
        positions: Sequence[Position],
        follows: int | None,
        clock: Clock,
        compression: Compression,
    ) -> SnapshotEntry | None:
        """The entry of a log segment that was shipped as WAL segments; None if there is only the terminal."""
        headers = [self._read(position).header for position in positions]
        shipped = [header for header in headers if header.successor is None]
        if not shipped:
            return None
        last = shipped[-1]
        if last.sealed is not None:
            footer, size = read_sealed_footer(self._client, self.claim.generation, index)
            if footer.digest != last.sealed:
                raise CorruptObjectError(footer.key, "digest", last.sealed, footer.digest)
            return make_entry(footer, size)
        grown = [header for header in shipped if header.length]
        segment = FinishedSegment(
            claim=staging,
            index=index,
            file=last.file,
            length=last.end,
            crc=last.crc_total,
            shipped=clock.now(),
            marks=ShipTimes(tuple(header.end for header in grown), tuple(header.shipped for header in grown)),
            expect=Expectation(follows),
        )
        sealing = Sealing(segment, WalBytes(positions, self._read).read, LitelogFormat(), compression=compression)
        with suppress(ExistsError):
            self._client.write_sealed_segment(staging.generation, index, sealing)
        return make_entry(sealing.footer, sealing.size)


def epoch_of_entry(client: ReplicaClient, entry: SnapshotEntry) -> int:
    """The epoch of the last commit in a sealed segment."""
    sealed = open_sealed(client, entry)
    frames = sealed.footer.frames
    return sealed.read_run(frames.run_of(len(frames) - 1), LitelogFormat()).scan.epoch
