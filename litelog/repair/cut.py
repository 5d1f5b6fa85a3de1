"""Changes the plan of a repair so that the log is cut off at the first place that would stay damaged.

A person asks for it: good commits after that place are lost to the log, and kept in the backup.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from litelog.errors import SourceError
from litelog.repair.plan import FilePlan, FileSpan, PlacePlan, RepairMethod

if TYPE_CHECKING:
    from litelog.repair.local_files import LocalFiles
    from litelog.repair.plan import RepairPlan


def cut_at_damage(plan: RepairPlan, files: LocalFiles) -> RepairPlan:
    """The plan, with a cut at the first place that it leaves; ``plan`` itself if it leaves none.

    Raises SourceError if nothing good comes before that place.
    """
    order = files.format.segment_order

    def place(name: str, offset: int) -> tuple[tuple[object, ...], int]:
        return order(name) or (), offset

    left = [each for each in plan.places if each.method is RepairMethod.LEAVE]
    if not left:
        return plan
    first = min(left, key=lambda each: place(each.file, each.offset))
    stop = place(first.file, first.offset)
    removed = [name for name in files.names if place(name, 0) >= stop]
    if removed == files.names:
        raise SourceError(f"{files.folder}: no good commit comes before the damage at the beginning of {first.file}")
    places = [each for each in plan.places if place(each.file, each.offset) < stop]
    made = [each for each in plan.files if place(each.name, 0) < stop and each.name != first.file]
    if first.offset:
        made.append(_cut(plan, files, first.file, first.offset))
        places.append(replace(first, end=files.size(first.file), method=RepairMethod.CUT, reason=""))
    places += [PlacePlan(first.kind, name, 0, files.size(name), RepairMethod.REMOVE) for name in removed]
    made.sort(key=lambda each: place(each.name, 0))
    return replace(plan, places=tuple(places), files=tuple(made), removed=tuple(removed))


def _cut(plan: RepairPlan, files: LocalFiles, name: str, offset: int) -> FilePlan:
    """The log segment of the cut: what the plan makes of it, up to an offset."""
    whole = FilePlan(name, (FileSpan(0, files.size(name), None),), exists=True)
    planned = next((each for each in plan.files if each.name == name), whole)
    spans = (replace(span, stop=min(span.stop, offset)) for span in planned.spans if span.start < offset)
    return replace(planned, spans=tuple(spans))
