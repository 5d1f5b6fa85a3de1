"""``etc/litelog.service`` names only what the command can do, and denies the daemon everything it does not need."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from litelog.config import load_config
from litelog.errors import ExitCode
from litelog.log.replica_registry import default_state_dir
from litelog.stores.registry import local_folder
from litelog.units import parse_duration
from litelog_cli.config_file import DEFAULT_CONFIG
from litelog_cli.process import LOOK_SECONDS, START_SECONDS
from tests.builders.command_lines import parse_command

ROOT = Path(__file__).resolve().parents[3]
UNIT = ROOT / "etc" / "litelog.service"
MAX_EXPOSURE = 1.5


def settings(section: str) -> dict[str, list[str]]:
    """The settings of a section, each with all its values."""
    found: dict[str, list[str]] = {}
    current = ""
    for line in UNIT.read_text().splitlines():
        if line.startswith("["):
            current = line.strip("[]")
        elif line and not line.startswith("#") and current == section:
            name, value = line.split("=", 1)
            found.setdefault(name, []).append(value)
    return found


SERVICE = settings("Service")


@pytest.fixture
def analyze() -> str:
    command = shutil.which("systemd-analyze")
    if command is None:
        pytest.skip("systemd-analyze is not installed")
    return command


@pytest.mark.slow
def test_the_exposure_stays_low(analyze: str) -> None:
    done = subprocess.run(
        [analyze, "security", "--offline=yes", "--no-pager", str(UNIT)], capture_output=True, text=True, check=False
    )
    overall = re.search(r"Overall exposure level for litelog.service: ([0-9.]+)", done.stdout)
    assert overall, done.stderr
    assert float(overall[1]) <= MAX_EXPOSURE


@pytest.mark.slow
def test_systemd_finds_nothing_wrong_with_it_but_that_it_is_not_installed(analyze: str) -> None:
    done = subprocess.run([analyze, "verify", str(UNIT)], capture_output=True, text=True, check=False)
    problems = [line for line in done.stderr.splitlines() if "litelog.service" in line]
    wrong = [line for line in problems if "/litelog is not executable: No such file" not in line]
    assert not wrong


def test_its_commands_exist() -> None:
    (start,) = SERVICE["ExecStart"]
    program, *arguments = shlex.split(start)
    assert Path(program).name == "litelog"
    parsed = parse_command(arguments)
    assert (parsed["verb"], parsed["config_file"]) == ("replicate", DEFAULT_CONFIG)
    check, hang_up = (shlex.split(line) for line in SERVICE["ExecReload"])
    checked = parse_command(check[1:])
    assert (checked["verb"], checked["file"]) == ("check", DEFAULT_CONFIG)
    assert hang_up[1:] == ["-HUP", "$MAINPID"]
    with pytest.raises(click.NoSuchOption):
        parse_command([*arguments, "--no-such-option"])


def test_failures_that_a_restart_cannot_fix_are_not_restarted() -> None:
    assert {int(code) for code in SERVICE["RestartPreventExitStatus"][0].split()} == {ExitCode.USAGE, ExitCode.FENCED}
    assert SERVICE["Restart"] == ["always"]


def test_readiness_and_the_watchdog_are_the_main_processs_own() -> None:
    assert SERVICE["Type"] == ["notify"]
    assert SERVICE["NotifyAccess"] == ["main"]
    # The loop turns at least once a second, and feeds the watchdog four times within WatchdogSec.
    assert parse_duration(SERVICE["WatchdogSec"][0]) >= 8


def test_a_start_is_bounded_and_longer_than_two_requests_for_more_time() -> None:
    (limit,) = SERVICE["TimeoutStartSec"]
    assert parse_duration(limit.replace("min", "m")) >= 2 * START_SECONDS > 2 * LOOK_SECONDS


def test_the_example_configuration_may_write_its_replica() -> None:
    (log,) = load_config(ROOT / "etc" / "litelog.yml", {}).own_logs
    folders = {local_folder(replica.url) for replica in log.replicas}
    assert folders == {path.removeprefix("-") for line in SERVICE["ReadWritePaths"] for path in line.split()}
    steps = "".join(line for line in UNIT.read_text().splitlines() if line.startswith("#"))
    assert all(f"install -d -o litelog -g litelog -m 0700 {folder}" in steps for folder in folders)


def test_its_state_lies_where_the_configuration_and_the_command_look_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    state = f"/var/lib/{SERVICE['StateDirectory'][0]}"
    assert load_config(ROOT / "etc" / "litelog.yml", {}).state_dir == state
    variables = dict(pair.split("=", 1) for line in SERVICE["Environment"] for pair in line.split())
    monkeypatch.setenv("XDG_STATE_HOME", variables["XDG_STATE_HOME"])
    assert default_state_dir() == state
    longest = load_config(ROOT / "etc" / "litelog.yml", {}).shutdown_timeout
    assert parse_duration(SERVICE["TimeoutStopSec"][0]) > longest


@pytest.mark.slow
def test_a_credential_that_is_not_there_does_not_stop_the_service() -> None:
    loaded = {line.split(":", 1)[0] for line in SERVICE["LoadCredential"]}
    assert loaded
    assert loaded == {line.split(":", 1)[0] for line in SERVICE["SetCredential"]}
    variables = dict(pair.split("=", 1) for line in SERVICE["Environment"] for pair in line.split())
    assert variables["AWS_SHARED_CREDENTIALS_FILE"] == "%d/aws"
    assert "aws" in loaded
