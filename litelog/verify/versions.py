"""Looks for what somebody deleted or overwrote in a store that keeps versions of objects.

litelog never overwrites an object, and what it deletes is known: see litelog/verify/README.md#deleted-and-overwritten.
"""

from __future__ import annotations

from collections import deque
from dataclasses import field
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import StoreError
from litelog.objects import layout
from litelog.objects.wal_segment import LASTING_SEGMENTS
from litelog.units import format_iso
from litelog.verify.findings import Anomaly, AnomalyKind, VersionsChecked

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from litelog.objects.position import Generation
    from litelog.stores.capabilities import KeyVersions, VersionListing
    from litelog.verify.findings import Findings

MAX_UNCOVERED = 10_000
"""How many hidden WAL segments of a generation are reported one by one."""

NO_VERSIONS = "the bucket keeps no versions, so a deletion of the newest object or an overwrite cannot be seen"


@dataclass(slots=True)
class _Seen:
    """The facts of a generation in the listing."""

    newest: KeyVersions | None = None
    """Its newest snapshot, hidden or not."""
    covered: int = 0
    """The index before which that snapshot describes all log segments."""
    last: deque[KeyVersions] = field(default_factory=lambda: deque(maxlen=LASTING_SEGMENTS))
    """Its last WAL segments, hidden or not: litelog never deletes them."""
    uncovered: list[KeyVersions] = field(default_factory=list)
    """Hidden WAL segments that no snapshot covers."""


def check_versions(listing: VersionListing | None, isolated: Collection[Generation], findings: Findings) -> None:
    """Report deleted and overwritten objects.

    Args:
        listing: The store's versions; None if the store has no such thing.
        isolated: The generations of owners that nothing fences: people remove their folders.
        findings: Receives the anomalies, and whether versions were checked.
    """
    if listing is None:
        return
    missing = {anomaly.key for anomaly in findings.anomalies.kept if anomaly.kind is AnomalyKind.MISSING}
    try:
        found = _find(listing, isolated, missing, findings)
        # An owner may have deleted an object while it was listed, and the snapshot that covers it is newer.
        if found.tampered:
            again = _find(listing, isolated, missing, findings).tampered
            found.tampered = {key: anomaly for key, anomaly in found.tampered.items() if key in again}
    except StoreError as error:
        if error.retryable:
            findings.fail(error)
        findings.versions = VersionsChecked(error=str(error))
        return
    if not found.is_versioned:
        findings.versions = VersionsChecked(error=NO_VERSIONS)
        return
    for anomaly, _ in found.tampered.values():
        findings.anomalies.take(anomaly)
    since = [changed for anomaly, changed in found.tampered.values() if anomaly.harmful]
    findings.versions = VersionsChecked(is_done=True, tampered_since=min(since, default=None))


@dataclass(slots=True)
class _Found:
    is_versioned: bool = False
    tampered: dict[str, tuple[Anomaly, int]] = field(default_factory=dict)
    """(anomaly, time of the first change in microseconds since 1970), by key."""


def _find(
    listing: VersionListing, isolated: Collection[Generation], missing: Collection[str], findings: Findings
) -> _Found:
    """List all versions once, and judge them. ``missing``: keys that other objects name. Raises StoreError, and
    VerifyStoppedError if the verification is to stop."""
    found, rivals = _Found(), set(isolated)
    generations: dict[Generation, _Seen] = {}
    for each in listing.list(""):
        findings.raise_if_stopped()
        found.is_versioned |= each.is_versioned
        if (claim := layout.parse_claim(each.key)) is not None and claim.isolated is not None:
            rivals.add(claim.isolated)
        if each.is_hidden and claim is not None:
            _take_deleted(found, each, "claims are never deleted")
        elif each.is_hidden and each.key in missing and layout.parse_sealed(each.key) is not None:
            _take_deleted(found, each, "a snapshot names it")
        elif _is_overwritten(each):
            _take_overwritten(found, each)
        _sort_in(generations, each)
    started = max((name for name, seen in generations.items() if seen.newest is not None), default=None)
    for name, seen in sorted(generations.items()):
        is_latest = started is None or name >= started
        for each, why in _deleted_of(seen, is_latest=is_latest, is_rival=name in rivals):
            _take_deleted(found, each, why)
    return found


def _sort_in(generations: dict[Generation, _Seen], each: KeyVersions) -> None:
    """Note a snapshot or a WAL segment. The snapshots of a generation are listed before its WAL segments."""
    if (snapshot := layout.parse_snapshot(each.key)) is not None:
        seen = generations.setdefault(snapshot[0], _Seen())
        seen.newest, seen.covered = each, snapshot[1]
    elif (position := layout.parse_wal(each.key)) is not None:
        seen = generations.setdefault(position.generation, _Seen())
        seen.last.append(each)
        if each.is_hidden and position.index >= seen.covered and len(seen.uncovered) < MAX_UNCOVERED:
            seen.uncovered.append(each)


def _deleted_of(seen: _Seen, *, is_latest: bool, is_rival: bool) -> Iterator[tuple[KeyVersions, str]]:
    """Yield what somebody deleted in a generation, and why it was not litelog. Retention may have deleted what is in a
    generation before the latest one with a snapshot."""
    if is_latest and seen.newest is not None and seen.newest.is_hidden:
        yield seen.newest, "the newest snapshot is never deleted"
    if is_latest:
        for each in seen.uncovered:
            yield each, "no snapshot covers it"
    if is_latest or not is_rival:
        for each in seen.last:
            if each.is_hidden:
                yield each, "the last WAL segments of a generation are never deleted"


def _is_overwritten(each: KeyVersions) -> bool:
    """Whether a key of the layout was put twice. Consumers' positions and WAL segments may be put, deleted and put
    again: a consumer that was deleted begins again, and a terminal may come late to a slot that was emptied."""
    if each.contents < 2:
        return False
    if layout.parse_consumer(each.key) is not None or layout.parse_wal(each.key) is not None:
        return each.contents > each.markers + (not each.is_hidden)
    parsers = (layout.parse_claim, layout.parse_sealed, layout.parse_snapshot)
    return any(parse(each.key) is not None for parse in parsers)


def _take_deleted(found: _Found, each: KeyVersions, why: str) -> None:
    left = "its bytes are still there" if each.contents else "its bytes are gone"
    what = f"was deleted at {format_iso(each.changed)}, and not by litelog: {why}; {left}"
    found.tampered.setdefault(each.key, (Anomaly(AnomalyKind.DELETED, each.key, what), each.changed))


def _take_overwritten(found: _Found, each: KeyVersions) -> None:
    same = ", with the same content" if each.is_same else ""
    when = f"{format_iso(each.changed)}{same}"
    what = f"was put again at {when}, and litelog puts a key once: it has {each.contents} versions"
    anomaly = Anomaly(AnomalyKind.OVERWRITTEN, each.key, what, harmful=not each.is_same)
    found.tampered.setdefault(each.key, (anomaly, each.changed))
