"""Plans that guard one rule each: the shortest that provoke what the rule prevents, by steps of the protocol.

They depend on no generator: a plan that has found something stays. ``test_simulation`` runs all of them on the library
as it is, and ``removed_rules`` each on a copy without its rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.plan import Plan, Step, When

if TYPE_CHECKING:
    from collections.abc import Sequence

USUAL: dict[str, Any] = {
    "sync_interval": 1.0,
    "poll_interval": 2.0,
    "watched": True,
    "segment_bytes": 4000,
    "snapshot_segments": 2,
    "snapshot_interval": 30.0,
    "snapshot_policy": "keep",
    "truncate": None,
    "retention": None,
    "scrub_interval": 0.0,
    "fencing": "required",
    "write_pause": 1.0,
    "store": "objects",
    "creation": "refuses",
    "fsync": "always",
    "scheme": "memory",
    "rest": (5.0,),
}

LAST_SECONDS = 60.0

CLAIM, SNAPSHOT, WAL, SEALED = "put epochs/", "put .*/snapshots/", "put .*/wal/", "put .*/segments/"


def _plan(steps: Sequence[Step], seed: int = 0, end: float | None = None, **settings: Any) -> Plan:
    last = max(step.at for step in steps) + LAST_SECONDS if end is None else end
    return Plan(seed, {**USUAL, **settings}, tuple(steps), tuple(range(len(steps))), last)


def _take_over(at: float, who: str) -> Step:
    return Step(at, "take_over", {"who": who})


def _pause(at: float, who: str, seconds: float, when: When | None = None) -> Step:
    return Step(at, "pause", {"who": who, "calls": 0, "seconds": seconds}, when)


def _kill(at: float, who: str, restart: float, when: When | None = None) -> Step:
    return Step(at, "kill", {"who": who, "calls": 0, "restart": restart}, when)


def _fail(at: float, who: str, request: str, kind: str, count: int = 1, retry_after: float | None = None) -> Step:
    arguments = {"who": who, "request": request, "kind": kind, "count": count, "retry_after": retry_after}
    return Step(at, "fail_requests", arguments)


def _lose(at: float, request: str, which: int = -1, when: When | None = None) -> Step:
    return Step(at, "lose_object", {"request": request, "which": which}, when)


_LATE_SNAPSHOT = _plan(
    [
        _take_over(40, "B"),
        _pause(40, "B", 60, When("B", SNAPSHOT)),
        _take_over(50, "C"),
    ]
)

_FLAG = _plan(
    [
        _take_over(40, "B"),
        _pause(40, "B", 80, When("B", CLAIM, "done", 2)),
        _take_over(45, "C"),
    ],
    truncate=9000,
    write_pause=0.4,
)

GUARDS: dict[str, Plan] = {
    "takeover flag": _FLAG,
    "unasked claim": _plan([Step(30, "start", {"who": "B"})]),
    "truncated during a takeover": _plan(
        [_take_over(60, "B"), _pause(60, "B", 40, When("B", CLAIM, "done", 2))], truncate=9000, write_pause=0.4
    ),
    "late first snapshot": _LATE_SNAPSHOT,
    "late first snapshot, truncation": _plan(
        [
            _kill(60, "A", 3000),
            _take_over(150, "B"),
            _pause(150, "B", 60, When("B", SNAPSHOT)),
            _take_over(160, "C"),
            _pause(160, "C", 120, When("C", WAL, "done", 1)),
        ],
        truncate=9000,
        write_pause=0.4,
    ),
    "abandoned generation": _plan(
        [
            _take_over(40, "B"),
            _kill(40, "B", 3000, When("B", WAL, "done")),
            _take_over(50, "C"),
        ]
    ),
    "abandoned before it closed": _plan(
        [
            _take_over(40, "B"),
            _pause(40, "B", 90, When("B", CLAIM, "done")),
            _take_over(50, "C"),
        ]
    ),
    "claims at once": _plan(
        [
            _take_over(40, "B"),
            _pause(40, "B", 20, When("B", CLAIM)),
            _take_over(45, "C"),
        ],
        seed=2,
    ),
    "takeover from a live owner": _plan([_take_over(40, "B")], write_pause=0.4),
    "slot lost to the owner that is closed": _plan(
        [_take_over(40, "B"), _pause(40, "B", 20, When("B", WAL))], write_pause=0.4
    ),
    "takeover between first snapshot and first WAL segment": _plan(
        [
            _take_over(60, "B"),
            _pause(60, "B", 30, When("B", SNAPSHOT, "done")),
        ]
    ),
    "root away": _plan([Step(40, "root_away", {"seconds": 20.0})], store="folder", write_pause=0.4),
    "root away, restart": _plan(
        [Step(40, "root_away", {"seconds": 60.0}), _kill(42, "A", 5)], store="folder", write_pause=0.4
    ),
    "lost, failure": _plan(
        [
            _lose(60, ".*/wal/"),
            Step(60.5, "outage", {"seconds": 5.0}),
        ],
        segment_bytes=1_000_000,
    ),
    "lost, restart": _plan([_kill(60, "A", 10), _lose(62, ".*/wal/")], segment_bytes=1_000_000),
    "older state": _plan(
        [
            Step(40, "keep_state", {"who": "A"}),
            _kill(160, "A", 5),
            Step(162, "put_back_state", {"who": "A"}),
        ],
        truncate=9000,
        write_pause=0.4,
    ),
    "log replaced": _plan(
        [Step(160, "replace_log")], truncate=9000, write_pause=0.4, snapshot_policy="mirror", end=400.0
    ),
    "retry after": _plan([_fail(60, "A", "put", "throttled", 1, 7200.0)], end=65.0),
    "power loss in a log segment": _plan(
        [Step(30, "lose_power", {}, When("A", WAL, "before", 3))],
        fsync="never",
        write_pause=0.4,
        segment_bytes=1_000_000,
    ),
    "power loss after the first put": _plan(
        [Step(0, "lose_power", {}, When("A", WAL, "before", 2))],
        fsync="never",
        write_pause=0.4,
        segment_bytes=1_000_000,
    ),
    "power loss after many log segments": _plan(
        [Step(30, "lose_power", {}, When("A", WAL, "before", 3))], fsync="never", write_pause=0.4
    ),
    "failed put": _plan([_fail(60, "A", WAL, "before")], seed=1),
    "outage and truncation": _plan([Step(60, "outage", {"seconds": 200.0})], truncate=9000, write_pause=0.4, end=300.0),
    "lost answer": _plan([_fail(30, "A", WAL, "after")]),
    "lost answer to the first snapshot": _plan([_take_over(40, "B"), _fail(40, "B", SNAPSHOT, "after")]),
    "lost only snapshot": _plan(
        [_lose(25, ".*/snapshots/")], write_pause=0.4, snapshot_segments=1000, snapshot_interval=30.0, end=300.0
    ),
}
"""By name, for a rule's ``plan``."""
