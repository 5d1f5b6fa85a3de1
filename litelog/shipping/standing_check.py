"""The standing check of a replica: a daily listing, compared with what its owner knows to be there, and a share of the
contents. It costs little, so it is on unless it is switched off. ``litelog verify`` reads everything, and checks more.

Specified in litelog/shipping/README.md#objects-that-a-store-loses.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from litelog.codec.checksum import crc32c
from litelog.dataclass import dataclass
from litelog.errors import CorruptionError, NotFoundError, UnknownVersionError
from litelog.objects import claim as claims
from litelog.objects import layout
from litelog.objects import snapshot as snapshots
from litelog.reading.contents import find_snapshot
from litelog.reading.fetch import read_verified
from litelog.shipping.claiming import require_claim
from litelog.shipping.state import IndexTally
from litelog.stores.object_store import ordered, read_bounded
from litelog.verify.findings import Anomalies, AnomalyKind, Formats, Scope, VerifyStoppedError, anomaly_of
from litelog.verify.scrub import Found

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from litelog.formats import LogFormat
    from litelog.objects.claim import Claim
    from litelog.shipping.state import Running
    from litelog.stores.object_store import ObjectInfo, ObjectStore
    from litelog.stores.replica_client import ReplicaClient
    from litelog.verify.findings import Anomaly

ROUNDS = 30
"""A check reads one object in thirty, different ones each time, so daily checks read all within a month."""

MAX_LOST = 1000
"""The most lost objects that a check reports."""

INTERVAL_SECONDS = 86400.0
"""Seconds from the end of one check to the start of the next."""

FIRST_SECONDS = 600.0
"""The least time from the start of the daemon to the first check, in seconds: a starting daemon has other work."""


@dataclass(frozen=True, slots=True)
class Expected:
    """An owner's knowledge of its replica."""

    state: Running
    snapshot: int | None
    """The index of the newest snapshot; None if it is not known."""
    sealed: Mapping[str, int]
    """Keys and sizes of the sealed segments that the next snapshot will name."""

    @property
    def claim(self) -> Claim:
        return self.state.claim


def check_replica(
    store: ObjectStore,
    client: ReplicaClient,
    expected: Callable[[], Expected | None],
    number: int,
    *,
    formats: Callable[[str], LogFormat],
    should_continue: Callable[[], bool],
    damaged: Collection[str] = (),
) -> Found | None:
    """List the replica, and read the share of its contents that check ``number`` covers.

    It also reads the objects in ``damaged``, so that each check reports damage that an earlier one found.

    None if the owner has no generation yet. VerifyStoppedError once ``should_continue()`` is false. Memory grows with
    the log segments that the newest snapshot names, not with other objects. Raises the errors of its requests, and
    ReplicaUnavailableError if the owner's claim is not there.
    """
    known = expected()
    if known is None:
        return None
    require_claim(client, known.claim)
    check = _Check(store, client, known, number, formats, damaged)
    for info in ordered(store.list("")):
        if not should_continue():
            raise VerifyStoppedError
        check.take(info)
    return check.finish(expected)


def find_needed(client: ReplicaClient, known: Expected, keys: Sequence[str]) -> Sequence[str]:
    """Return those of ``keys`` that a restore to the end of a generation reads: its newest snapshot, sealed segments
    that this or the next one names, and the WAL segments since. A listing and a GET."""
    name = known.claim.generation
    named = {**known.sealed, **_named(client, known.claim)}
    first = known.snapshot or 0
    since = (layout.wal_prefix(name, first), layout.generation_prefix(name) + "wal0")
    newest = layout.snapshot_key(name, first)
    needed = (key for key in keys if key in named or key == newest or since[0] <= key < since[1])
    return tuple(dict.fromkeys(needed))


class _Check:
    def __init__(
        self,
        store: ObjectStore,
        client: ReplicaClient,
        known: Expected,
        number: int,
        formats: Callable[[str], LogFormat],
        damaged: Collection[str],
    ) -> None:
        self._store = store
        self._damaged = damaged
        self._client = client
        self._known = known
        self._turn = number % ROUNDS
        from litelog.verify.sealed import SealedVerifier  # noqa: PLC0415 - a daemon starts without these two
        from litelog.verify.wal import WalReader  # noqa: PLC0415

        known_formats = Formats(formats, set())
        self._sealed = SealedVerifier(store, Scope(), known_formats)
        self._wal = WalReader(store, Scope(), known_formats)
        self._name = known.claim.generation
        self._named = {**known.sealed, **_named(client, known.claim)}
        self._tallies: dict[int, IndexTally] = {}
        self._snapshots: set[int] = set()
        self._anomalies = Anomalies()
        self._objects = self._bytes = self._failed = 0

    def take(self, info: ObjectInfo) -> None:
        """Compare one object's name and size, and read it if this check covers it."""
        self._objects += 1
        self._bytes += info.size
        size = self._named.pop(info.key, info.size)
        if info.size != size:
            what = f"has {info.size} bytes where {size} were put"
            self._anomalies.add(AnomalyKind.LENGTH, info.key, what)
        self._count(info)
        if info.key in self._damaged or crc32c(info.key.encode(errors="surrogateescape")) % ROUNDS == self._turn:
            self._check_content(info)

    def _count(self, info: ObjectInfo) -> None:
        position, snapshot = layout.parse_wal(info.key), layout.parse_snapshot(info.key)
        if snapshot is not None and snapshot[0] == self._name:
            self._snapshots.add(snapshot[1])
        last = self._known.state.last
        if position is None or position.generation != self._name or last is None or position > last:
            return
        tally = self._tallies.get(position.index, IndexTally(position.index, 0, 0))
        self._tallies[position.index] = tally.add(position.offset, info.size)

    def _check_content(self, info: ObjectInfo) -> None:
        sealed, position = layout.parse_sealed(info.key), layout.parse_wal(info.key)
        problems: Sequence[Anomaly] = ()
        failed = False
        if sealed is not None:
            read = self._sealed.read((*sealed, info.size))
            problems, failed = read.problems, read.failure is not None
        elif position is not None:
            found = self._wal.read((position, info.size))
            problems, failed = found.problems, found.failure is not None
        elif layout.parse_snapshot(info.key) is not None:
            problems = self._check_whole(info, partial(snapshots.decode, info.key))
        elif layout.parse_claim(info.key) is not None:
            problems = self._check_whole(info, partial(claims.decode, info.key))
        else:
            return
        self._failed += failed
        for problem in problems:
            self._anomalies.take(problem)

    def _check_whole(self, info: ObjectInfo, check: Callable[[bytes], object]) -> Sequence[Anomaly]:
        try:
            read_verified(partial(read_bounded, self._store, info.key, size=info.size), check)
        except NotFoundError:
            return ()  # retention deleted it
        except (CorruptionError, UnknownVersionError) as error:
            return (anomaly_of(info.key, error),)
        return ()

    def finish(self, expected: Callable[[], Expected | None]) -> Found:
        """Return the findings. Reports an object as missing only if retention did not delete it meanwhile."""
        after = expected()
        if self._named:
            now = {**(after.sealed if after is not None else {}), **_named(self._client, self._known.claim)}
            for key in list(self._named)[:MAX_LOST]:
                if key in now and not self._is_there(key):
                    self._anomalies.add(
                        AnomalyKind.MISSING, key, "is missing, and is named by the newest snapshot or the next one"
                    )
        if after is not None and after.claim.generation == self._known.claim.generation:
            self._compare_wal(after.snapshot)
        kept = tuple(self._anomalies.kept)
        return Found(self._objects, self._bytes, self._failed, kept, self._anomalies.harmful)

    def _compare_wal(self, snapshot: int | None) -> None:
        """Compare the WAL segments with the owner's tallies. ``snapshot``: the index of the newest snapshot now: WAL
        segments that it covers may have been deleted."""
        known = self._known.snapshot
        if known is not None and not any(index >= known for index in self._snapshots):
            key = layout.snapshot_key(self._name, known)
            if not self._is_there(key):
                self._anomalies.add(AnomalyKind.MISSING, key, "is missing, and is the newest snapshot")
        for tally in self._known.state.tallies:
            found = self._tallies.get(tally.index, IndexTally(tally.index, 0, 0))
            if tally.index >= (snapshot or 0) and found != tally:
                what = f"holds {found.count} WAL segments, or others, where {tally.count} were put"
                self._anomalies.add(AnomalyKind.MISSING, layout.wal_prefix(self._name, tally.index), what)

    def _is_there(self, key: str) -> bool:
        try:
            self._store.open(key).close()
        except NotFoundError:
            return False
        return True


def _named(client: ReplicaClient, claim: Claim) -> dict[str, int]:
    """Return the keys and sizes of the sealed segments that a generation's newest snapshot names."""
    found = find_snapshot(client, claim)
    return {} if found is None else {entry.key: entry.size for entry in found.segments}
