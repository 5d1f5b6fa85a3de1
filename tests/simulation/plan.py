"""The plan of a simulation, as data: drawn from a seed beforehand, so that steps can be left out again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

DAEMONS = ("A", "B", "C")

SECOND_REPLICA = 0.25
"""The share of seeds with a second replica."""

OF_ONE_REPLICA = frozenset(("disturb_network", "outage", "remove_root", "lose_objects", "fail_requests", "verify"))
"""Steps that happen to a single replica of several."""

LAST_SECONDS = 200.0
"""Seconds between the last step and the end of all faults, within which the effects of the step happen."""


@dataclass(frozen=True, slots=True)
class When:
    """A step of the protocol: a request of a process to the store."""

    who: str
    request: str
    """A regular expression for the operation and the key: ``put epochs/``, ``put .*/snapshots/``."""
    moment: str = "before"
    """``before``: the request is about to be sent; ``done``: it was carried out, and its sender does not know yet;
    ``answered``: its sender knows."""
    count: int = 1
    """Which of these requests it is, counted from the time of the plan's step on."""

    def __str__(self) -> str:
        return f" when {self.who}: {self.request} ({self.moment}, {self.count})"


@dataclass(frozen=True, slots=True)
class Step:
    """Something that happens at a time, in virtual seconds, or at a step of the protocol that comes after that time."""

    at: float
    do: str
    """A method of World, which gets the arguments."""
    arguments: dict[str, Any] = field(default_factory=dict)
    when: When | None = None

    def __str__(self) -> str:
        said = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.at:9.1f} s  {self.do}({said}){self.when or ''}"


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole simulation."""

    seed: int
    settings: dict[str, Any]
    steps: tuple[Step, ...]
    numbers: tuple[int, ...]
    """The numbers of these steps among the seed's."""
    end: float
    """When all faults end."""

    def keep(self, numbers: Collection[int]) -> Plan:
        """The plan with only these of its steps."""
        kept = [(number, step) for number, step in zip(self.numbers, self.steps, strict=True) if number in numbers]
        return replace(self, steps=tuple(step for _, step in kept), numbers=tuple(number for number, _ in kept))


def draw(seed: int) -> Plan:
    """The plan of a seed."""
    random = Random(f"plan {seed}")
    settings = _draw_settings(random)
    kinds, weights = zip(*_KINDS.items(), strict=True)
    steps: list[Step] = []
    now = 1.0
    dense = random.choice((0.3, 0.6, 0.95))
    for _ in range(random.randint(4, 16)):
        soon = random.random() < dense
        now += random.uniform(0.0, 30.0) if soon else random.choice((60.0, 600.0, 1900.0, 4000.0)) * random.random()
        steps += random.choices(kinds, weights)[0](now, random)
    steps.sort(key=lambda step: step.at)
    steps = _spread(steps, settings, Random(f"replicas {seed}"))
    settings["checkpoints"] = Random(f"checkpoints {seed}").random() < CHECKPOINTS
    steps = _with_thief(steps, settings, Random(f"thief {seed}"))
    settings["encrypted"] = Random(f"encryption {seed}").random() < ENCRYPTED
    end = max(now, *(step.at for step in steps)) + LAST_SECONDS if steps else now
    return Plan(seed, settings, tuple(steps), tuple(range(len(steps))), end)


ENCRYPTED = 0.2
"""The share of the plans whose replicas are encrypted."""


CHECKPOINTS = 0.3
"""The share of the plans whose daemons sign checkpoints."""

THIEF = 0.1
"""The share of the plans in which somebody with the right to write and to delete harms an object."""


def _with_thief(steps: list[Step], settings: dict[str, Any], random: Random) -> list[Step]:
    if settings["store"] != "objects" or settings["fencing"] == "isolated" or random.random() >= THIEF or not steps:
        return steps
    what = random.choice(("generations/.*/wal/", "generations/.*/wal/", "generations/", "epochs/"))
    arguments = {"request": what, "which": random.choice((-1, -1, random.randrange(100)))}
    theft = Step(steps[-1].at * random.random(), "steal", {**arguments, "overwrites": random.random() < 0.4})
    return sorted([*steps, theft], key=lambda step: step.at)


def _spread(steps: list[Step], settings: dict[str, Any], random: Random) -> list[Step]:
    """Ship some logs to two replicas, each with its own store and its own faults."""
    if settings["fencing"] == "isolated" or random.random() >= SECOND_REPLICA:
        return steps
    settings["more_stores"] = (random.choice(("objects", "folder")),)
    spread: list[Step] = []
    for step in steps:
        more = {"replica": random.randrange(2)} if step.do in OF_ONE_REPLICA else {}
        spread.append(replace(step, arguments={**step.arguments, **more}))
    return spread


def _draw_settings(random: Random) -> dict[str, Any]:
    settings = {
        "sync_interval": random.choice((0.2, 1.0, 5.0)),
        "poll_interval": random.choice((0.5, 2.0, 10.0)),
        "watched": random.random() < 0.7,
        "segment_bytes": random.choice((1500, 6000, 40_000)),
        "snapshot_segments": random.choice((1, 2, 5)),
        "snapshot_interval": random.choice((30.0, 600.0, 3600.0)),
        "snapshot_policy": random.choice(("keep", "keep", "mirror")),
        "truncate": random.choice((None, None, 3000, 20_000)),
        "retention": random.choice((None, None, 3600.0, 10_800.0)),
        "scrub_interval": random.choice((0.0, 900.0)),
        "fencing": random.choice(("required",) * 7 + ("isolated",)),
        "write_pause": random.choice((0.05, 1.0, 7.0)),
        "store": random.choice(("objects", "folder")),
        "creation": "refuses",
        "fsync": random.choice(("always", "never")),
        "scheme": random.choice(("memory", "memory", "simulated")),  # an unknown one is tried before it is used
    }
    if settings["fencing"] == "isolated":
        settings["store"], settings["creation"] = "objects", random.choice(("refuses", "looks", "none"))
    return settings


def _kill(now: float, random: Random) -> list[Step]:
    restart = random.choice((0.5, 5.0, 100.0))
    return [Step(now, "kill", {"who": _who(random), "calls": _calls(random), "restart": restart})]


def _pause(now: float, random: Random) -> list[Step]:
    who, seconds = _who(random), _pause_seconds(random)
    steps = [Step(now, "pause", {"who": who, "calls": _calls(random), "seconds": seconds})]
    if random.random() < 0.6:  # another owner comes meanwhile
        steps.append(Step(now + seconds * random.random(), "take_over", {"who": _other(who, random)}))
    return steps


def _take_over(now: float, random: Random) -> list[Step]:
    return [Step(now, "take_over", {"who": _who(random)})]


def _contend(now: float, random: Random) -> list[Step]:
    """Several take over at nearly the same time; one of them is stopped, or killed, at an early call."""
    who, seconds = _who(random), _pause_seconds(random)
    first = {"who": who, "calls": random.randint(1, 60)}
    change = random.random()
    if change < 0.6:
        then = Step(now, "pause", {**first, "seconds": seconds})
    else:
        then = Step(now, "kill", {**first, "restart": random.choice((0.5, 5.0, 100.0))})
    steps = [Step(now, "take_over", {"who": who}), then]
    later = now + min(seconds, 60.0) * random.random()
    steps.append(Step(later, "take_over", {"who": _other(who, random)}))
    if random.random() < 0.3:
        steps.append(Step(later + 3 * random.random(), "take_over", {"who": _other(who, random)}))
    return steps


def _restart(now: float, random: Random) -> list[Step]:
    who = _who(random)
    return [Step(now, "stop", {"who": who}), Step(now + random.uniform(0, 90), "start", {"who": who})]


def _disturb_network(now: float, random: Random) -> list[Step]:
    kinds = ("before", "after", "throttled", "late")
    network = {name: random.choice((0.0, 0.0, 0.05, 0.3)) for name in kinds}
    network["latency"] = random.choice((0.005, 0.02, 0.4, 3.0))
    return [Step(now, "disturb_network", network), Step(now + random.choice((20.0, 300.0)), "clear_network")]


def _outage(now: float, random: Random) -> list[Step]:
    return [Step(now, "outage", {"seconds": random.choice((3.0, 60.0, 900.0))})]


def _remove_root(now: float, random: Random) -> list[Step]:
    return [Step(now, "remove_root", {"seconds": round(random.choice((2.0, 20.0, 300.0)) * random.random(), 2)})]


def _lose_objects(now: float, random: Random) -> list[Step]:
    return [Step(now, "lose_objects", {"choice": random.randrange(1000), "count": random.choice((1, 1, 2, 5))})]


def _kill_writer(now: float, random: Random) -> list[Step]:
    return [Step(now, "kill_writer", {"calls": _calls(random)})]


def _lose_power(now: float, random: Random) -> list[Step]:
    return [Step(now, "lose_power")]


def _disk_full(now: float, random: Random) -> list[Step]:
    return [Step(now, "disk_full", {"seconds": random.choice((5.0, 100.0))})]


def _transition(now: float, random: Random) -> list[Step]:
    """A fault happens between two requests of the protocol, or a few calls of the disk after one."""
    who = _who(random)
    request = random.choice(TRANSITIONS)
    takes_over = random.random() < 0.6
    when = When(who, request, random.choice(("before", "done", "answered")), random.choice((1, 1, 1, 2, 3)))
    steps = [Step(now, "take_over", {"who": who})] if takes_over else []
    calls = random.choice((0, 0, 0, random.randint(1, 30)))
    seconds = _pause_seconds(random)
    do = random.choices(
        ("pause", "kill", "take_over", "outage", "lose_power", "fail", "remove_root"), (6, 4, 2, 2, 1, 3, 1)
    )
    match do[0]:
        case "pause":
            steps.append(Step(now, "pause", {"who": who, "calls": calls, "seconds": seconds}, when))
            if random.random() < 0.7:
                later = now + min(seconds, 60.0) * random.random()
                steps.append(Step(later, "take_over", {"who": _other(who, random)}))
        case "kill":
            restart = random.choice((0.5, 5.0, 100.0))
            steps.append(Step(now, "kill", {"who": who, "calls": calls, "restart": restart}, when))
        case "take_over":
            steps.append(Step(now, "take_over", {"who": _other(who, random)}, when))
        case "outage":
            steps.append(Step(now, "outage", {"seconds": random.choice((3.0, 40.0))}, when))
        case "lose_power":
            steps.append(Step(now, "lose_power", {}, when))
        case "fail":
            kind, count = random.choice(("before", "after", "throttled")), random.choice((1, 1, 3))
            steps.append(Step(now, "fail_requests", {"who": who, "request": request, "kind": kind, "count": count}))
        case _:
            steps.append(Step(now, "remove_root", {"seconds": random.choice((2.0, 40.0))}, when))
    return steps


def _rewind(now: float, random: Random) -> list[Step]:
    """An older state replaces the log, while a daemon works or while it is away."""
    steps = [Step(now, "rewind_log", {"segments": random.choice((0, 0, 1, 3))})]
    if random.random() < 0.5:
        steps.insert(
            0, Step(now - 1.0, "kill", {"who": _who(random), "calls": 0, "restart": random.choice((5.0, 60.0))})
        )
    return steps


def _replace_log(now: float, _random: Random) -> list[Step]:
    return [Step(now, "replace_log")]


def _older_state(now: float, random: Random) -> list[Step]:
    """A backup replaces a state folder."""
    who, later = _who(random), now + random.choice((20.0, 300.0)) * random.random()
    return [
        Step(now, "keep_state", {"who": who}),
        Step(later, "kill", {"who": who, "calls": 0, "restart": 5.0}),
        Step(later + 2.0, "put_back_state", {"who": who}),
    ]


def _verify(now: float, random: Random) -> list[Step]:
    """A person verifies while the owner works, and may be slow."""
    steps = [Step(now, "verify")]
    if random.random() < 0.5:
        when = When("verifier", random.choice(("open ", "list ")), "before", random.choice((1, 2, 5)))
        steps.append(Step(now, "pause", {"who": "verifier", "calls": 0, "seconds": _pause_seconds(random)}, when))
    return steps


CLAIM, SNAPSHOT, WAL, SEALED = "put epochs/", "put .*/snapshots/", "put .*/wal/", "put .*/segments/"

TRANSITIONS = (CLAIM, SNAPSHOT, WAL, WAL, SEALED, "delete ", "list epochs/", "open epochs/", "open .*/wal/", "list ")
"""The requests at which a fault may happen. Each is a step of the protocol, as the replica and the state folder hold
the whole state of an owner."""

_KINDS: dict[Callable[[float, Random], list[Step]], int] = {
    _kill: 5,
    _pause: 5,
    _take_over: 4,
    _contend: 5,
    _restart: 2,
    _disturb_network: 4,
    _outage: 2,
    _remove_root: 2,
    _lose_objects: 1,
    _kill_writer: 2,
    _lose_power: 2,
    _disk_full: 1,
    _transition: 12,
    _rewind: 1,
    _replace_log: 1,
    _older_state: 1,
    _verify: 2,
}
"""The weight of each kind of step in the draw."""


def _who(random: Random) -> str:
    return random.choice(DAEMONS[:2] if random.random() < 0.8 else DAEMONS)


def _other(who: str, random: Random) -> str:
    return random.choice([name for name in DAEMONS if name != who])


def _calls(random: Random) -> int:
    """The number of the call of a store or disk, counted from now on; 0: now."""
    return random.choice((0, random.randint(1, 12), random.randint(1, 60), random.randint(1, 300)))


def _pause_seconds(random: Random) -> float:
    return round(random.choice((2.0, 40.0, 400.0, 2500.0, 5000.0)) * random.random(), 1)
