"""A part of a test that runs in a child process fails as it would in this one."""

from __future__ import annotations

import os

import pytest

from tests.builders.child import in_child


def test_in_child_runs_a_function_in_another_process() -> None:
    parent = os.getpid()

    def part() -> None:
        assert os.getpid() != parent

    in_child(part)


@pytest.mark.slow
@pytest.mark.parametrize("failure", [AssertionError("found"), SystemExit(0), KeyboardInterrupt()])
def test_a_failure_in_a_child_fails_here_with_its_traceback(
    failure: BaseException, capfd: pytest.CaptureFixture[str]
) -> None:
    def part() -> None:
        raise failure

    with pytest.raises(AssertionError, match="failed in a child"):
        in_child(part)
    assert type(failure).__name__ in capfd.readouterr().err
