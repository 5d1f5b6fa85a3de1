"""The Grafana dashboard and the alert rules ask for metrics and labels that exist, in PromQL that parses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families as parse_metrics

from litelog.server.metrics import SPECS, MetricSpec
from litelog.spark.stream.lag_metrics import LABELS, METRICS
from tests.builders.log_builder import make_log
from tests.builders.server_builder import Watched

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[3]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "etc" / "grafana-dashboard.json").read_text())
(GROUP,) = yaml.safe_load((ROOT / "etc" / "prometheus-alerts.yml").read_text())["groups"]
RULES: list[dict[str, Any]] = GROUP["rules"]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]

SCRAPED = {"job", "instance"}
"""The labels that Prometheus adds."""
OTHERS = {"up": SCRAPED, "process_cpu_seconds_total": SCRAPED, "process_resident_memory_bytes": SCRAPED}
OF_STREAMS = {name: {*LABELS, *SCRAPED} for name in METRICS}
"""The metrics of a Spark driver, which a daemon's job and instance do not choose."""
HISTOGRAM_PARTS = ("_bucket", "_sum", "_count")


def known_labels(name: str) -> set[str] | None:
    """The labels of a metric as it is scraped; None for an unknown metric."""
    if name in OTHERS or name in OF_STREAMS:
        return (OTHERS | OF_STREAMS)[name]
    for spec in SPECS:
        if name in _scraped_names(spec):
            return {*spec.labels, *SCRAPED, *(("le",) if name.endswith("_bucket") else ())}
    return None


def _scraped_names(spec: MetricSpec) -> list[str]:
    return [spec.name + part for part in HISTOGRAM_PARTS] if spec.kind == "histogram" else [spec.name]


def kind_of(name: str) -> str:
    if name.startswith("process_"):
        return "counter" if name.endswith("_total") else "gauge"
    return next((spec.kind for spec in SPECS if name in _scraped_names(spec)), "gauge")


def parse(query: str) -> Any:
    return promql_parser.parse(query.replace("$__rate_interval", "5m"))


def walk(node: Any) -> Iterator[Any]:
    yield node
    for name in ("lhs", "rhs", "expr", "vector_selector", "param", "args"):
        below = getattr(node, name, None)
        for each in below if isinstance(below, list | tuple) else [below]:
            if isinstance(each, promql_parser.Expr):
                yield from walk(each)


def selectors(query: str) -> list[Any]:
    return [node for node in walk(parse(query)) if isinstance(node, promql_parser.VectorSelector)]


def check(query: str) -> None:
    """Every metric and label of a query exists."""
    labels: set[str] = set()
    for selector in selectors(query):
        known = known_labels(selector.name)
        assert known is not None, f"no metric {selector.name}: {query}"
        asked = {matcher.name for matcher in selector.matchers.matchers}
        assert asked <= known, f"{selector.name} has no label {asked - known}: {query}"
        labels |= known
    for node in walk(parse(query)):
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            assert set(node.modifier.labels) <= labels, query
        if isinstance(node, promql_parser.Call) and node.func.name in ("rate", "increase"):
            (counted,) = [each for each in walk(node) if isinstance(each, promql_parser.VectorSelector)]
            growing = kind_of(counted.name) != "gauge" or counted.name == "litelog_replica_next_sequence"
            assert growing, f"{node.func.name} of a gauge: {query}"


@pytest.mark.parametrize("query", [*QUERIES, *(rule["expr"] for rule in RULES)])
def test_every_metric_and_label_that_is_asked_for_exists(query: str) -> None:
    assert selectors(query), "a query that asks for nothing"
    check(query)


@pytest.mark.parametrize(
    "query",
    [
        'litelog_replica_lag_seconds{pod="x"} > 1',
        "litelog_lag > 1",
        "sum by (pod) (litelog_errors_total)",
        "rate(litelog_replica_lag_bytes[5m])",
        "histogram_quantile(0.9, litelog_replication_latency_seconds)",
    ],
)
def test_the_check_finds_names_that_do_not_exist(query: str) -> None:
    with pytest.raises(AssertionError):
        check(query)


def test_annotations_name_only_labels_of_their_alert() -> None:
    for rule in RULES:
        known: set[str] = set()
        for selector in selectors(rule["expr"]):
            known |= known_labels(selector.name) or set()
        said = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
        assert said <= known, rule["alert"]
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"]
        assert rule["labels"]["severity"] in ("warning", "critical")


def test_there_is_an_alert_for_every_reason_that_is_not_safe() -> None:
    asked = {selector.name for rule in RULES for selector in selectors(rule["expr"])}
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    assert asked >= {
        *("up", "litelog_verdict", "litelog_replica_verdict", "litelog_loop_last_turn_seconds"),
        *("litelog_replica_frozen", "litelog_warnings", "litelog_replica_diverged_timestamp_seconds"),
        *("litelog_replica_fenced", "litelog_replica_stopped", "litelog_replica_anomalies"),
        *("litelog_replica_last_snapshot_timestamp_seconds", "litelog_replica_failing_seconds"),
        "litelog_not_replicated",
    }
    absent = next(rule for rule in RULES if rule["alert"] == "LitelogAbsent")
    calls = [node.func.name for node in walk(parse(absent["expr"])) if isinstance(node, promql_parser.Call)]
    assert calls == ["absent"], "a daemon that Prometheus has forgotten is absent, too"


@pytest.mark.slow
def test_counters_that_rules_watch_for_a_rise_exist_before_they_rise(tmp_path: Path) -> None:
    """For Prometheus, a counter that it first sees at 1 has not risen."""
    log = make_log(tmp_path / "log")
    log.roll(3)
    settings = {"heartbeat_url": "http://127.0.0.1:1/"}
    with Watched(tmp_path, [(log, [f"file://{tmp_path}/replica"])], settings) as watched:
        watched.wait_until_ready()
        text = watched.ask("/metrics").body.decode()
    there = {(sample.name, *sample.labels.items()) for family in parse_metrics(text) for sample in family.samples}
    counted = 0
    for rule in RULES:
        for node in walk(parse(rule["expr"])):
            if isinstance(node, promql_parser.Call) and node.func.name == "increase":
                (selector,) = [each for each in walk(node) if isinstance(each, promql_parser.VectorSelector)]
                asked = {(matcher.name, matcher.value) for matcher in selector.matchers.matchers}
                assert any(each[0] == selector.name and asked <= set(each[1:]) for each in there), rule["alert"]
                counted += 1
    assert counted == 1


def test_the_values_of_labels_that_are_asked_for_can_occur() -> None:
    helps = {spec.name: spec.help for spec in SPECS}
    for rule in RULES:
        for selector in selectors(rule["expr"]):
            for matcher in selector.matchers.matchers:
                if matcher.name not in SCRAPED:
                    assert matcher.value in helps[selector.name], f"{matcher.value}: {rule['alert']}"


def test_the_dashboard_has_all_fields_that_grafana_needs() -> None:
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    cells = set()
    for panel in PANELS:
        place = panel["gridPos"]
        covered = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & covered, f"{panel['title']} lies on another one"
        cells |= covered
        assert panel["description"]
        for target in panel["targets"]:
            said = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert said <= {label for each in selectors(target["expr"]) for label in known_labels(each.name) or ()}
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$(?:\{)?(\w+)", json.dumps(DASHBOARD))) - {"__rate_interval", "__all"}
    assert used <= set(variables)
    for name in ("job", "instance", "log", "replica", "query"):
        match = re.fullmatch(r"label_values\((.*), (\w+)\)", variables[name]["definition"])
        assert match
        check(match[1])
        (selector,) = selectors(match[1])
        assert match[2] in (known_labels(selector.name) or ())


def test_the_table_shows_the_metrics_of_each_replica() -> None:
    (table,) = (panel for panel in PANELS if panel["type"] == "table")
    asked = {selector.name for target in table["targets"] for selector in selectors(target["expr"])}
    assert asked >= {
        *("litelog_replica_verdict", "litelog_replica_lag_seconds", "litelog_replica_next_sequence"),
        *("litelog_replica_last_verified_timestamp_seconds", "litelog_replica_anomalies"),
    }
    (names,) = (each["options"]["renameByName"] for each in table["transformations"] if each["id"] == "organize")
    assert {f"Value #{target['refId']}" for target in table["targets"]} <= set(names)


def test_new_generations_and_takeovers_are_marked() -> None:
    notes = {each["name"]: each for each in DASHBOARD["annotations"]["list"]}
    assert set(notes) == {"New generations", "Takeovers"}
    for note in notes.values():
        check(note["expr"])
        said = set(re.findall(r"\{\{(\w+)\}\}", note["titleFormat"] + note["textFormat"]))
        assert said <= {label for each in selectors(note["expr"]) for label in known_labels(each.name) or ()}


def test_every_query_is_of_the_chosen_daemons_or_streams() -> None:
    notes = [each["expr"] for each in DASHBOARD["annotations"]["list"]]
    for query in (*QUERIES, *notes):
        for selector in selectors(query):
            asked = {(matcher.name, matcher.value) for matcher in selector.matchers.matchers}
            chosen = (
                {("query", "$query")} if selector.name in OF_STREAMS else {("job", "$job"), ("instance", "$instance")}
            )
            assert asked >= chosen, query


@pytest.mark.slow
def test_every_metric_of_a_replica_is_on_the_dashboard_or_in_an_alert() -> None:
    asked = {selector.name for query in (*QUERIES, *(rule["expr"] for rule in RULES)) for selector in selectors(query)}
    seen = {spec.name for spec in SPECS if set(_scraped_names(spec)) & asked}
    # The verdict says more than health. Readiness depends only on the start, and fencing only on the configuration.
    left = {spec.name for spec in SPECS} - seen
    assert left == {
        *("litelog_replica_position_epoch", "litelog_replica_last_shipped_timestamp_seconds", "litelog_healthy"),
        *("litelog_replica_synced", "litelog_replica_fencing_isolated", "litelog_ready", "litelog_build_info"),
    }


def test_every_metric_of_a_stream_is_on_the_dashboard() -> None:
    asked = {selector.name for query in QUERIES for selector in selectors(query)}
    assert asked >= set(OF_STREAMS)
