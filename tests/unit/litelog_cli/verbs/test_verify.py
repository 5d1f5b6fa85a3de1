"""``litelog verify`` reports on a sample and on a drill."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ExitCode
from litelog.verify.execution import verify
from litelog.verify.findings import Scope
from litelog_cli.drill import DrillResult
from litelog_cli.verbs.verify import exit_code, summary
from tests.builders.replica_builder import FORMAT, ReplicaBuilder, make_segment

if TYPE_CHECKING:
    from litelog.verify.report import VerifyReport
    from tests.unit.litelog_cli.conftest import InProcess


@pytest.fixture
def report() -> VerifyReport:
    builder = ReplicaBuilder()
    builder.add().ship_segment(make_segment(0, [2, 2]), final=None)
    return verify(builder.client.store, formats=lambda _: FORMAT)


@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_the_smallest_sample_checks_some_contents(command: InProcess, seed: str) -> None:
    done = command("verify", command.replica(), "--sample", "0.0001%", "--seed", seed, "--json")
    assert done.code == ExitCode.DONE
    assert done.lines[0]["log_bytes"] > 0


def test_an_empty_sample_is_not_reported_as_well(report: VerifyReport) -> None:
    unchecked = replace(report, share=0.01, content_bytes=0)
    said = list(summary(unchecked, Scope(0.01), None))
    assert said[-1] == "no contents were checked: the sample holds none; take a larger --sample"
    assert exit_code(unchecked, None, strict=False) == ExitCode.FAILURE
    structure = replace(unchecked, share=0.0)
    assert list(summary(structure, Scope(0.0), None))[-1] == "all is well"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("0.05", "'0.05' may mean 5% or 0.05%: write which"),
        ("101", "not a share from 0% to 100%"),
        ("nan", "not a share"),
    ],
)
def test_a_sample_is_in_percent(command: InProcess, given: str, said: str) -> None:
    done = command("verify", "replica", "--sample", given)
    assert (done.code, said in done.err) == (ExitCode.USAGE, True), done.err


@pytest.mark.slow
def test_a_drill_that_failed_is_not_beside_all_is_well(report: VerifyReport) -> None:
    drill = DrillResult(0, 0, 0, 0.1, None, "/small: needs 8.0 MiB, and its file system has 1.0 MiB free")
    *_, failed, verdict = summary(report, Scope(), drill)
    assert failed == "restore drill FAILED: /small: needs 8.0 MiB, and its file system has 1.0 MiB free"
    assert verdict == "the replica holds all that its writers promised, but it could NOT be restored here"
    assert exit_code(report, drill, strict=False) == ExitCode.FAILURE
