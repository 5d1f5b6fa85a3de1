"""Checks all fragments of a journal, and whether they cover it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from litelog.dataclass import dataclass
from litelog.errors import CorruptObjectError, StoreError
from litelog.fragments.content import FragmentTooLongError, FragmentTooShortError, check_content
from litelog.fragments.cover import find_cover, find_gaps, list_fragments

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from litelog.fragments.cover import Fragment
    from litelog.stores.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class FragmentFault:
    """An anomaly of a fragment."""

    kind: str
    """``short``, ``long``, ``damaged`` (content, or SHA-1), or ``unreadable``: a request failed."""
    key: str
    message: str


@dataclass(frozen=True, slots=True)
class JournalReport:
    """The findings of a verification."""

    fragments: int
    stored_bytes: int
    content_bytes: int
    first: int
    next: int
    """The highest offset at which a fragment ends."""
    faults: Sequence[FragmentFault]
    gaps: Sequence[tuple[int, int]]
    """The bytes that no fragment holds, as offsets [start, stop)."""

    @property
    def failed(self) -> bool:
        """Whether anything could not be judged."""
        return any(fault.kind == "unreadable" for fault in self.faults)

    @property
    def harmful(self) -> int:
        """How many faults and gaps there are, without what could not be judged."""
        return len(self.gaps) + sum(fault.kind != "unreadable" for fault in self.faults)

    def as_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return {
            "version": 1,
            "fragments": self.fragments,
            "stored_bytes": self.stored_bytes,
            "log_bytes": self.content_bytes,
            "first": self.first,
            "next": self.next,
            "anomalies": [{"kind": each.kind, "key": each.key, "message": each.message} for each in self.faults],
            "gaps": [{"first": first, "next": following} for first, following in self.gaps],
        }


def verify_journal(
    store: ObjectStore, parallelism: int = 4, progress: Callable[[int, int], object] | None = None
) -> JournalReport:
    """Read every fragment, and compare its length and its SHA-1 with its name.

    ``progress`` is called with the number of bytes of content that are checked, and with their total. Raises as
    ``list_fragments``.
    """
    fragments = list_fragments(store)
    total = sum(fragment.end - fragment.begin for fragment in fragments)
    faults, done = [], 0
    with ThreadPoolExecutor(parallelism) as pool:
        for fragment, fault in zip(fragments, pool.map(lambda each: _judge(store, each), fragments), strict=True):
            done += fragment.end - fragment.begin
            if progress is not None:
                progress(done, total)
            if fault is not None:
                faults.append(fault)
    return JournalReport(
        fragments=len(fragments),
        stored_bytes=sum(fragment.stored_bytes for fragment in fragments),
        content_bytes=total,
        first=fragments[0].begin,
        next=max(fragment.end for fragment in fragments),
        faults=faults,
        gaps=find_gaps(find_cover(fragments)),
    )


def _judge(store: ObjectStore, fragment: Fragment) -> FragmentFault | None:
    try:
        for _ in check_content(store, fragment):
            pass
    except FragmentTooShortError as error:
        return FragmentFault("short", fragment.key, str(error))
    except FragmentTooLongError as error:
        return FragmentFault("long", fragment.key, str(error))
    except CorruptObjectError as error:
        return FragmentFault("damaged", fragment.key, str(error))
    except StoreError as error:
        return FragmentFault("unreadable", fragment.key, str(error))
    return None
