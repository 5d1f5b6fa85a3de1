"""A model of takeovers, checked in every state. Without any single rule, the check fails."""

from __future__ import annotations

import pytest

from tests.builders.child import in_child
from tests.unit.shipping.takeover_model import Rules, search

MAX_STATES = 400_000
"""A model with more states is too slow to run at every change."""

SMALL = Rules(owners=2, claims=3, crashes=1)
BOUNDS = {
    "two owners, one crash": SMALL,
    "two owners, four claims": Rules(owners=2, claims=4, crashes=0),
    "three owners": Rules(claims=3, crashes=0),
}
LONG = [pytest.param(name, marks=pytest.mark.slow) if name == "three owners" else name for name in BOUNDS]


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_acknowledged_records_are_read_unless_their_owner_diverged_on_request(name: str) -> None:
    result = in_child(lambda: search(BOUNDS[name], limit=MAX_STATES))
    assert result.flaw is None, "\n".join([str(result.flaw), *result.trace])
    assert result.states > 1_000


@pytest.mark.slow
def test_every_kind_of_step_is_among_the_steps() -> None:
    labels = in_child(lambda: search(SMALL, limit=MAX_STATES)).labels
    for kind in (
        "start with the flag",
        "restart",
        "meet 2",
        "still the newest",
        "a newer claim, and a flag",
        "a foreign claim",
        "lost the race",
        "list 2, diverge",
        "list 2, continue 1",
        "terminal 2 refused",
        "terminal 2, unbegun",
        "late snapshot of 2",
        "a newer claim after the snapshot",
        "put refused: fenced",
        "crash in snapshot",
        "crash in after",
    ):
        assert kind in labels, kind


DROPPED = {
    "a flag that authorises every claim of its process": (
        Rules(one_claim=False, owners=2, claims=4, crashes=0),
        "snapshot of",
    ),
    "no look for a newer claim after the first snapshot": (
        Rules(checks_after_snapshot=False, owners=2, claims=3, crashes=0),
        "terminal 2, unbegun",
    ),
    "no second look at the predecessor": (
        Rules(checks_predecessor=False, owners=2, claims=3, crashes=0),
        "snapshot of",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("dropped", DROPPED)
def test_each_rule_is_needed(dropped: str) -> None:
    rules, last_step = DROPPED[dropped]
    result = in_child(lambda: search(rules, limit=MAX_STATES))
    assert result.flaw is not None
    assert result.flaw.startswith("P2")
    assert last_step in result.trace[-1], result.trace
