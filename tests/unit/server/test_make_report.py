"""The report with the lag of the last hour is the same document as without it, with the samples in their places."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("starlette")

from litelog.replicator.status import ReplicaStatus
from litelog.server.make_report import make_report, write_with_history
from litelog.server.report import StatusReport
from litelog.server.status_view import HealthThresholds, StatusView
from litelog.server.verdict import judge
from litelog.shipping.lag import Lag, LagHistory
from tests.builders.manual_clock import ManualClock

NOW = 5000.0
RULES = HealthThresholds(60.0)


def replica(log: str, url: str, *samples: tuple[float, float, int]) -> ReplicaStatus:
    history = LagHistory()
    for time, seconds, size in samples:
        history.add_if_due(time, Lag(size, seconds))
    status: dict[str, Any] = {"fencing": "required", "phase": "idle", "position": None, "sequence": None}
    meter: Any = SimpleNamespace(history=history) if samples else None
    return ReplicaStatus(log, url, **status, error='"lag_history":null', failures=0, meter=meter)


def ask(statuses: list[ReplicaStatus], logs: tuple[str, ...] | None = None) -> tuple[StatusReport, StatusReport]:
    """The report without the lag of the last hour, and with it."""
    view = StatusView(statuses, NOW, ManualClock().now(), NOW, NOW, NOW)
    cache: Any = SimpleNamespace(rules=RULES, started=0, host="h", config=None, state_dir=None)
    report = make_report(cache, view, judge(view, RULES), logs=logs)
    return report, StatusReport.model_validate_json(write_with_history(report, view, logs))


STATUSES = [
    replica("/one", "file:///a", (4000.04, 0.12345, 7), (4010.0, 0.0, 0)),
    replica('/t"wo', "file:///b"),
    replica("/one", "file:///c", (4990.0, 61.5, 1 << 40)),
    replica("/\udcff", "file:///d", (NOW + 1, 2.0, 3)),
]


@pytest.mark.parametrize("logs", [None, ("/one",), ('/t"wo', "/\udcff"), ()])
def test_each_replica_has_its_own_samples_and_all_else_is_unchanged(logs: tuple[str, ...] | None) -> None:
    without, with_history = ask(STATUSES, logs)
    found = {
        each.replica: None
        if each.lag_history is None
        else [tuple(sample.model_dump().values()) for sample in each.lag_history]
        for log in with_history.logs
        for each in log.replicas
    }
    expected = {
        "file:///a": [(1000.0, 0.123, 7), (990.0, 0.0, 0)],
        "file:///b": [],
        "file:///c": [(10.0, 61.5, 1 << 40)],
        "file:///d": [(0.0, 2.0, 3)],
    }
    assert found == {each.replica: expected[each.replica] for each in STATUSES if logs is None or each.log in logs}
    for log in without.logs:
        assert all(each.lag_history is None for each in log.replicas)
    without_samples = [
        log.model_copy(update={"replicas": [each.model_copy(update={"lag_history": None}) for each in log.replicas]})
        for log in with_history.logs
    ]
    assert with_history.model_copy(update={"logs": without_samples}) == without
