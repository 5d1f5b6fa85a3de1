"""Replaces whole log segments by a replica's bytes, if their commits stand at other places or in each other's files.

A log segment whose bytes were moved agrees with no replica at the same offsets. If a replica holds each good commit
that is left in it, all of it is replaced. Good commits that the replica does not hold make it stay as it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import CorruptionError, StoreError, UnknownVersionError
from litelog.repair.displaced import HeldCommits
from litelog.repair.plan import FilePlan, FileSpan, PlacePlan, RepairMethod
from litelog.verify.local_report import LocalAnomalyKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from litelog.repair.displaced import Displaced
    from litelog.repair.histories import HeldFile, History, HistorySearch
    from litelog.repair.local_files import LocalFiles


@dataclass(frozen=True, slots=True)
class _Match:
    """The place where a history holds the commits of a local log segment."""

    name: str
    """The log segment in the history."""
    found: Displaced


def replace_displaced(
    files: LocalFiles, histories: HistorySearch, places: list[PlacePlan], plans: dict[str, FilePlan]
) -> list[PlacePlan]:
    """Plan to replace those log segments with places that stay damaged whose commits a history holds elsewhere.

    Args:
        files: The log's files. Their commits can be found at any place.
        histories: What replicas hold.
        places: The planned places.
        plans: The planned files, keyed by name. The replaced files are added.

    Returns:
        The places, with the replaced log segments; none for an anomaly that another log segment's repair settles.
    """
    for history in histories:
        left = {place.file for place in places if place.method is RepairMethod.LEAVE and place.file in files.names}
        if not left:
            break
        whole = _WholeFiles(files, history, places, sorted(left, key=files.names.index))
        try:
            whole.compare()
        except StoreError as error:
            histories.skip(history.url, error)
            continue
        except (CorruptionError, UnknownVersionError):
            continue
        places = whole.planned(plans)
    return places


class _WholeFiles:
    """The bytes that one history holds of the log segments that would stay damaged."""

    def __init__(self, files: LocalFiles, history: History, places: list[PlacePlan], names: list[str]) -> None:
        """``names``: the log segments, in the order of the log."""
        self._files = files
        self._history = history
        self._places = places
        self._names = names
        self._held: dict[str, HeldFile] = {}
        self._matches: dict[str, _Match] = {}
        """Log segments whose good commits the history holds, all of them in one log segment."""
        self._settled: set[str] = set()
        """Log segments that the history holds as they are, and that do not follow the one before them."""
        self._reasons: dict[str, str] = {}

    def compare(self) -> None:
        """Compare all of them, and keep those that can be replaced. Raises SourceError, CorruptionError and
        StoreError."""
        held = ((name, self._history.held(name)) for name in self._names)
        self._held = {name: each for name, each in held if each is not None and self._is_whole(name, each)}
        commits = {
            name: HeldCommits(self._files.format, self._history, name, each.size) for name, each in self._held.items()
        }
        for name in self._held:
            self._compare_one(name, commits)
        self._keep_closed()

    def _compare_one(self, name: str, commits: dict[str, HeldCommits]) -> None:
        """Find where the history holds the commits of a log segment: under its name, or under another."""
        size = self._files.size(name)
        found = commits[name].compare(self._files, name, 0, size)
        if not found.commits or found.first is None or not found.is_readable:
            return
        if not found.missing:
            if found.moved or self._files.places(name):
                self._matches[name] = _Match(name, found)
            elif self._is_late(name, found.begin):
                self._settled.add(name)
            return  # else the history has the same anomaly
        for other, held in commits.items():
            if other != name and held.may_hold(found.first):
                swapped = held.compare(self._files, name, 0, size)
                if not swapped.missing:
                    self._matches[name] = _Match(other, swapped)
                    return
        self._reasons[name] = f"generation {self._history.generation} in {self._history.url}: {found}"

    def _is_late(self, name: str, begin: int) -> bool:
        """Whether the only anomaly of a log segment, whose commits begin at an offset, is that it does not follow the
        one before it."""
        return all(
            place.offset <= begin and place.kind in (LocalAnomalyKind.GAP, LocalAnomalyKind.ORDER)
            for place in self._places
            if place.file == name
        )

    def _is_whole(self, name: str, held: HeldFile) -> bool:
        """Whether the history holds all that may have been in a log segment."""
        if held.is_finished:
            return True
        places = self._files.places(name)
        ends = places[-1:] if places and places[-1].reaches_end else []
        torn = all(place.anomaly.kind is LocalAnomalyKind.TORN for place in ends)
        return self._history.is_latest and name == self._files.names[-1] and torn

    def _keep_closed(self) -> None:
        """Drop log segments whose commits belong in a log segment that is not replaced. If the history is an earlier
        generation, also drop log segments that do not end with a good commit of the log: the log may have been
        rewound."""
        while True:
            proven = {
                match.name
                for match in self._matches.values()
                if self._history.is_latest or match.found.end == self._held[match.name].size
            }
            dropped = {name for name, match in self._matches.items() if match.name not in self._matches}
            dropped |= {name for name in self._matches if name not in proven and not self._history.is_latest}
            dropped |= {name for name in self._settled if self._files.before(name) not in self._matches}
            if not dropped:
                return
            self._settled -= dropped
            self._matches = {name: match for name, match in self._matches.items() if name not in dropped}

    def planned(self, plans: dict[str, FilePlan]) -> list[PlacePlan]:
        """The places with these log segments, whose files are added to ``plans``."""
        for name in self._matches:
            plans[name] = FilePlan(name, (FileSpan(0, self._held[name].size, self._history),), exists=True)
        return list(self._changed())

    def _changed(self) -> Iterable[PlacePlan]:
        seen = set[str]()
        for place in self._places:
            match = self._matches.get(place.file)
            if match is None:
                if place.file not in self._settled:
                    yield self._with_reason(place)
            elif place.file not in seen:
                seen.add(place.file)
                yield self._replaced(place, match)

    def _replaced(self, place: PlacePlan, match: _Match) -> PlacePlan:
        note = str(match.found)
        if match.name != place.file:
            note = f"its {match.found.commits} commits belong in {match.name}, all of them in the replica"
        return replace(
            place,
            offset=0,
            end=self._held[place.file].size,
            method=RepairMethod.REPLACE,
            replica=self._history.url,
            generation=self._history.generation,
            reason=note,
        )

    def _with_reason(self, place: PlacePlan) -> PlacePlan:
        reason = self._reasons.get(place.file)
        if reason is None or place.method is not RepairMethod.LEAVE or reason in place.reason:
            return place
        return replace(place, reason=f"{place.reason}; {reason}")
