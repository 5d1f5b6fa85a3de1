"""Log segments that were finished while the daemon was away: sealed at once, and an empty ``final`` stands for each."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from litelog.objects import wal_segment
from litelog.objects.wal_segment import WalHeader
from litelog.shipping.wal_encoder import Prepared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.log.source_position import Place
    from litelog.objects.claim import Claim
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.shipping.backlog import Contacted, FirstContact
    from litelog.shipping.finished_segments import FinishedFiles
    from litelog.system.clock import Clock


class Absence:
    """What happened before a daemon went on in its generation. Used by one thread at a time.

    What was begun as WAL segments goes on as WAL segments, to its ``final``: sealing begins at the index behind it.
    """

    def __init__(self, contact: FirstContact | None, claim: Claim, clock: Clock) -> None:
        """``contact``: None where nothing is to go up sealed at once."""
        self._contact = contact
        self._claim = claim
        self._clock = clock
        self._last = ""
        """The newest log segment that was finished when the daemon came back."""
        self._sealed: dict[int, Contacted] = {}
        self._free: int | None = None
        """The index that sealing begins at."""

    @property
    def open(self) -> bool:
        """Whether it is yet to be found out what was finished."""
        return self._contact is not None

    def next(self, place: Place, previous: str, shipped: int) -> Prepared | None:
        """The ``final`` of the log segment that begins at ``place``, if that is sealed; None if it goes as WAL.

        ``previous``, ``shipped``: as for ``Preparation.next``. Raises what ``FirstContact.seal`` raises.
        """
        if self._contact is not None and not self._last:
            self._last = next(reversed(self._contact.files.find_behind(place)), "")
            self._contact = self._contact if self._last else None
        if place.offset:
            return None
        if self._contact is not None:
            if self._free != place.index and self._contact.is_begun(self._claim, place):
                return None  # by a run that was killed before its state told
            self._free = place.index
            find_files = partial(_find_upto, self._contact.files, place, self._last)
            contact = self._contact.seal(self._claim, place, find_files, shipped=shipped, may_be_begun=True)
            self._contact = None
            self._sealed = {one.entry.index: one for one in contact.sealed}
        sealed = self._sealed.get(place.index)
        if sealed is None or place.file not in ("", sealed.entry.file):
            return None
        header = self._make_final(sealed.entry, place, previous, max(self._clock.now(), shipped))
        body = wal_segment.assemble(header, [])
        start = replace(place, file=sealed.entry.file)
        return Prepared(start, sealed.after, header, body, wal_segment.digest(body), more=True, sealed=sealed.entry)

    def _make_final(self, entry: SnapshotEntry, place: Place, previous: str, shipped: int) -> WalHeader:
        return WalHeader(
            log=self._claim.log,
            format=self._claim.format,
            generation=self._claim.generation,
            owner=self._claim.owner,
            index=place.index,
            offset=0,
            length=0,
            file=entry.file,
            first=None,
            next=entry.next if entry.next is not None else place.sequence,
            records=0,
            lowest=None,
            highest=None,
            crc=0,
            crc_total=0,
            previous=previous,
            shipped=shipped,
            final=True,
            sealed=entry.digest,
        )


def _find_upto(files: FinishedFiles, place: Place, last: str) -> Sequence[str]:
    names = files.find_behind(place)
    return names[: names.index(last) + 1] if last in names else []
