"""Checks the requests of owners: each must be allowed by the requests before it (P6)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from litelog.objects import layout
from litelog.shipping.cleanup import DELETE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from litelog.objects.claim import Claim
    from tests.simulation.scheduler import Scheduler

PUT_OF_WAL = re.compile(r"put .*/wal/")
OF_GENERATION = re.compile(r"delete .*/(wal|segments|snapshots)/")
SLACK_SECONDS = 1.0


@dataclass(slots=True)
class _ProcessRequests:
    """The requests that one process of a daemon has sent, and what the answers proved."""

    proved: float | None = None
    """When it last knew that it had put a WAL segment."""
    sent: dict[object, float] = field(default_factory=dict)
    """By task, the time of its last request, except for the put of a first snapshot."""


class RequestRules:
    """Checks the requests of all daemons to one store."""

    def __init__(self, scheduler: Scheduler, fail: Callable[[str], None]) -> None:
        self._scheduler = scheduler
        self._fail = fail
        self._processes: dict[object, _ProcessRequests] = {}
        self._unchecked_snapshots: dict[str, str] = {}
        """First snapshots in transit that their process should not have put, and why."""

    def notice(self, who: str, moment: str, request: str, claims: Iterable[tuple[Claim, float]]) -> None:
        """A daemon's request has reached a moment (``plan.When``). ``claims``: all claims, each with the time of its
        put."""
        task = self._scheduler.current
        if task is None:
            return
        process = self._processes.setdefault(task.process, _ProcessRequests())
        if moment == "before":
            if OF_GENERATION.match(request):
                self._judge_deletion(who, process, request)
            self._judge_snapshot(who, process, request, claims)
        elif moment == "answered" and PUT_OF_WAL.match(request):
            process.proved = self._scheduler.now

    def arrived(self, key: str) -> None:
        """The store has taken an object."""
        if key in self._unchecked_snapshots:
            self._fail(self._unchecked_snapshots[key])

    def _judge_deletion(self, who: str, process: _ProcessRequests, request: str) -> None:
        """An owner deletes only if a put has proved within the last minute that the generation is its own."""
        if process.proved is None or self._scheduler.now - process.proved > DELETE_SECONDS + SLACK_SECONDS:
            since = "since it began" if process.proved is None else f"for {self._scheduler.now - process.proved:.0f} s"
            self._fail(f"P6: {who} sends '{request}', and no put has proved {since} that the generation is its own")

    def _judge_snapshot(
        self, who: str, process: _ProcessRequests, request: str, claims: Iterable[tuple[Claim, float]]
    ) -> None:
        """An owner must look for a newer claim right before it puts its first snapshot."""
        key = request.removeprefix("put ")
        parsed = layout.parse_snapshot(key) if key != request else None
        known = dict(claims)
        claim = next((each for each in known if parsed == (each.generation, each.first)), None)
        task = self._scheduler.current
        if claim is None:
            process.sent[task] = self._scheduler.now
            return
        newer = [at for each, at in known.items() if each.epoch > claim.epoch and each.owner != claim.owner]
        looked = process.sent.get(task, 0.0)
        if newer and min(newer) < looked:
            self._unchecked_snapshots[key] = (
                f"P6: {who} puts {key}; a newer claim was put at {min(newer):.1f} s, and its last request before was "
                f"sent at {looked:.1f} s"
            )
