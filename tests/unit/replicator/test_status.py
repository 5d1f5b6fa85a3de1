"""The status of a replica, as one line of JSON."""

from __future__ import annotations

import json

from litelog.replicator.status import facts_of, status_of
from litelog.replicator.task import ReplicaTask
from litelog.shipping.counters import ReplicaCounters
from tests.builders.daemon_builder import Silent
from tests.builders.manual_clock import ManualClock


def test_a_line_holds_all_values_and_nothing_that_changes_later() -> None:
    task = ReplicaTask("log", "replica", None, 1.0, 1.0, 1)
    task.counters = ReplicaCounters(Silent(), ManualClock())
    status = status_of(task, 0.0)
    facts = facts_of(status)
    judged = {"opened_seconds", "source_missing", "damaged", "damaged_since", "stored_bytes", "diverged"}
    assert {"counters", "meter"} | judged == set(type(status).__dataclass_fields__) - set(facts)
    assert json.loads(json.dumps(facts))["phase"] == "idle"
