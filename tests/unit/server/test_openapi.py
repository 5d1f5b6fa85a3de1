"""The OpenAPI document: it has the routes, it is valid, and random requests get the answers that it promises."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.routing import Route

from litelog.restore.mirror import _make_name
from litelog.server.log_routes import log_routes
from litelog.server.openapi import OPERATIONS, make_openapi
from tests.builders.child import runs_in_child
from tests.builders.installed import needs
from tests.builders.log_builder import make_log
from tests.builders.server_builder import TOKEN, Watched
from tests.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

PATIENCE_SECONDS = 10.0
ENDLESS = {"follow": "false", "wait": "1ms"}
"""Parameters that would keep a request waiting, and what the test sends instead."""


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("openapi")
    log = make_log(folder / "log")
    log.roll(3)
    with Watched(folder, [(log, [f"file://{folder}/replica"])], {"serve": "all"}) as started:
        started.wait_until_ready()
        yield started


def test_the_document_has_the_routes_of_the_service_and_no_other(watched: Watched) -> None:
    app = watched.service._server.config.app  # type: ignore[union-attr]
    served = [route for route in _routes_of(app) if isinstance(route, Route)]
    assert len(served) > len(log_routes(None, None)), "those of logs, and others"  # type: ignore[arg-type]
    routes = {(route.path.replace(":path}", "}"), sorted(route.methods or ())[0].lower()) for route in served}
    documented = {(each.path, each.method) for each in OPERATIONS if each.method != "head"}
    assert routes == documented


def _routes_of(app: Any) -> list[Any]:
    """The routes of the application inside its wrappers."""
    while not hasattr(app, "routes"):
        app = next(cell.cell_contents for cell in app.__closure__ if callable(cell.cell_contents))
    return list(app.routes)


def test_the_document_permits_the_name_that_a_mirror_gives_itself() -> None:
    (mirror,) = (each for operation in OPERATIONS for each in operation.parameters if each.name == "mirror")
    assert re.search(mirror.schema["pattern"], _make_name("/var/lib/orders_2"))


@needs("openapi_spec_validator")
@runs_in_child
def test_the_document_is_valid_and_any_token_may_read_it(watched: Watched, tmp_path: Path) -> None:
    import openapi_spec_validator

    answer = watched.ask("/openapi.json")
    assert answer.json == make_openapi()
    openapi_spec_validator.validate(answer.json)
    assert TOKEN not in answer.body.decode()


@needs("schemathesis")
@runs_in_child
def test_random_requests_get_the_answers_that_the_document_promises(watched: Watched) -> None:
    """Requests that fit the document, and such that do not. No answer is a server's fault, and each error is JSON."""
    import schemathesis
    from schemathesis.specs.openapi import checks

    assert watched.service.address is not None
    place = f"http://{watched.service.address}"
    schema = schemathesis.openapi.from_dict(make_openapi())
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) == len(OPERATIONS)
    modes = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]
    cases = st.sampled_from(operations).flatmap(
        lambda operation: st.sampled_from(modes).flatmap(lambda mode: operation.as_strategy(generation_mode=mode))
    )
    statuses = set()

    @given(cases)
    @settings(max_examples=examples(300), deadline=None, suppress_health_check=list(HealthCheck))
    def ask(case: Any) -> None:
        for name, harmless in ENDLESS.items():
            if name in (case.query or {}):
                case.query[name] = harmless
        answer = case.call(base_url=place, timeout=PATIENCE_SECONDS)
        promised = (checks.status_code_conformance, checks.content_type_conformance, checks.response_schema_conformance)
        case.validate_response(answer, checks=list(promised))
        assert answer.status_code != 500
        if answer.status_code >= 400 and case.method != "HEAD" and case.path not in ("/sync", "/healthz", "/readyz"):
            assert answer.json()["error"]["http_status"] == answer.status_code
        statuses.add(answer.status_code)

    ask()
    assert {200, 400, 404} <= statuses
