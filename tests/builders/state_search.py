"""Searches every state of a model that can be reached."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

State = TypeVar("State", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Result:
    """What a search found: how many states, and the shortest way to the first flaw, if there is one."""

    states: int
    flaw: str | None
    trace: list[str]
    labels: frozenset[str]


def search_states(
    first: State,
    successors: Callable[[State], Iterable[tuple[str, State, str | None]]],
    flaw_in: Callable[[State], str | None],
    limit: int,
) -> Result:
    """Every state that can be reached from ``first``, breadth first, to the first flaw; RuntimeError where there are
    more than ``limit`` states.

    ``successors`` gives a label, a state, and what is wrong with that step itself; ``flaw_in`` judges a state.
    """
    parents: dict[State, tuple[State, str] | None] = {first: None}
    frontier, labels = [first], set()
    while frontier:
        reached = []
        for state in frontier:
            for label, after, flaw in successors(state):
                labels.add(label.partition(": ")[2])
                is_new = after not in parents
                if is_new:
                    parents[after] = (state, label)
                    reached.append(after)
                found = flaw or (flaw_in(after) if is_new else None)
                if found:
                    return Result(len(parents), found, [*_trace(parents, state), label], frozenset(labels))
        if len(parents) > limit:
            raise RuntimeError(f"more than {limit} states can be reached")
        frontier = reached
    return Result(len(parents), None, [], frozenset(labels))


def _trace(parents: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    steps: list[str] = []
    while (step := parents[state]) is not None:
        state, label = step
        steps.append(label)
    return steps[::-1]
