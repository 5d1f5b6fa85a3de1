"""A part of a test that runs in a child process fails as it would in this one."""

from __future__ import annotations

import os

import pytest

from tests.builders.child import in_child, runs_in_child


def test_in_child_runs_a_function_in_another_process_and_returns_its_result() -> None:
    bulk = bytes(range(256)) * 1000  # more than a pipe holds
    process, result = in_child(lambda: (os.getpid(), bulk))
    assert process != os.getpid()
    assert result == bulk


def test_a_decorated_test_runs_in_a_child_with_its_arguments(capfd: pytest.CaptureFixture[str]) -> None:
    parent = os.getpid()

    @runs_in_child
    def test(one: int, *, two: int) -> None:
        assert (os.getpid() == parent, one, two) == (False, 1, 2)

    test(1, two=2)
    with pytest.raises(AssertionError, match="failed in a child"):
        test(1, two=3)
    assert "(False, 1, 3)" in capfd.readouterr().err


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
