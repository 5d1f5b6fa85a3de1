"""The README's commands and code do what they show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ConfigError
from replica_clients.s3.settings import read_settings
from tests.builders.readme import README, ROOT, blocks

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A shell in which the command is this one."""
    command = tmp_path / "bin" / "litelog"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m litelog_cli "$@"\n')
    command.chmod(0o755)
    (tmp_path / "work").mkdir()
    return {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}", "XDG_STATE_HOME": str(tmp_path / "state")}


def run_script(script: str, tmp_path: Path, environment: dict[str, str]) -> str:
    """What it prints; it must end well."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path / "work",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_commands_of_use_run_one_after_the_other(tmp_path: Path, environment: dict[str, str]) -> None:
    commands = blocks("sh", "Use")
    assert len(commands) >= 4
    script = "\n".join(commands).replace("/tmp/litelog-second", str(tmp_path / "second"))
    said = run_script(script, tmp_path, environment)
    assert "\n100000\n" in said  # the last record, from the restored log
    assert (tmp_path / "work" / "events-then").is_dir()


def test_the_commands_of_as_a_service_run_one_after_the_other(tmp_path: Path, environment: dict[str, str]) -> None:
    commands = blocks("sh", "As a service")
    assert len(commands) >= 2
    # Another daemon on this machine may have the port.
    script = "\n".join(commands).replace(
        "litelog config check", "echo 'addr: \"off\"' >> litelog.yml\nlitelog config check"
    )
    said = run_script(script + "\nlitelog generations --json journal-backup", tmp_path, environment)
    assert "litelog.yml: valid" in said
    assert "shutdown-timeout: 10s" in said
    assert '"next_sequence": 20' in said


def test_every_file_that_is_for_a_service_is_explained() -> None:
    section = README.split("\n## As a service\n", 1)[1].split("\n## ", 1)[0]
    there = {f"etc/{path.name}" for path in (ROOT / "etc").iterdir() if path.is_file() and path.name != "README.md"}
    assert set(re.findall(r"^\| `(etc/[^`]+)` \|", section, re.M)) == there


def test_the_python_example_holds_what_it_asserts(tmp_path: Path, environment: dict[str, str]) -> None:
    (example,) = blocks("python", "In Python")
    assert example.count("assert") >= 3
    command = [sys.executable, "-c", example]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_option_of_s3_is_explained_once() -> None:
    with pytest.raises(ConfigError, match="it has") as refused:
        read_settings("s3://bucket", {"?": ""})
    known = str(refused.value).partition("it has ")[2].rstrip(")").split(", ")
    table = README.split("\nOptions of `s3://`", 1)[1].split("\n\n", 2)[1]
    assert len(known) > 15
    assert sorted(re.findall(r"`([a-z0-9-]+)`", "\n".join(re.findall(r"^\| (`.*?) \|", table, re.M)))) == known


def test_ci_runs_the_test_command_of_the_readme() -> None:
    command = README.split("<!-- test command -->\n```sh\n", 1)[1].split("\n```", 1)[0]
    assert "pytest" in command
    assert "README.md" in (ROOT / ".ci" / "run").read_text()


def test_the_demo_command_is_there() -> None:
    command = README.split("<!-- demo command -->\n```sh\n", 1)[1].split("\n```", 1)[0]
    assert command.endswith("litelog demo")
