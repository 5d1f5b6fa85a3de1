"""Plans the repair of a log: which history of a replica supplies the bytes of each damaged place, and why it may.

A history supplies bytes of a log segment only if it agrees with all good bytes that the log has there.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import CorruptionError, StoreError, UnknownVersionError
from litelog.repair.displaced import HeldCommits, can_find_displaced, count_commits
from litelog.repair.local_files import LocalFiles, has_bytes
from litelog.repair.plan import FilePlan, FileSpan, PlacePlan, RepairMethod, RepairPlan
from litelog.repair.whole_files import replace_displaced
from litelog.restore.choose_replica import describe
from litelog.units import format_count
from litelog.verify.local_report import LocalAnomalyKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from litelog.repair.histories import HeldFile, History, HistorySearch
    from litelog.repair.local_files import DamagedPlace
    from litelog.verify.local_report import LocalAnomaly, LocalReport

NO_REPLICA = "no replica was given that could hold it"


@dataclass(frozen=True, slots=True)
class _Supply:
    """The bytes of one log segment that one history can supply."""

    history: History
    held: HeldFile
    places: tuple[DamagedPlace, ...]
    """The places whose bytes it holds."""
    notes: dict[DamagedPlace, str]
    """A note for a person about a place."""


class RepairPlanner:
    """Plans the repair of one log. Changes nothing."""

    def __init__(self, files: LocalFiles, report: LocalReport, histories: HistorySearch) -> None:
        self._files = files
        self._report = report
        self._histories = histories
        self._plans: dict[str, FilePlan] = {}
        self._places: list[PlacePlan] = []
        self._finds_displaced = can_find_displaced(files.format)

    def plan(self) -> RepairPlan:
        """Plan all of it, in the order of the log. A replica that cannot be read is skipped.

        Raises SourceError if the log cannot be read.
        """
        done: set[str] = set()
        for anomaly in self._report.anomalies:
            if not anomaly.harmful:
                continue
            if has_bytes(anomaly):
                if anomaly.file not in done:
                    self._plan_file(anomaly.file)
                done.add(anomaly.file)
            elif anomaly.kind is LocalAnomalyKind.MISSING:
                self._plan_missing(anomaly, [anomaly.file])
            elif anomaly.kind is LocalAnomalyKind.GAP and anomaly.offset == 0:
                self._plan_gap(anomaly)
            else:
                self._leave(anomaly, "its commits are whole, and do not belong there: a person has to decide")
        if self._finds_displaced:
            self._places = replace_displaced(self._files, self._histories, self._places, self._plans)
        order = self._files.format.segment_order
        plans = sorted(self._plans.values(), key=lambda plan: order(plan.name) or ())
        return RepairPlan(self._report, tuple(self._places), tuple(plans), (), tuple(self._histories.skipped.items()))

    def _plan_file(self, name: str) -> None:
        """Plan the places of one log segment, each from the first history that can supply it."""
        chosen: dict[DamagedPlace, _Supply] = {}
        doubts: list[str] = []
        places = self._files.places(name)
        for history in self._histories:
            if len(chosen) == len(places) and not (places[-1].reaches_end and history.is_latest):
                break
            supply = self._try(history, name, doubts)
            for place in supply.places if supply is not None else ():
                known = chosen.get(place)
                longer = known is not None and place.reaches_end and supply.held.size > known.held.size  # type: ignore[union-attr]
                if known is None or longer:
                    chosen[place] = supply  # type: ignore[assignment]
        doubts += [describe(url, reason) for url, reason in self._histories.skipped.items()]
        size = self._files.size(name)
        spans, at = list[FileSpan](), 0
        for place in places:
            plan, made = self._decide(place, chosen.get(place), doubts)
            self._places.append(plan)
            if plan.method is RepairMethod.LEAVE:
                continue
            spans += [FileSpan(at, place.start, None), *made]
            at = size if place.reaches_end else place.stop
        if spans:
            spans.append(FileSpan(at, size, None))
            kept = tuple(span for span in spans if span.start < span.stop)
            self._plans[name] = FilePlan(name, kept, exists=True)

    def _decide(
        self, place: DamagedPlace, supply: _Supply | None, doubts: Sequence[str]
    ) -> tuple[PlacePlan, list[FileSpan]]:
        """Plan a place: what is done about it, and the bytes that are put there."""
        kind, name = place.anomaly.kind, place.anomaly.file
        if supply is not None:
            history, stop = supply.history, supply.held.size if place.reaches_end else place.stop
            replica, generation = history.url, history.generation
            note = supply.notes.get(place, "")
            plan = PlacePlan(kind, name, place.start, stop, RepairMethod.REPLACE, replica, generation, note)
            return plan, [FileSpan(place.start, stop, history)]
        doubts = [*doubts, *self._whole_commits(place)] if kind is LocalAnomalyKind.TORN else doubts
        if kind is LocalAnomalyKind.TORN and not doubts:
            return PlacePlan(kind, name, place.start, place.stop, RepairMethod.CUT), []
        reason = "; ".join(dict.fromkeys(doubts)) or NO_REPLICA
        return PlacePlan(kind, name, place.start, place.stop, RepairMethod.LEAVE, reason=reason), []

    def _whole_commits(self, place: DamagedPlace) -> Iterator[str]:
        """Yield why a torn tail may not be cut off, if good commits stand in it."""
        name = place.anomaly.file
        if self._finds_displaced:
            count = count_commits(self._files, name, place.start, place.stop)
            if count:
                yield f"{format_count(count, 'good commit')} after the damage, not where the log continues"

    def _try(self, history: History, name: str, doubts: list[str]) -> _Supply | None:
        """Find the bytes of a damaged log segment that a history can supply. Adds to ``doubts`` why a torn tail may not
        be cut."""
        try:
            held = history.held(name)
            if held is None:
                return None
            fit = tuple(place for place in self._files.places(name) if _covers(held, place))
            if not self._agrees(history, name, held, fit):
                if history.is_latest:
                    doubts.append(f"{_name(history)} does not agree with what is left of {name}")
                return None
            if not history.is_latest:
                fit = self._proven(history, name, held, fit, doubts)
            notes = self._displaced(history, name, held, fit, doubts)
            kept = tuple(place for place in fit if place in notes)
            return _Supply(history, held, kept, notes) if kept else None
        except StoreError as error:
            self._histories.skip(history.url, error)
        except (CorruptionError, UnknownVersionError) as error:
            doubts.append(f"{_name(history)} is damaged there: {error}")
        return None

    def _proven(
        self, history: History, name: str, held: HeldFile, fit: Sequence[DamagedPlace], doubts: list[str]
    ) -> tuple[DamagedPlace, ...]:
        """Those places that are followed by good bytes, which the history holds as well. The replica has left this
        history, so its bytes after the last good ones may never have been in this log again."""
        last = max((end for _, end in self._files.good(name, held.size)), default=0)
        if any(place.start >= last for place in fit):
            chosen = f"--generation {history.generation}"
            doubts.append(f"{_name(history)}, an earlier generation, holds bytes there: {chosen} takes them")
        return tuple(place for place in fit if place.stop <= last)

    def _displaced(
        self, history: History, name: str, held: HeldFile, fit: Sequence[DamagedPlace], doubts: list[str]
    ) -> dict[DamagedPlace, str]:
        """Those places in which no good commit stands that the history does not hold, and a note for each."""
        if not self._finds_displaced:
            return dict.fromkeys(fit, "")
        notes: dict[DamagedPlace, str] = {}
        commits = HeldCommits(self._files.format, history, name, held.size)
        for place in fit:
            found = commits.compare(self._files, name, place.start, place.stop)
            if found.missing:
                doubts.append(f"{_name(history)}: {found}")
            else:
                notes[place] = str(found)
        return notes

    def _agrees(self, history: History, name: str, held: HeldFile, fit: Sequence[DamagedPlace]) -> bool:
        """Whether a history holds all good bytes of a log segment up to its own end, at the same offsets."""
        good = self._files.good(name, held.size)
        if not good:
            return self._agrees_nearby(history, name)
        overlapping = [place for place in self._files.places(name) if place.start < held.size]
        if held.digest is not None and fit and overlapping == list(fit):
            return self._digest(history, name, held, fit) == held.digest
        with self._files.opened(name) as segment:
            return segment is not None and all(
                segment.read(run.start, len(run.data)) == run.data
                for start, stop in good
                for run in history.read(name, start, stop)
            )

    def _digest(self, history: History, name: str, held: HeldFile, fit: Iterable[DamagedPlace]) -> str:
        """SHA-256 of a log segment with these places from a history. Reads only them there."""
        sha, at = hashlib.sha256(), 0
        for place in fit:
            for data in self._files.pieces(name, at, place.start):
                sha.update(data)
            at = held.size if place.reaches_end else place.stop
            for run in history.read(name, place.start, at):
                sha.update(run.data)
        for data in self._files.pieces(name, at, held.size):
            sha.update(data)
        return sha.hexdigest()

    def _agrees_nearby(self, history: History, name: str) -> bool:
        """Whether a history agrees with a log segment next to ``name``, of which nothing is left to compare. The log's
        id decides if it holds none."""
        for neighbour in self._files.neighbours(name):
            held = history.held(neighbour)
            if held is not None and self._files.good(neighbour, held.size):
                fit = tuple(place for place in self._files.places(neighbour) if _covers(held, place))
                return self._agrees(history, neighbour, held, fit)
        return self._histories.knows_log

    def _plan_gap(self, anomaly: LocalAnomaly) -> None:
        """Plan for records that are missing before a log segment: the one before it may be cut, and others missing."""
        before = self._files.before(anomaly.file)
        if before is None:
            self._leave(anomaly, "it is unknown which log segment came before")
            return
        self._plan_missing(anomaly, None, before, anomaly.file)

    def _plan_missing(
        self, anomaly: LocalAnomaly, names: list[str] | None, before: str | None = None, after: str | None = None
    ) -> None:
        """Plan to create log segments: ``names``, or all between two others, and what the one before them lacks."""
        doubts: list[str] = []
        for history in self._histories:
            try:
                plans = list(self._missing(history, names, before, after))
            except StoreError as error:
                self._histories.skip(history.url, error)
                continue
            except (CorruptionError, UnknownVersionError) as error:
                doubts.append(f"{_name(history)} is damaged there: {error}")
                continue
            if plans:
                for plan in plans:
                    self._add_created(anomaly, history, plan)
                return
        doubts += [describe(url, reason) for url, reason in self._histories.skipped.items()]
        self._leave(anomaly, "; ".join(dict.fromkeys(doubts)) or NO_REPLICA)

    def _missing(
        self, history: History, names: list[str] | None, before: str | None, after: str | None
    ) -> Iterator[FilePlan]:
        """Yield the log segments that a history can add; none if it does not agree with those around them."""
        wanted = history.between(before, after) if names is None else names
        for name in wanted:
            held = history.held(name)
            if held is None or not self._agrees_nearby(history, name):
                return
            yield FilePlan(name, (FileSpan(0, held.size, history),), exists=False)
        if before is not None and not self._files.places(before):
            held, size = history.held(before), self._files.end_without_zeros(before)
            if held is not None and held.size > size and self._agrees(history, before, replace(held, size=size), ()):
                kept = (FileSpan(0, size, None),) if size else ()
                yield FilePlan(before, (*kept, FileSpan(size, held.size, history)), exists=True)

    def _add_created(self, anomaly: LocalAnomaly, history: History, plan: FilePlan) -> None:
        self._plans[plan.name] = plan
        made = plan.spans[-1]
        method = RepairMethod.REPLACE if plan.exists else RepairMethod.CREATE
        where = (plan.name, made.start, made.stop)
        self._places.append(PlacePlan(anomaly.kind, *where, method, history.url, history.generation))

    def _leave(self, anomaly: LocalAnomaly, reason: str) -> None:
        where = (anomaly.file, anomaly.offset, anomaly.end)
        self._places.append(PlacePlan(anomaly.kind, *where, RepairMethod.LEAVE, reason=reason))


def _covers(held: HeldFile, place: DamagedPlace) -> bool:
    """Whether a history holds the bytes of a place. Of a torn tail it may hold any part: nothing good is after it."""
    if place.anomaly.kind is LocalAnomalyKind.TORN or (place.reaches_end and held.is_finished):
        return held.size > place.start
    return held.size >= place.stop > place.start


def _name(history: History) -> str:
    return f"generation {history.generation} in {history.url}"
