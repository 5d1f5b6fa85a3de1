"""Reconstructs the header of a lost WAL segment from other replicas' bytes: the fields that a plan needs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from litelog.codec.checksum import combine, crc32c
from litelog.errors import CorruptionError
from litelog.formats import Expectation
from litelog.formats.capabilities import is_counted
from litelog.objects.wal_segment import WalHeader
from litelog.restore.repair.fallbacks import NoFallbackError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from litelog.formats import Commit, LogFormat, Scan
    from litelog.objects.claim import Claim
    from litelog.objects.frame_table import ShipTimes
    from litelog.objects.position import Position
    from litelog.objects.sealed_segment import SealedFooter
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.restore.object_lookup import Lookup
    from litelog.restore.repair.fallbacks import FallbackReplicas
    from litelog.stores.replica_client import WalSegmentInfo


UNKNOWN = ""
"""The digest in a ChainState after a lost object. The digest that the next object names is then trusted."""


def reconstruct_header(
    claim: Claim, position: Position, name: str, length: int, scan: Scan | None, *, crc: int = 0, final: bool = False
) -> WalHeader:
    """Make the header of a WAL segment at ``position``, without the fields that only its writer knows.

    ``length``, ``scan``, ``crc``: of the segment's bytes of the log.
    """
    header = WalHeader.of(claim, position.index, position.offset, scan)
    return replace(header, length=length, file=name, crc=crc, final=final)


class HeaderReconstruction:
    """A plan's look-up that also works for lost WAL segments, if another replica has their bytes."""

    def __init__(
        self,
        inner: Lookup,
        claim: Claim,
        wal: Sequence[WalSegmentInfo],
        log_format: LogFormat,
        fallbacks: FallbackReplicas,
    ) -> None:
        """``wal``: the generation's WAL segments. The caller may add more at any time."""
        self._inner = inner
        self._claim = claim
        self._wal = wal
        self._format = log_format
        self._fallbacks = fallbacks
        self._made: dict[Position, WalHeader] = {}

    def headers(self, positions: Sequence[Position]) -> list[WalHeader]:
        if not any(position in self._made for position in positions):
            try:
                return self._inner.headers(positions)
            except CorruptionError:
                pass
        return [self._header(position) for position in positions]

    def commits(self, header: WalHeader) -> list[Commit]:
        try:
            return self._inner.commits(header)
        except CorruptionError as error:
            commits: list[Commit] = []
            try:
                for start, data, expect in self._runs(header):
                    commits += self._format.commits(header.file, data, start, expect)
            except NoFallbackError:
                raise error from None
            return commits

    def entry(self, header: WalHeader) -> SnapshotEntry:
        return self._inner.entry(header)

    def commits_around(
        self, entry: SnapshotEntry, run_of: Callable[[SealedFooter], range]
    ) -> tuple[int, Iterable[Commit]]:
        return self._inner.commits_around(entry, run_of)

    def marks(self, entry: SnapshotEntry) -> ShipTimes:
        return self._inner.marks(entry)

    def _header(self, position: Position) -> WalHeader:
        if position in self._made:
            return self._made[position]
        try:
            return self._inner.headers([position])[0]
        except CorruptionError as error:
            header = self._make(position)
            if header is None:
                raise error from None
            self._made[position] = header
            return header

    def _make(self, position: Position) -> WalHeader | None:
        name = self._name(position.index)
        later = [info.position for info in self._wal if info.position > position]
        if name is None or not later:
            return None  # no object shows where the newest WAL segment ends
        final = later[0].index > position.index
        stop = self._fallbacks.finished_size(name) if final else later[0].offset
        if stop is None or stop < position.offset:
            return None
        header = reconstruct_header(self._claim, position, name, stop - position.offset, None, final=final)
        try:
            return self._describe(header)
        except NoFallbackError:
            return None

    def _describe(self, header: WalHeader) -> WalHeader:
        """The header, completed from its bytes."""
        for start, data, expect in self._runs(header):
            scan = self._format.scan(header.path, data, start, expect)
            header = replace(
                header,
                first=scan.first if header.first is None else header.first,
                next=scan.next,
                records=header.records + scan.records,
                lowest=_either(min, header.lowest, scan.lowest),
                highest=_either(max, header.highest, scan.highest),
                crc=combine(header.crc, crc32c(data), len(data)),
            )
        before = self._before(header.position)
        return replace(header, shipped=before.shipped if before is not None else 0)

    def _runs(self, header: WalHeader) -> Iterator[tuple[int, memoryview, Expectation]]:
        """Yield a lost object's bytes from other replicas in runs, each with the expectation for its first commit."""
        is_stated = self._format.self_numbered and not is_counted(self._format)
        expect = Expectation(None if is_stated else self._numbered_from(header.position))
        for chunk in self._fallbacks.chunks(header.file, header.offset, header.end):
            yield chunk.start, chunk.data, expect
            expect = self._format.scan(header.path, chunk.data, chunk.start, expect).expectation

    def _numbered_from(self, position: Position) -> int | None:
        before = self._before(position)
        return None if before is None else before.next

    def _before(self, position: Position) -> WalHeader | None:
        """The header of the object before, which is reconstructed as well if that object is lost."""
        earlier = [info.position for info in self._wal if info.position < position]
        known = len(earlier)
        while known and not self._is_known(earlier[known - 1]):
            known -= 1
        for lost in earlier[known:]:
            self._header(lost)
        return self._header(earlier[-1]) if earlier else None

    def _is_known(self, position: Position) -> bool:
        try:
            return position in self._made or bool(self._inner.headers([position]))
        except CorruptionError:
            return False

    def _name(self, index: int) -> str | None:
        """The name of the log segment at ``index``: from any of its headers, or from those of its neighbours."""
        first = self._wal[0].position.index
        last = self._wal[-1].position.index
        for distance in range(max(index - first, last - index) + 1):
            for neighbour in {index - distance, index + distance}:
                known = self._stated_name(neighbour)
                if known:
                    return known if neighbour == index else self._fallbacks.neighbour_name(known, index - neighbour)
        return None

    def _stated_name(self, index: int) -> str | None:
        for info in self._wal:
            if info.position.index == index:
                try:
                    return self._inner.headers([info.position])[0].file
                except CorruptionError:
                    continue
        return None


def _either(choose: Callable[[list[int]], int], one: int | None, two: int | None) -> int | None:
    known = [value for value in (one, two) if value is not None]
    return choose(known) if known else None
