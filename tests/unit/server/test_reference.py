"""``etc/docs/http.md`` documents the HTTP API exactly as the code defines it."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")

from prometheus_client.parser import text_string_to_metric_families

from litelog.events import EVENTS
from litelog.replicator.task import TERMINAL_PHASES, Phase
from litelog.server.metrics import SPECS
from litelog.server.reference import make_reference
from litelog.server.report import PARTS, FailureReport, Reason, ReplicaReport, StatusReport, SyncReport
from tests.builders.log_builder import make_log
from tests.builders.server_builder import Watched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import BaseModel

DOCUMENT = Path(__file__).parents[3] / "etc" / "docs" / "http.md"
BUCKETS = ("_bucket", "_count", "_sum")


def test_the_document_is_as_the_code_says() -> None:
    assert DOCUMENT.read_text() == make_reference(), "run: python -m litelog.server.reference > etc/docs/http.md"


def models_within(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A model and all models within its fields."""
    yield model
    for field in model.model_fields.values():
        for name in re.findall(r"\w+", str(field.annotation)):
            yield from (found for part in PARTS if part.__name__ == name for found in models_within(part))


def test_every_part_of_an_answer_is_documented() -> None:
    assert {*models_within(StatusReport), *models_within(SyncReport)} == set(PARTS)


def test_every_phase_is_documented() -> None:
    described = ReplicaReport.model_fields["phase"].description or ""
    assert [phase.value for phase in Phase if phase.value not in described] == []


@pytest.mark.slow
def test_every_event_of_a_log_line_is_documented_and_occurs() -> None:
    assert set(events_in_code()) == set(EVENTS)


def events_in_code() -> Iterator[str]:
    """The event names in calls of ``fields``, ``say``, ``FailureLog`` and ``report_gaps``, and of final phases."""
    places = {"fields": 0, "say": 1, "FailureLog": 1, "report_gaps": 2}
    yield from (phase.value for phase in TERMINAL_PHASES)
    root = DOCUMENT.parents[2]
    for path in (each for folder in ("litelog", "cmd", "replica_clients") for each in (root / folder).rglob("*.py")):
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            name = getattr(call.func, "id", getattr(call.func, "attr", ""))
            place = places.get("fields" if name.endswith("fields") else name, len(call.args))
            if place < len(call.args) and isinstance(event := call.args[place], ast.Constant):
                yield str(event.value)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    log = make_log(tmp_path / "log")
    log.roll(3)
    with Watched(tmp_path, [(log, [f"file://{tmp_path}/one"])]) as started:
        started.wait_until_ready()
        yield started


def fields_of(value: Any, where: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield f"{where}.{name}"
            yield from fields_of(inner, f"{where}.{name}")
    elif isinstance(value, list):
        for inner in value:
            yield from fields_of(inner, where)


@pytest.mark.slow
def test_the_contract_is_kept_and_only_grows(watched: Watched) -> None:
    """The fields are those of version 1 at its release. Removing any of these names requires another version."""
    told = set(fields_of(watched.ask("/status?history=1").json))
    top = "version source litelog time started healthy ready reasons max_lag_seconds last_turn_seconds measured_seconds"
    replica = (
        "replica phase fencing generation position next lag_seconds lag_bytes synced queued_segments "
        "unsealed_segments consecutive_failures failing_seconds sync_error archive_consecutive_failures archive_error "
        "source_error snapshot "
        "last_snapshot last_shipped last_verified anomaly_count lost verify_error wal sealed snapshots requests errors "
        "recent_errors generation_changes recent_generations lag_history"
    )
    assert told >= {f".{name}" for name in f"{top} heartbeat logs".split()}
    assert told >= {".logs.log", *(f".logs.replicas.{name}" for name in replica.split())}
    assert told >= {f".logs.replicas.wal.{name}" for name in ("objects", "log_bytes", "stored_bytes")}
    assert told >= {
        f".logs.replicas.recent_generations.{name}"
        for name in ("time", "generation", "relation", "predecessor", "reason")
    }


@pytest.mark.slow
def test_every_metric_is_documented_and_every_documented_one_is_there(watched: Watched) -> None:
    answer = watched.ask("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    families = {family.name: family for family in text_string_to_metric_families(answer.body.decode())}
    told = {name for name in families if not name.startswith("process_")}
    assert told == {spec.name.removesuffix("_total") for spec in SPECS}
    for spec in SPECS:
        family = families[spec.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (spec.kind, spec.help)
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(spec.labels), spec.name


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_names_are_as_prometheus_wants_them(spec: Any) -> None:
    assert re.fullmatch(r"litelog_[a-z]+(_[a-z]+)*", spec.name)
    assert spec.name.endswith("_total") == (spec.kind == "counter")
    assert not re.search(r"_(ms|millis|kb|mb|count|sum|bucket)$", spec.name)
    assert spec.help.endswith(".")


@pytest.mark.slow
def test_openmetrics_is_spoken_where_it_is_asked_for(watched: Watched) -> None:
    answer = watched.ask("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.body.endswith(b"# EOF\n")


@pytest.mark.slow
def test_a_message_that_names_a_file_whose_name_is_not_utf8_is_shown_escaped() -> None:
    message = "app-\udcff.log: cannot be read \u00e9"
    reason = Reason(kind="frozen", log="/log", replica=None, message=message)
    assert json.loads(reason.model_dump_json())["message"] == "app-\\udcff.log: cannot be read \u00e9"
    failure = FailureReport.model_validate({"time": "", "kind": "source", "message": message, "count": 1})
    assert failure.message.encode()
