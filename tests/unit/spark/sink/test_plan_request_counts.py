"""The requests of a look at a replica, and of an append, do not grow with the number of appends, takeovers or
restarts."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow")

from click.testing import CliRunner

from litelog.reading.latest import open_latest
from litelog.spark.options import parse_options
from litelog.spark.scan.planning import plan
from litelog.stores.object_store import ObjectReplicaClient
from litelog_cli.main import litelog
from tests.builders.many_generations import CountedReplica, appended, restarted, taken_over
from tests.sampling import NIGHTLY

if TYPE_CHECKING:
    from collections.abc import Callable

COUNTS = (1, 10, 1000) if NIGHTLY else (1, 10, 30)

WRITERS = ("Spark", "owners", "restarts")
"""Who began that often: Spark with an append, an owner that took over, or an owner that continued its generation."""

MOST = 6
"""The most requests, LISTs and GETs, that a look at a replica may send."""

MOST_OF_AN_APPEND = 20
"""The most requests of an append of one partition: its sealed segment is one of them."""


def run(*arguments: str) -> None:
    found = CliRunner().invoke(litelog, list(arguments))
    assert found.exit_code == 0, found.output


LOOKS: dict[str, Callable[[CountedReplica, Path], object]] = {
    "plan of Spark": lambda replica, _: plan(parse_options({"path": replica.url})),
    "restore --dry-run": lambda replica, place: run("restore", "--dry-run", replica.url, "-o", str(place / "out")),
    "opening of cat": lambda replica, _: open_latest(ObjectReplicaClient(replica.store)),
    "status --replica": lambda replica, _: run("status", "--replica", replica.url),
}


@cache
def made_by(writer: str, count: int, place: Path) -> CountedReplica:
    if writer == "Spark":
        return appended(count)
    return (taken_over if writer == "owners" else restarted)(count, place)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("owners")


@pytest.mark.slow
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("look", LOOKS)
def test_a_look_costs_the_same_after_any_number_of_claims(look: str, writer: str, count: int, place: Path) -> None:
    replica = made_by(writer, count, place / f"{writer}-{count}")
    requests = replica.count(lambda: LOOKS[look](replica, place))
    assert set(requests) == {"list", "open"}
    assert sum(requests.values()) <= MOST, requests


@pytest.mark.slow
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("writer", WRITERS)
def test_an_append_costs_the_same_after_any_number_of_claims(writer: str, count: int, place: Path) -> None:
    replica = made_by(writer, count, place / f"{writer}-{count}")
    requests = replica.count(partial(replica.append, takeover=writer != "Spark"))
    assert sum(requests.values()) <= MOST_OF_AN_APPEND, requests


@pytest.mark.slow
def test_an_append_after_an_append_costs_one_generation() -> None:
    replica = made_by("Spark", 1, Path())
    client = ObjectReplicaClient(replica.store)
    before = client.claims()
    replica.append()
    assert len(client.claims()) == len(before) + 1
