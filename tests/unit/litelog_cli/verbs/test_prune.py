"""If another daemon took over, ``litelog prune`` and the old daemon name the owner and say what to do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ExitCode
from litelog.shipping.state import StateFolder

if TYPE_CHECKING:
    from tests.unit.litelog_cli.conftest import InProcess


def test_a_running_daemon_prunes_by_itself(command: InProcess) -> None:
    replica = command.replica()
    (state,) = (command.folder / "state" / "litelog").glob("*/*/")
    with StateFolder(str(state), "the daemon"):
        done = command("prune", replica, "--max-age", "30d", "--confirm")
    assert done.code == ExitCode.FENCED
    assert "its daemon is running and prunes as its configuration says; stop it first" in done.err


def test_prune_without_the_daemons_state_is_refused_with_where_to_run_it(command: InProcess) -> None:
    done = command("prune", command.replica(), "--max-age", "30d", "--confirm", "--state-dir", "none")
    assert done.code == ExitCode.FENCED
    assert "run this where its daemon keeps its state (--state-dir)" in done.err
    assert "litelog replicate --once --takeover, and prune then" in done.err


@pytest.mark.slow
def test_a_plan_is_in_plain_numbers(command: InProcess) -> None:
    done = command("prune", command.replica(), "--max-age", "30d")
    assert "0 objects to delete, 0 B, every state since 20" in done.out


@pytest.mark.slow
def test_a_takeover_is_explained(command: InProcess) -> None:
    replica = command.replica()
    command.append(1)
    assert command("replicate", "--once", "--takeover", "--state-dir", "other", "log", replica).code == ExitCode.DONE
    command.append(1)
    done = command("replicate", "--once", "log", replica)
    assert done.code == ExitCode.FENCED
    said = r"was succeeded by .*: owner [0-9a-f]{8} on .* took the replica over at 20\S+ \S+Z\. If that"
    assert re.search(said, done.err), done.err
    assert "stop that daemon, then start this one with --takeover" in done.err
