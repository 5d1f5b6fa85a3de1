"""The requests of a look at a replica do not grow with the number of claims, by Spark's writes or by daemons."""

from __future__ import annotations

from functools import cache
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
from tests.builders.many_generations import CountedReplica, appended, taken_over
from tests.sampling import NIGHTLY

if TYPE_CHECKING:
    from collections.abc import Callable

COUNTS = (1, 10, 1000) if NIGHTLY else (1, 10, 30)

MOST = 6
"""The most requests, LISTs and GETs, that a look at a replica may send."""


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
    return appended(count) if writer == "spark" else taken_over(count, place)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("owners")


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("writer", ["spark", "daemons"])
@pytest.mark.parametrize("look", LOOKS)
def test_a_look_costs_the_same_after_any_number_of_claims(look: str, writer: str, count: int, place: Path) -> None:
    replica = made_by(writer, count, place / str(count))
    requests = replica.count(lambda: LOOKS[look](replica, place))
    assert set(requests) == {"list", "open"}
    assert sum(requests.values()) <= MOST, requests


@pytest.mark.slow
def test_a_further_append_costs_the_same() -> None:
    first, later = (made_by("spark", count, Path()) for count in COUNTS[1:])
    before = first.count(first.append)
    after = later.count(later.append)
    assert after["open"] == before["open"]
    assert after["put"] == before["put"]
    assert after["list"] <= before["list"] + len(range(0, 2 * COUNTS[-1], 1000))  # claims, in pages
