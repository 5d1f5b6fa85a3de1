"""A model of the protocol of one writer, checked in every state. Without any single rule, the check fails."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest

from tests.builders.child import in_child
from tests.sampling import NIGHTLY, at_night
from tests.unit.shipping.ownership_model import Model, Rules, search, start

if TYPE_CHECKING:
    from tests.builders.state_search import Result

BOUNDS = {
    "three owners, one crash, a put each": Rules(claims=3, crashes=1, finals=False, puts=1),
    "a fourth claim": Rules(claims=4, crashes=1, finals=False, puts=1),
    "two owners, every choice of final, no crash": Rules(claims=3, crashes=0, owners=2),
    "two owners, two crashes": Rules(claims=3, crashes=2, finals=False, puts=1, owners=2),
    "one owner, two crashes, every choice of final": Rules(claims=3, crashes=2, owners=1),
    "pruning of several": Rules(claims=2, crashes=2, owners=1, finals=False, puts=3),
    "two owners that seal": Rules(claims=3, crashes=1, owners=2, finals=False, puts=1, seals=True),
    "one owner that seals, two crashes": Rules(claims=3, crashes=2, owners=1, finals=False, puts=1, seals=True),
    "standing still before a put": Rules(claims=3, crashes=1, owners=2, finals=False, stalls=1),
}
BOUNDS_AT_NIGHT = {
    "three owners, one crash": Rules(claims=3, crashes=1, finals=False),
    "every choice of final, no crash": Rules(claims=3, crashes=0),
    "three owners, standing still before a put": Rules(claims=3, crashes=0, finals=False, puts=3, stalls=1),
    "standing still before one of three puts": Rules(claims=3, crashes=1, owners=2, finals=False, puts=3, stalls=1),
}
"""The largest: hundreds of thousands of states, which take hundreds of thousands of kilobytes."""

MAX_STATES = 400_000
"""A model with more states is too slow to run at every change."""

MIN_STATES, MIN_STATES_AT_NIGHT = 200_000, 600_000

pytestmark = pytest.mark.xdist_group("ownership_model")  # one worker runs each search once


@cache
def searched(name: str) -> Result:
    return in_child(lambda: search({**BOUNDS, **BOUNDS_AT_NIGHT}[name], limit=MAX_STATES))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*BOUNDS, *at_night(*BOUNDS_AT_NIGHT)])
def test_no_state_that_can_be_reached_breaks_a_promise(name: str) -> None:
    result = searched(name)
    assert result.flaw is None, "\n".join([str(result.flaw), *result.trace])


@pytest.mark.slow
def test_the_states_are_many_and_every_kind_of_step_is_among_their_steps() -> None:
    results = [searched(name) for name in (*BOUNDS, *(BOUNDS_AT_NIGHT if NIGHTLY else ()))]
    assert sum(result.states for result in results) > (MIN_STATES_AT_NIGHT if NIGHTLY else MIN_STATES)
    labels = frozenset().union(*(result.labels for result in results))
    for kind in (
        "claim refused",
        "claim 2, answer lost",
        "claim 2 refused, it is ours",
        "1 is ended",
        "terminal 1/0, answer lost",
        "terminal 1/1 refused",
        "snapshot of 3, ends (2, 0)",
        "snapshot is there",
        "put 1/1, answer lost",
        "put 1/8",
        "refused: fenced",
        "refused: it is ours",
        "refused: other bytes of ours",
        "a newer claim",
        "no newer claim",
        "last one is there",
        "last one is not there",
        "prune 1/0",
        "restart with (1, True, 1, 0, 0), content 1",
        "seal 2/first",
        "seal 1/0",
        "seal 1/1",
        "first sealed segment of 2 is of other bytes",
        "sealed 1/0 is of other bytes",
        *(f"crash in {step}" for step in ("list", "claim", "claim-retry", "read-tip", "put-terminal", "snapshot")),
        *(f"crash in {step}" for step in ("run", "prove-epoch", "prove-last")),
        *(f"prune 1/0, 1 stood still in {step}" for step in ("put-terminal", "snapshot", "run")),
        "late terminal 1/0 in an emptied slot",
        "late terminal 1/1 refused",
        "late terminal 1/2",
        "late snapshot of 2",
        "late put 1/0 in an emptied slot, found",
        "late put 1/2 refused: fenced",
        "late put 2/0",
        "late put 2/0 refused",
    ):
        assert any(kind in label for label in labels), kind


SMALL = {"finals": False, "crashes": 1}
LATE = {**SMALL, "owners": 2, "claims": 2, "puts": 3, "stalls": 1}
DROPPED = {
    "closing only the newest predecessor": ("P2", Rules(**SMALL, close="newest"), "put 1/0"),
    "closing down to an ended generation": ("P2", Rules(**SMALL, close="ended"), "put 1/0"),
    "closing after the first WAL segment": ("P2", Rules(**SMALL, close_first=False), "put 1/0"),
    "two slots, fenced one after the other": ("P2", Rules(**SMALL, one_slot=False), "terminal 1/1"),
    "no proof of ownership": ("P6", Rules(**SMALL, proof=False), "put 1/0"),
    "no proof where nothing was shipped by the state": ("P6", Rules(**SMALL, proof_of_start=False), "put 1/0"),
    "a closer that slept over the grace": ("P6", Rules(**SMALL, closer_rereads=False), "terminal 1/0"),
    "a closer that slept over the grace before its put": (
        "P6",
        Rules(**LATE, late_terminal_rereads=False),
        "snapshot of 2",
    ),
    "no second look after a first snapshot that was late": (
        "P6",
        Rules(**LATE, late_snapshot_proves=False),
        "put 1/0",
    ),
    "no proof after a put that was late": (
        "P2",
        Rules(**LATE, late_put_proves=False),
        "late put 1/0 in an emptied slot",
    ),
    "no proof before the adoption of what a late put left": (
        "P2",
        Rules(**LATE, late_adoption_proves=False),
        "late put 1/0 in an emptied slot, found",
    ),
    "pruning out of order": ("P6", Rules(**SMALL, in_order_pruning=False, puts=3), "put 1/1"),
    "claims that are not create-only": ("P6", Rules(**SMALL, create_only_claims=False), "claim 2 over another"),
    "a final before the sealed segment that it stands for": (
        "P1",
        Rules(**SMALL, seals=True, seal_before_final=False),
        "put 1/0",
    ),
    "taking a sealed segment that is there for our own": (
        "P1",
        Rules(**SMALL, seals=True, check_sealed=False),
        "put 1/0",
    ),
    "taking every refusal for our own put": ("P2", Rules(**SMALL, check_refused=False), "put 1/0 taken for ours"),
}


@pytest.mark.slow
@pytest.mark.parametrize("dropped", DROPPED)
def test_each_rule_is_needed(dropped: str) -> None:
    promise, rules, last_step = DROPPED[dropped]
    result = in_child(lambda: search(rules, promises=(promise,), limit=MAX_STATES))
    assert result.flaw is not None
    assert last_step in result.trace[-1], result.trace


@pytest.mark.slow
def test_a_trace_can_be_walked() -> None:
    rules = Rules(finals=False, crashes=1, close="ended")
    model, states = Model(rules), {start(rules)}
    trace = search(rules, promises=("P2",)).trace
    assert len(trace) > 5
    for step in trace:
        states = {after for state in states for label, after, _ in model.successors(state) if label == step}
        assert states, step
