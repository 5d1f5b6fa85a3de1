"""Searches every reachable state of a model."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

State = TypeVar("State", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a search: the number of states, and the shortest way to the first flaw, if there is one."""

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
    """Search every state that can be reached from ``first``, breadth first, until the first flaw.

    ``successors`` gives the steps from a state: for each a label, the next state, and the flaw of the step, if there is
    one. ``flaw_in`` gives the flaw of a state. RuntimeError if there are more than ``limit`` states.
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
