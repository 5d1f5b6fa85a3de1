"""The events that daemons in a soak may log."""

from __future__ import annotations

from litelog.events import EVENTS
from tests.faults.soak_complaints import EXPECTED_EVENTS


def test_each_expected_event_exists() -> None:
    assert EVENTS.keys() >= EXPECTED_EVENTS
