"""``etc/docs/scripting.md`` names the fields that ``--json`` prints, and every verb's exit codes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ExitCode
from litelog_cli.verb_group import VERBS
from replica_clients.file import FileStore
from tests.builders.batch_replicas import small_appends
from tests.builders.documents import section

if TYPE_CHECKING:
    from conftest import Command

PAGE = "etc/docs/scripting.md"
ROWS = {
    verb: set(re.findall(r"`(\w+)`", fields))
    for verb, fields in re.findall(r"^\| `([a-z ]+)` \| [^|]* \| (.*) \|$", section(PAGE, "JSON"), re.MULTILINE)
}
"""The fields of each verb whose output has one shape."""

COMMANDS = {
    "append": "append log",
    "cat": "cat log",
    "copy": "copy backup copied",
    "snapshot": "snapshot log backup",
    "generations": "generations backup",
    "snapshots": "snapshots backup",
    "wal": "wal backup",
    "verify": "verify backup",
    "restore": "restore backup -o restored",
    "repair": "repair log backup",
    "prune": "prune backup --max-age 30d",
    "spark maintain": "spark maintain appended",
    "config check": "config check litelog.yml",
    "forget": "forget log backup",
}


@pytest.fixture
def shipped(litelog: Command) -> Command:
    litelog.lines(30)
    assert litelog("replicate", "--once", "log", "backup").code == 0
    small_appends(1, inner=FileStore(str(litelog.folder / "appended")))
    (litelog.folder / "litelog.yml").write_text("logs:\n  - path: log\n    replicas:\n      - url: backup\n")
    return litelog


def test_each_field_is_named(shipped: Command) -> None:
    for verb, command in COMMANDS.items():
        done = shipped(*command.split(), "--json", text="one more\n")
        assert done.code == 0, done.err
        assert set(done.lines[-1]) - {"version"} == ROWS[verb], verb
        assert ("version" in done.lines[-1]) == (verb != "cat")


def test_the_fields_of_a_check_of_a_local_log_are_named(shipped: Command) -> None:
    row = re.search(r"^\| `verify` of a local log \| [^|]* \| (.*) \|$", section(PAGE, "JSON"), re.MULTILINE)
    assert row is not None
    (report,) = shipped("verify", "log", "--format", "litelog", "--json").lines
    assert set(report) - {"version"} == set(re.findall(r"`(\w+)`", row[1]))


def test_each_step_of_a_check_has_the_fields_of_its_row(litelog: Command) -> None:
    *steps, result = litelog("check", "backup", "--json").lines
    row = next(line for line in section(PAGE, "JSON").splitlines() if line.startswith("| `check`"))
    of_steps, _, of_result = row.partition("; last ")
    assert {"step", "outcome", "seconds", "required", "reason", "meaning"} <= set(re.findall(r"`(\w+)`", of_steps))
    assert set(steps[0]) - {"version"} <= set(re.findall(r"`(\w+)`", of_steps))
    assert set(result) - {"version"} == set(re.findall(r"`(\w+)`", of_result))


def test_each_exit_code_is_explained() -> None:
    explained = re.findall(r"^\| (\d) \|", section(PAGE, "Exit codes"), re.MULTILINE)
    assert [int(code) for code in explained] == sorted(ExitCode)


def test_each_verb_has_a_row_of_exit_codes() -> None:
    rows = re.findall(r"^\| (`[^|]*`) \| ", section(PAGE, "Exit codes"), re.MULTILINE)
    described = {name.split()[0] for row in rows for name in re.findall(r"`([a-z ]+)`", row)}
    assert set(VERBS) - described == {"version", "completion"}
