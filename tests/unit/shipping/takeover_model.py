"""A model of takeovers: owners start with or without the flag, pause at any step, crash and restart, and logs jump.
Explored breadth first.

Each step is one request to the store, or one local decision. The other model (``ownership_model``) has slots, lost
answers, pruning and sealing in detail; this one has the steps that decide whose data a default reader gives.

    generation   (owner, authority, relation, has a snapshot, terminal, WAL segments, the snapshot was relied on)
    owner        (step, aux, what its flag met or NO_FLAG, whether the flag is spent, its newest epoch)

Authority is the newest epoch that an owner was allowed to supersede when it claimed: the newest epoch that its flag
met at the first look, or its own newest generation. The relation is the predecessor's epoch, FIRST or DIVERGED.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.builders.state_search import search_states

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.builders.state_search import Result

NO_FLAG, NO_LOOK_YET = -1, 0
FIRST, DIVERGED = 0, -1
NONE, UNBEGUN, BEGUN = range(3)
"""Terminals: the owner that put it saw nothing of the generation, or saw its snapshot."""

DOWN, LOOK, RESUME, LIST, CLAIM, READ, CLOSE, BEFORE, SNAPSHOT, AFTER, RUN, GONE = range(12)
NAMES = ["down", "look", "resume", "list", "claim", "read", "close", "before", "snapshot", "after", "run", "gone"]

OWNER, AUTHORITY, RELATION, SNAPPED, ENDED, SEGMENTS, RELIED = range(7)

Generation = tuple[int, ...]
Owner = tuple[Any, ...]
State = tuple[tuple[Generation, ...], tuple[Owner, ...], int]


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules, each of which can be dropped, and the bounds of the search."""

    one_claim: bool = True
    """A flag authorises one claim, above the newest epoch of the first look; else every claim of its process."""
    checks_after_snapshot: bool = True
    """An owner looks for a newer claim after it put its first snapshot."""
    checks_predecessor: bool = True
    """After it closed all generations below, an owner checks that readers still take the generation it continues."""
    owners: int = 3
    claims: int = 4
    puts: int = 1
    crashes: int = 1


def start(rules: Rules) -> State:
    """The first owner runs; the others have never run."""
    first = (0, 0, FIRST, 1, NONE, 0, 1)
    others = ((DOWN, 0, NO_FLAG, 0, 0),) * (rules.owners - 1)
    return (first,), ((RUN, 0, NO_FLAG, 0, 1), *others), rules.crashes


def began(generation: Generation) -> bool:
    return bool(generation[SNAPPED]) and generation[ENDED] != UNBEGUN


def latest(generations: tuple[Generation, ...]) -> int:
    """The epoch of the generation that a default reader takes; 0 if there is none."""
    return max((epoch for epoch, generation in enumerate(generations, 1) if began(generation)), default=0)


def history(generations: tuple[Generation, ...], epoch: int) -> list[int]:
    """A generation and all that it continues, newest first."""
    held = []
    while epoch > 0:
        held.append(epoch)
        epoch = generations[epoch - 1][RELATION]
    return held


def flaw_in(state: State) -> str | None:
    """The acknowledged data that a state's default reader lacks although no rule allows it; None if it lacks none."""
    generations = state[0]
    read = history(generations, latest(generations))
    cut = generations[read[-1] - 1] if read else None
    for epoch, generation in enumerate(generations, 1):
        if epoch in read or not (generation[SEGMENTS] or generation[RELIED]):
            continue
        if cut is None or cut[RELATION] != DIVERGED or cut[AUTHORITY] < epoch:
            return f"P2: what the owner of {epoch} was acknowledged is not in {read}"
    return None


class Model:
    """The steps that the rules allow from a state."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.steps = {
            DOWN: self._start,
            LOOK: self._look,
            RESUME: self._resume,
            LIST: self._list,
            CLAIM: self._claim,
            READ: self._read,
            CLOSE: self._close,
            BEFORE: self._check_before,
            SNAPSHOT: self._put_snapshot,
            AFTER: self._check_after,
            RUN: self._run,
            GONE: lambda *_: (),
        }

    def successors(self, state: State) -> Iterator[tuple[str, State]]:
        """(label, state) of every step of every owner, crashes included."""
        generations, owners, crashes = state
        for number, owner in enumerate(owners):
            for label, changed, moved in self.steps[owner[0]](generations, owner, number):
                yield f"{number}: {label}", (changed, _put(owners, number, moved), crashes)
            if crashes and owner[0] not in (DOWN, GONE):
                down = (DOWN, 0, NO_FLAG, 0, owner[4])
                yield f"{number}: crash in {NAMES[owner[0]]}", (generations, _put(owners, number, down), crashes - 1)

    def _start(self, generations: Any, owner: Owner, number: int) -> Any:
        mine = owner[4]
        if mine:
            yield "restart", generations, (RESUME, 0, NO_FLAG, 0, mine)
        yield "start with the flag", generations, (LOOK, 0, NO_LOOK_YET, 0, mine)

    def _look(self, generations: Any, owner: Owner, number: int) -> Any:
        mine = owner[4]
        yield f"meet {len(generations)}", generations, (RESUME if mine else LIST, 0, len(generations), 0, mine)

    def _resume(self, generations: Any, owner: Owner, number: int) -> Any:
        _, _, met, spent, mine = owner
        if len(generations) == mine:
            yield "still the newest", generations, (READ, (mine - 1,), met, 1, mine)
        elif met != NO_FLAG and not spent:
            yield "a newer claim, and a flag", generations, (LIST, 0, met, spent, mine)
        else:
            yield "a newer claim", generations, (GONE, 0, NO_FLAG, 0, mine)

    def _list(self, generations: Any, owner: Owner, number: int) -> Any:
        _, _, met, spent, mine = owner
        newest = len(generations)
        if newest >= self.rules.claims:
            return
        is_mine = generations[-1][OWNER] == number
        allowed = met == newest and not spent if self.rules.one_claim else met != NO_FLAG
        if not is_mine and not allowed:
            yield "a foreign claim", generations, (GONE, 0, NO_FLAG, 0, mine)
            return
        authority = newest if is_mine else met
        for relation in {latest(generations), DIVERGED}:
            yield (
                f"list {newest}, {'diverge' if relation == DIVERGED else f'continue {relation}'}",
                generations,
                (CLAIM, (newest + 1, authority, relation), met, spent, mine),
            )

    def _claim(self, generations: Any, owner: Owner, number: int) -> Any:
        _, (epoch, authority, relation), met, _, mine = owner
        if len(generations) >= epoch:
            yield "lost the race", generations, (GONE, 0, NO_FLAG, 0, mine)
            return
        changed = (*generations, (number, authority, relation, 0, NONE, 0, 0))
        yield f"claim {epoch}", changed, (READ, (epoch - 1,), met, 1, epoch)

    def _read(self, generations: Any, owner: Owner, number: int) -> Any:
        _, (target,), *rest = owner
        there = generations[target - 1]
        if target == 0 or there[ENDED] == BEGUN:
            yield "all below is closed", generations, self._closed(generations, owner)
        elif there[ENDED] == UNBEGUN:
            yield f"{target} is ended", generations, (READ, (target - 1,), *rest)
        else:
            yield f"tip of {target}", generations, (CLOSE, (target, there[SNAPPED], there[SEGMENTS]), *rest)

    def _close(self, generations: Any, owner: Owner, number: int) -> Any:
        _, (target, seen, segments), *rest = owner
        there = generations[target - 1]
        if there[ENDED] != NONE or there[SEGMENTS] != segments:
            yield f"terminal {target} refused", generations, (READ, (target,), *rest)
            return
        ended = BEGUN if seen else UNBEGUN
        changed = _change(generations, target, ENDED, ended)
        moved = self._closed(changed, owner) if seen else (READ, (target - 1,), *rest)
        yield f"terminal {target}{'' if seen else ', unbegun'}", changed, moved

    def _closed(self, generations: Any, owner: Owner) -> Owner:
        _, _, *rest = owner
        mine = owner[4]
        relation = generations[mine - 1][RELATION]
        below = latest(generations[: mine - 1])
        if self.rules.checks_predecessor and relation not in (DIVERGED, below):
            return (LIST, 0, *rest)
        return (BEFORE, 0, *rest)

    def _check_before(self, generations: Any, owner: Owner, number: int) -> Any:
        yield from self._look_for_newer(generations, owner, SNAPSHOT)

    def _put_snapshot(self, generations: Any, owner: Owner, number: int) -> Any:
        _, _, *rest = owner
        late = "late " if generations[owner[4] - 1][ENDED] == UNBEGUN else ""
        yield f"{late}snapshot of {owner[4]}", _change(generations, owner[4], SNAPPED, 1), (AFTER, 0, *rest)

    def _check_after(self, generations: Any, owner: Owner, number: int) -> Any:
        for label, same, moved in self._look_for_newer(generations, owner, RUN, self.rules.checks_after_snapshot):
            changed = _change(same, owner[4], RELIED, 1) if moved[0] == RUN else same
            yield f"{label} after the snapshot", changed, moved

    def _look_for_newer(self, generations: Any, owner: Owner, step: int, looks: bool = True) -> Any:
        _, _, *rest = owner
        if looks and len(generations) > owner[4]:
            yield "a newer claim", generations, (GONE, 0, NO_FLAG, 0, owner[4])
        else:
            yield "no newer claim", generations, (step, 0, *rest)

    def _run(self, generations: Any, owner: Owner, number: int) -> Any:
        _, _, *rest = owner
        mine = owner[4]
        there = generations[mine - 1]
        yield "the log jumps", generations, (LIST, 0, *rest)
        if there[ENDED] != NONE:
            yield "put refused: fenced", generations, (GONE, 0, NO_FLAG, 0, mine)
        elif there[SEGMENTS] < self.rules.puts:
            yield f"put {mine}", _change(generations, mine, SEGMENTS, there[SEGMENTS] + 1), owner


def _put(owners: tuple[Owner, ...], number: int, owner: Owner) -> tuple[Owner, ...]:
    return (*owners[:number], owner, *owners[number + 1 :])


def _change(generations: Any, epoch: int, field: int, value: int) -> Any:
    there = generations[epoch - 1]
    changed = (*there[:field], value, *there[field + 1 :])
    return (*generations[: epoch - 1], changed, *generations[epoch:])


def search(rules: Rules, limit: int = 1_000_000) -> Result:
    """Search every reachable state up to the first flaw; at most ``limit`` states."""
    model = Model(rules)

    def successors(state: State) -> Iterator[tuple[str, State, None]]:
        return ((label, after, None) for label, after in model.successors(state))

    return search_states(start(rules), successors, flaw_in, limit)
