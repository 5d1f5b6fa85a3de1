"""Plans that guard one rule each: the shortest plans that provoke the failure that the rule prevents.

They do not depend on a generator, so a plan that found a failure stays. ``test_simulation`` runs all of them on the
library as it is, and ``removed_rules`` runs each on a copy without its rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.plan import CLAIM, SNAPSHOT, WAL, Plan, Step, When

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
    "settling": 360.0,
    "quiet": 60.0,
}

LAST_SECONDS = 60.0


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


def _rest(at: float, seconds: float) -> Step:
    return Step(at, "rest", {"seconds": seconds})


def _stop(at: float, who: str) -> Step:
    return Step(at, "stop", {"who": who})


def _verify(at: float, seconds: float, request: str, when: When | None = None) -> tuple[Step, Step]:
    """A person verifies, and the verification stops before the first of these requests."""
    return (
        Step(at, "verify", {}, when),
        Step(at, "pause", {"who": "verifier", "calls": 0, "seconds": seconds}, When("verifier", request)),
    )


def _lose(at: float, request: str, which: int = -1, when: When | None = None, **arguments: bool) -> Step:
    return Step(at, "lose_object", {"request": request, "which": which, **arguments}, when)


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


def _steal(at: float, request: str, which: int = -1, *, overwrites: bool = False) -> Step:
    return Step(at, "steal", {"request": request, "which": which, "overwrites": overwrites})


GUARDS: dict[str, Plan] = {
    "owners that sign in turns": _plan([_take_over(60, "B"), _take_over(120, "A")], checkpoints=True),
    "log rewound between two checkpoints": _plan(
        [Step(60, "rewind_log", {"segments": 1})], checkpoints=True, write_pause=0.4
    ),
    "kill at a checkpoint": _plan(
        [_kill(20, "A", 5, When("A", "put checkpoints/", "done")), _kill(60, "A", 5, When("A", "put checkpoints/"))],
        checkpoints=True,
    ),
    "stolen newest WAL segment": _plan([_steal(60, "generations/.*/wal/")]),
    "overwritten WAL segment, encrypted": _plan([_steal(60, "generations/.*/wal/", overwrites=True)], encrypted=True),
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
    "root away": _plan([Step(40, "remove_root", {"seconds": 20.0})], store="folder", write_pause=0.4),
    "root away, restart": _plan(
        [Step(40, "remove_root", {"seconds": 60.0}), _kill(42, "A", 5)], store="folder", write_pause=0.4
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
    "outage of one of two replicas": _plan(
        [Step(60, "outage", {"seconds": 200.0, "replica": 1})],
        truncate=9000,
        write_pause=0.4,
        end=300.0,
        more_stores=("objects",),
    ),
    "takeover of two replicas": _plan(
        [_take_over(60, "B"), _fail(60, "B", CLAIM, "after")],
        truncate=9000,
        write_pause=0.4,
        more_stores=("folder",),
    ),
    "lost answer": _plan([_fail(30, "A", WAL, "after")]),
    "lost answer to the first snapshot": _plan([_take_over(40, "B"), _fail(40, "B", SNAPSHOT, "after")]),
    "lost only snapshot": _plan(
        [_lose(25, ".*/snapshots/")], write_pause=0.4, snapshot_segments=1000, snapshot_interval=30.0, end=300.0
    ),
    "failed start with the flag": _plan(
        [_take_over(40, "B"), _fail(40, "B", "open ", "before", 12), _take_over(40.5, "C")]
    ),
    "truncated between look and claim": _plan(
        [_take_over(60, "B"), _pause(60, "B", 60, When("B", "open .*/wal/", "done", 4))],
        truncate=9000,
        write_pause=0.4,
    ),
    "diverged generation that never began": _plan(
        [
            Step(60, "take_segments_away", {"segments": 1}),
            _pause(60, "A", 60, When("A", SNAPSHOT)),
            Step(90, "bring_segments_back"),
            _take_over(95, "B"),
        ],
    ),
    "diverged generation with a late snapshot": _plan(
        [
            Step(60, "take_segments_away", {"segments": 1}),
            _pause(60, "A", 60, When("A", SNAPSHOT)),
            Step(90, "bring_segments_back"),
            _take_over(95, "B"),
            _pause(95, "B", 60, When("B", WAL)),
        ],
    ),
    "first snapshot that comes while its generation is closed": _plan(
        [
            _kill(60, "A", 3000),
            _take_over(80, "B"),
            _pause(80, "B", 20, When("B", SNAPSHOT)),
            _take_over(90, "C"),
            _pause(90, "C", 30, When("C", "list generations/00000002", "done", 2)),
            _pause(90, "C", 60, When("C", WAL, "done", 1)),
        ],
        write_pause=0.4,
    ),
    "generation that holds a first snapshot alone": _plan(
        [
            _kill(60, "A", 3000),
            _take_over(80, "B"),
            _pause(80, "B", 20, When("B", SNAPSHOT)),
            _kill(80, "B", 3000, When("B", WAL, "before", 2)),
            _take_over(90, "C"),
            _pause(90, "C", 30, When("C", CLAIM)),
            _pause(90, "C", 60, When("C", WAL, "done", 1)),
        ],
        write_pause=0.4,
    ),
    "store that accepts each put": _plan([_take_over(40, "B")], creation="overwrites"),
    "store that lets several win": _plan([_take_over(40, "B")], creation="races", scheme="simulated"),
    "isolated takeover": _plan([_take_over(40, "B")], fencing="isolated"),
    "isolated takeover, restart": _plan([_kill(40, "A", 60), _take_over(45, "B")], fencing="isolated"),
    "isolated takeovers at once": _plan(
        [
            _take_over(40, "B"),
            _pause(40, "B", 20, When("B", CLAIM)),
            _take_over(45, "C"),
        ],
        fencing="isolated",
    ),
    "isolated owner that finds a begun generation of its own epoch": _plan(
        [
            _take_over(40, "B"),
            _pause(40, "B", 60, When("B", CLAIM, "done", 1)),
            _take_over(40, "C"),
            _pause(40, "C", 20, When("C", CLAIM)),
        ],
        fencing="isolated",
    ),
    "loss in what the policy dropped": _plan(
        [
            _take_over(60, "C"),
            _lose(100, "generations/00000001.*/wal/.*/0000000000000000.wal", which=-2, is_looked_for=False),
            _take_over(110, "B"),
        ],
        end=400.0,
        snapshot_policy="mirror",
        snapshot_interval=3600.0,
        truncate=20000,
        segment_bytes=6000,
        write_pause=0.4,
    ),
    "owner with an older state that finds a newer snapshot": _plan(
        [
            Step(30, "keep_state", {"who": "A"}),
            _kill(280, "A", 5),
            Step(282, "put_back_state", {"who": "A"}),
            Step(
                285, "disturb_network", {"before": 0.05, "after": 0.3, "throttled": 0.0, "late": 0.0, "latency": 0.005}
            ),
        ],
        write_pause=7.0,
        segment_bytes=6000,
        store="objects",
    ),
    "log rewound while its next owner chooses a claim": _plan(
        [
            Step(1.5, "outage", {"seconds": 3.0}),
            _take_over(20.2, "B"),
            _pause(20.2, "B", 1.3, When("B", CLAIM, "done", 1)),
            Step(21.3, "rewind_log", {"segments": 1}),
        ],
        sync_interval=0.2,
        poll_interval=0.5,
        segment_bytes=6000,
    ),
    "isolated owner that ends its generation, and never begins": _plan(
        [
            _take_over(40, "B"),
            _stop(300, "B"),
            _take_over(301, "A"),
            _take_over(320, "B"),
            _kill(320, "B", 9000, When("B", SNAPSHOT)),
            _take_over(330, "C"),
        ],
        fencing="isolated",
    ),
    "lost, pause": _plan([_pause(60, "A", 120), _lose(100, ".*/wal/")], segment_bytes=1_000_000),
    "lost, failure, not the newest": _plan(
        [_lose(60, ".*/wal/", -3), Step(60.5, "outage", {"seconds": 5.0})], segment_bytes=1_000_000
    ),
    "lost, check": _plan([_kill(10, "A", 60), _lose(100, ".*/segments/", 10)], write_pause=0.4, scrub_interval=120.0),
    "lost sealed segment that the log dropped": _plan(
        [_lose(100, ".*/segments/", 0), _take_over(110, "B")], truncate=9000, write_pause=0.4
    ),
    "lost sealed segment": _plan(
        [_kill(10, "A", 60), _lose(100, ".*/segments/", 10), _take_over(110, "B")], write_pause=0.4
    ),
    "stop": _plan([_stop(60, "A"), Step(90, "start", {"who": "A"})], seed=1, write_pause=0.4, sync_interval=5.0),
    "owner that continues while it is closed": _plan(
        [_take_over(60, "B"), _pause(60, "B", 60, When("B", WAL))], write_pause=0.4, end=130.0
    ),
    "log rewound while its daemon was away": _plan(
        [_kill(120, "A", 90), Step(121, "rewind_log", {"segments": 8})], write_pause=0.4
    ),
    "log rewound, kill before its beginning is shipped": _plan(
        [
            Step(60, "rewind_log", {"segments": 0}),
            _kill(60, "A", 30, When("A", "put generations/00000002.*/snapshots/", "done")),
        ],
        segment_bytes=40_000,
    ),
    "log rewound, and at rest before it is as long again": _plan(
        [Step(120, "rewind_log", {"segments": 1}), _rest(122, 3000)], segment_bytes=40_000, write_pause=0.4
    ),
    "root away while a takeover looks for holes": _plan(
        [
            _take_over(40, "B"),
            _take_over(90, "A"),
            Step(90, "remove_root", {"seconds": 5.0}, When("A", "list .*/segments/")),
        ],
        store="folder",
        truncate=9000,
        write_pause=0.4,
    ),
    "root away while a reader looks for the next generation": _plan(
        [
            _take_over(40, "B"),
            Step(40, "remove_root", {"seconds": 20.0}, When("reader", "open epochs/00000002", count=3)),
        ],
        store="folder",
    ),
    "root away while a reader enters the next generation": _plan(
        [_take_over(40, "B"), Step(40, "remove_root", {"seconds": 20.0}, When("reader", "open epochs/", count=5))],
        store="folder",
    ),
    "older state, and root away while the owner looks what it has shipped": _plan(
        [
            Step(30, "keep_state", {"who": "A"}),
            _kill(60, "A", 5),
            Step(62, "put_back_state", {"who": "A"}),
            Step(62, "remove_root", {"seconds": 20.0}, When("A", "list ", count=3)),
        ],
        store="folder",
        truncate=9000,
        write_pause=0.4,
    ),
    "verify while the root goes away and comes back": _plan(
        [
            _take_over(40, "B"),
            Step(100, "verify"),
            Step(100, "remove_root", {"seconds": 1.5}, When("verifier", "open .*/wal/", count=40)),
        ],
        store="folder",
        write_pause=0.4,
    ),
    "verify while the root goes away before it lists again": _plan(
        [
            _take_over(40, "B"),
            Step(100, "verify"),
            Step(100, "remove_root", {"seconds": 9.0}, When("verifier", "list ", count=4)),
        ],
        store="folder",
        write_pause=0.4,
    ),
    "first snapshot put before the former owner seals": _plan(
        [_take_over(115, "B"), _kill(115, "B", 5, When("B", SNAPSHOT, "done"))], write_pause=3.0, snapshot_segments=5
    ),
    "verify while a generation begins": _plan(
        [_take_over(40, "B"), *_verify(40, 30, "open ", When("B", CLAIM, "done"))]
    ),
    "verify while an owner seals what it missed": _plan([_kill(60, "A", 60), *_verify(115, 40, "list .*/wal/")]),
    "restart after a takeover, log at rest": _plan(
        [_rest(30, 3000), _kill(40, "A", 20), _take_over(45, "B")],
    ),
    "owner that stands still before it looks": _plan(
        [
            _take_over(40, "B"),
            _pause(40, "B", 60, When("B", CLAIM, "done", 2)),
            _take_over(50, "C"),
        ],
        segment_bytes=1_000_000,
    ),
    "claim that is long not begun": _plan(
        [
            _kill(40, "A", 3000),
            _take_over(45, "B"),
            _pause(45, "B", 150, When("B", CLAIM, "done")),
            _rest(45, 3000),
        ],
        end=200.0,
    ),
    "reader that stands still for longer than the grace": _plan(
        [
            _take_over(40, "B"),
            _pause(40, "reader", 3720, When("reader", "open .*/snapshots/", "before", 2)),
            _rest(100, 3600),
        ],
        end=3800.0,
        write_pause=0.4,
        retention=3600.0,
    ),
    "dropped pages, power loss": _plan(
        [Step(60, "drop_pages"), Step(64, "lose_power")],
        fsync="never",
        write_pause=0.4,
        segment_bytes=1_000_000,
        sync_interval=5.0,
    ),
    "dropped pages, restart of the daemon, power loss": _plan(
        [Step(60, "drop_pages"), Step(80, "lose_power")],
        fsync="never",
        write_pause=0.4,
        segment_bytes=1_000_000,
    ),
    "dropped pages": _plan(
        [Step(60, "drop_pages")],
        fsync="never",
        write_pause=0.4,
        segment_bytes=1_000_000,
    ),
    "owner that stands still while it deletes": _plan(
        [_rest(100, 3600), _pause(3600, "A", 100, When("A", "delete ", "done"))],
        end=3850.0,
        write_pause=0.4,
        patience=20,
    ),
    "owner that adopts what it put long ago": _plan(
        [_rest(100, 9000), _kill(99, "A", 3700, When("A", WAL, "done"))], end=3850.0, write_pause=0.4, patience=20
    ),
    "owner with an older state that stands still before it puts": _plan(
        [
            Step(30, "keep_state", {"who": "A"}),
            _kill(60, "A", 5),
            Step(62, "put_back_state", {"who": "A"}),
            _pause(63, "A", 3760, When("A", WAL)),
            _take_over(70, "B"),
            _rest(100, 3700),
        ],
        end=3850.0,
        write_pause=0.4,
        retention=3600.0,
        patience=20,
    ),
    "takeover that stands still before its terminal": _plan(
        [
            _take_over(60, "B"),
            _pause(60, "B", 3760, When("B", WAL)),
            _rest(90, 1600),
            _rest(1695, 1600),
            _rest(3300, 510),
        ],
        end=3850.0,
        write_pause=0.4,
        patience=20,
    ),
    "owner with an older state that stands still after its proof": _plan(
        [
            Step(30, "keep_state", {"who": "A"}),
            _kill(60, "A", 5),
            Step(62, "put_back_state", {"who": "A"}),
            _pause(63, "A", 3760, When("A", "list generations/", "answered")),
            _take_over(70, "B"),
            _rest(100, 3700),
        ],
        end=3850.0,
        write_pause=0.4,
        retention=3600.0,
        patience=20,
    ),
    "one snapshot is retained": _plan(
        [_take_over(60, "B"), _rest(100, 3600)], end=3760.0, write_pause=0.4, truncate=9000, snapshots=1, patience=20
    ),
    "three snapshots are retained": _plan(
        [_rest(100, 3600), _rest(3702, 9000)], end=3710.0, write_pause=0.4, snapshots=3, patience=20
    ),
}
"""The plans by name, for a rule's ``plan``."""
