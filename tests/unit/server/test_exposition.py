"""The metrics as text: prometheus-client's parsers read the same samples in both formats."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("prometheus_client")

from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families

from litelog.objects.position import Position, new_generation
from litelog.replicator.status import ReplicaStatus
from litelog.server.exposition import write_metrics
from litelog.server.metrics import SPECS
from litelog.server.status_view import HealthThresholds, StatusView
from litelog.shipping.counters import ReplicaCounters
from litelog.stores.metered_store import BOUNDS
from tests.builders.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.core import Metric

_Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]

LOG, URL = 'a "log"\\ of\ntwo lines', "file:///\udcff"
SHOWN = {"log": LOG, "replica": "file:///\\udcff"}


def text_of(max_lag: float = 60.0, *, openmetrics: bool) -> str:
    clock = ManualClock()
    counters = ReplicaCounters(SimpleNamespace(), clock)  # type: ignore[arg-type]  # no event is passed on
    for seconds in (0.001, 0.2, 0.2, 100.0):
        with counters.requests.request("put"):
            clock.advance(seconds)
    with counters.requests.request("list"):
        clock.advance(1.0)
    status: dict[str, Any] = {"fencing": "required", "phase": "idle", "error": None, "failures": 3}
    position = Position(new_generation(2, 0xAAAAAAAA), 5, 1 << 60)
    statuses = [
        ReplicaStatus(LOG, URL, **status, position=position, sequence=1 << 62, counters=counters),
        ReplicaStatus("plain", "s3://b/x", **status, position=None, sequence=None),
    ]
    view = StatusView(statuses, 5.0, clock.now(), 5.0, 5.0, 5.0)
    cache: Any = SimpleNamespace(read=lambda: view, rules=HealthThresholds(max_lag))
    return write_metrics(cache, None, None, openmetrics=openmetrics)


def samples_of(families: Iterable[Metric]) -> _Samples:
    samples = [sample for family in families for sample in family.samples]
    found = {(each.name, tuple(sorted(each.labels.items()))): each.value for each in samples}
    assert len(found) == len(samples), "no sample may occur twice"
    return found


@pytest.mark.parametrize("max_lag", [60.0, float("inf")])
def test_both_formats_hold_the_same_samples(max_lag: float) -> None:
    plain = list(text_string_to_metric_families(text_of(max_lag, openmetrics=False)))
    strict = list(openmetrics_parser.text_string_to_metric_families(text_of(max_lag, openmetrics=True) + "# EOF\n"))
    assert samples_of(plain) == samples_of(strict)
    described = [(each.name, each.type, each.documentation) for each in strict]
    assert described == [(each.name, each.type, each.documentation) for each in plain]
    assert {(name.removesuffix("_total"), kind, text) for name, kind, text in described} == {
        (each.name.removesuffix("_total"), each.kind, each.help) for each in SPECS
    }
    assert samples_of(plain)["litelog_max_lag_seconds", ()] == max_lag


def test_samples_carry_their_values_and_labels() -> None:
    found = samples_of(text_string_to_metric_families(text_of(openmetrics=False)))
    first, second = tuple(sorted(SHOWN.items())), (("log", "plain"), ("replica", "s3://b/x"))
    assert found["litelog_replica_position_offset_bytes", first] == 1 << 60
    assert found["litelog_replica_next_sequence", first] == 1 << 62
    assert ("litelog_replica_next_sequence", second) not in found
    assert found["litelog_replica_consecutive_failures", second] == 3
    assert found["litelog_requests_total", (("kind", "put"), *first, ("result", "ok"))] == 4
    name, put = "litelog_request_duration_seconds", ("kind", "put")
    buckets = [found[f"{name}_bucket", (put, ("le", bound))] for bound in (*map(str, BOUNDS), "+Inf")]
    assert buckets == [1, 1, 1, 3, 3, 3, 3, 3, 3, 3, 4]
    assert found[f"{name}_count", (put,)] == 4
    assert found[f"{name}_sum", (put,)] == pytest.approx(100.401)
