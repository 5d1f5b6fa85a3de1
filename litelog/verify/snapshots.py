"""The snapshots of all generations. They are read first, as they name sealed segments of any generation."""

from __future__ import annotations

from dataclasses import field, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import CorruptObjectError, NotFoundError, StoreError, UnknownVersionError
from litelog.formats import safe_segment_order
from litelog.objects import snapshot as snapshots
from litelog.objects.layout import snapshot_key
from litelog.reading.fetch import READ_ATTEMPTS, read_verified
from litelog.stores.object_store import read_bounded
from litelog.verify.findings import AnomalyKind, anomaly_of
from litelog.verify.inventory import ListedObjects, snapshots_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation, Position
    from litelog.objects.snapshot import Snapshot
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.stores.object_store import ObjectStore
    from litelog.verify.findings import Findings, Formats


RELISTINGS = 3
"""How often a generation's snapshots are listed in a row. A listed snapshot may be removed before it is read, when a
newer one exists. Snapshots are minutes apart, so the second listing finds a snapshot that stays."""


@dataclass(frozen=True, slots=True)
class SnapshotSummary:
    """The facts that are kept of a snapshot: all except its entries."""

    key: str
    next: int
    chain: str | None
    digest: str
    """SHA-256 of the object."""
    predecessor_end: Position | None


@dataclass(slots=True)
class KnownSnapshots:
    """The facts about a generation from its snapshots."""

    facts: dict[int, SnapshotSummary] = field(default_factory=dict)
    """The readable snapshots by ``next``, ascending."""
    listed: set[int] = field(default_factory=set)
    """The indexes of all existing snapshots, including damaged ones."""
    newest: Snapshot | None = None
    """The newest readable snapshot."""
    claim: Claim | None = None
    vanished: list[str] = field(default_factory=list)
    """The keys of snapshots that were listed, and were gone when they were read."""
    any_left: bool = True
    """Whether the last listing showed any snapshot."""

    @property
    def covered(self) -> int | None:
        """The index before which WAL segments may have been deleted: that of the newest snapshot."""
        return max(self.listed, default=None)

    def entry(self, index: int) -> SnapshotEntry | None:
        """The newest snapshot's entry for a log segment."""
        return None if self.newest is None else self.newest.entry(index)


@dataclass(slots=True)
class Named:
    """A sealed segment that snapshots name."""

    entry: SnapshotEntry
    by: str
    """The key of the newest snapshot of its generation that names it."""
    seen: bool = False
    """Whether the sealed segment exists."""


class SnapshotReader:
    """Reads snapshots, and keeps the sealed segments that they name."""

    def __init__(self, store: ObjectStore, findings: Findings, formats: Formats) -> None:
        self._store = store
        self._findings = findings
        self._formats = formats
        self.named: dict[str, Named] = {}
        """By the sealed segment's key. Grows with the log segments, as a snapshot does."""
        self.unread = False
        """Whether a snapshot could not be read, so that the sealed segments that it names are unknown."""

    def read_all(self, held: ListedObjects, claim: Claim | None) -> KnownSnapshots:
        """Read and judge a generation's snapshots, newest first."""
        base = KnownSnapshots(claim=claim, any_left=bool(held.snapshots))
        created: list[tuple[int, str]] = []
        for index, size in sorted(held.snapshots, reverse=True):
            snapshot = self._take(held.name, index, size, base)
            if snapshot is not None:
                created.append((snapshot.created, snapshot.key))
        base.facts = dict(sorted(base.facts.items()))
        for (later, key), (earlier, before) in pairwise(created):
            if later < earlier:
                self._findings.anomalies.add(AnomalyKind.ORDER, key, f"was created before {before}")
        if base.vanished and base.covered is None:
            self.refresh(base, held.name)
        return base

    def refresh(self, base: KnownSnapshots, name: Generation) -> None:
        """List a generation's snapshots again, and read and judge the new ones: a newer snapshot explains missing
        objects. Raises StoreError if they cannot be listed."""
        for _ in range(RELISTINGS):
            listed = dict(snapshots_of(self._store, name))
            base.any_left = bool(listed)
            gone = len(base.vanished)
            for index in sorted(set(listed) - base.listed, reverse=True):
                self._take(name, index, listed[index], base)
            if len(base.vanished) == gone:
                return

    def names_now(self, generations: Iterable[Generation]) -> set[str]:
        """The keys of all sealed segments that the snapshots name which exist now: retention may have removed some in
        the meantime. Reads all snapshots again. Raises StoreError."""
        return {
            key
            for name in generations
            for index, _ in snapshots_of(self._store, name)
            for key in self._names_of(name, index)
        }

    def _names_of(self, name: Generation, index: int) -> set[str]:
        key = snapshot_key(name, index)
        try:
            return {entry.key for entry in self._decoded(key).segments}
        except (NotFoundError, CorruptObjectError, UnknownVersionError):
            return set()

    def _decoded(self, key: str) -> Snapshot:
        """Read a snapshot. Raises NotFoundError, CorruptObjectError and StoreError."""
        return read_verified(partial(read_bounded, self._store, key), partial(snapshots.decode, key))

    def _take(self, name: Generation, index: int, size: int, base: KnownSnapshots) -> Snapshot | None:
        """Read and judge one snapshot; None if it cannot be read."""
        snapshot = self._read(name, index, size, base)
        if snapshot is None:
            return None
        if base.newest is None or snapshot.next > base.newest.next:
            base.newest = snapshot
            self._check_entries(snapshot)
        self._check(snapshot, base.claim)
        self._name(snapshot)
        return snapshot

    def _read(self, name: Generation, index: int, size: int, base: KnownSnapshots) -> Snapshot | None:
        try:
            return self._read_listed(name, index, size, base)
        except StoreError as error:
            self._findings.fail(error)
            self.unread = True
            base.listed.add(index)
            return None

    def _read_listed(self, name: Generation, index: int, size: int, base: KnownSnapshots) -> Snapshot | None:
        key = snapshot_key(name, index)
        findings = self._findings
        snapshot: Snapshot | None = None
        body = b""
        try:
            for number in range(READ_ATTEMPTS):
                try:
                    body = read_bounded(self._store, key)
                    snapshot = snapshots.decode(key, body)
                    break
                except (CorruptObjectError, UnknownVersionError) as error:
                    if number == READ_ATTEMPTS - 1:
                        findings.anomalies.take(anomaly_of(key, error))
        except NotFoundError:
            base.vanished.append(key)
            return None
        base.listed.add(index)
        if body and len(body) != size:
            findings.anomalies.add(AnomalyKind.LENGTH, key, f"holds {len(body)} bytes, and {size} in the listing")
        if snapshot is not None:
            base.facts[index] = _facts(snapshot, body)
        findings.counts.snapshots += 1
        findings.count_judged(size)
        return snapshot

    def _check(self, snapshot: Snapshot, claim: Claim | None) -> None:
        if claim is None:
            return
        anomalies = self._findings.anomalies
        for what in ("log", "format", "owner"):
            mine, theirs = getattr(snapshot, what), getattr(claim, what)
            if mine != theirs:
                anomalies.add(AnomalyKind.FOREIGN, snapshot.key, f"{what} is {mine}, and {theirs} in {claim.key}")
        if snapshot.next < claim.first:
            anomalies.add(
                AnomalyKind.ORDER, snapshot.key, f"lies before index {claim.first}, at which its generation begins"
            )

    def _name(self, snapshot: Snapshot) -> None:
        """Keep what a snapshot names. Two snapshots that name one sealed segment must describe it equally."""
        for entry in snapshot.segments:
            named = self.named.setdefault(entry.key, Named(entry, snapshot.key))
            if named.entry is not entry and replace(entry, index=named.entry.index) != named.entry:
                what = f"describes {entry.key} differently from {named.by}"
                self._findings.anomalies.add(AnomalyKind.CONFLICT, snapshot.key, what)

    def _check_entries(self, snapshot: Snapshot) -> None:
        """Check that the log segments of a snapshot have valid names, each sorting after the one before."""
        log_format = self._formats(snapshot.format)
        if log_format is None:
            return
        before = None
        for entry in snapshot.segments:
            order = safe_segment_order(log_format, entry.file)
            if order is None:
                what = f"file {entry.file!r} is not the name of a log segment of format {log_format.name}"
                self._findings.anomalies.add(AnomalyKind.FOREIGN, snapshot.key, what)
            elif before is not None and order <= before:
                what = f"file {entry.file!r} does not sort after the one before it"
                self._findings.anomalies.add(AnomalyKind.ORDER, snapshot.key, what)
            before = order if order is not None else before


def _facts(snapshot: Snapshot, body: bytes) -> SnapshotSummary:
    return SnapshotSummary(
        snapshot.key, snapshot.next, snapshot.chain, snapshots.digest(body), snapshot.predecessor_end
    )
