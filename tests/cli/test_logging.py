"""Logging: one line for each event, text for people and JSON for collectors; repeated failures are counted."""

from __future__ import annotations

import ast
import json
import os
import pty
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from litelog.errors import ExitCode, StoreError
from litelog.events import fields, is_worth_logging
from litelog.shipping.backoff import BackOff
from tests.builders.short_waits import SHORT_WAITS

if TYPE_CHECKING:
    from conftest import Command

ROOT = Path(__file__).resolve().parents[2]
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
LEVELS = ("debug", "info", "warning", "error", "exception", "critical", "log")


def objects(text: str) -> list[dict[str, Any]]:
    """Parse JSON lines, and check that each has the common fields."""
    found = [json.loads(line) for line in text.splitlines()]
    for each in found:
        assert TIME.fullmatch(each["time"])
        assert each["level"] in ("DEBUG", "INFO", "WARNING", "ERROR")
        assert each["logger"].startswith("litelog")
        assert each["message"]
        assert each["event"]
    return found


def test_a_collector_gets_json_lines_with_log_replica_and_position(litelog: Command) -> None:
    litelog.lines(3)
    done = litelog("replicate", "--once", "log", "replica", LITELOG_LOG_FORMAT="auto")
    assert done.code == 0
    (began,) = (line for line in objects(done.err) if line["event"] == "generation-begins")
    assert began["log"] == str(litelog.folder / "log")
    assert began["replica"] == f"file://{litelog.folder}/replica"
    assert re.fullmatch(r"[0-9a-f]{16}", began["generation"])
    done = litelog("replicate", "--once", "--state-dir", "other", "log", "replica", LITELOG_LOG_FORMAT="json")
    assert done.code == ExitCode.FENCED
    (end,) = objects(done.err)[-1:]
    assert (end["level"], end["event"], end["exit_code"]) == ("ERROR", "failed", ExitCode.FENCED)


def test_everything_that_a_verb_prints_besides_its_result_is_json_on_request(litelog: Command) -> None:
    litelog.lines(3)
    assert litelog("replicate", "--once", "log", "replica").code == 0
    done = litelog("--log-format", "json", "restore", "missing", "replica", "-o", "out")
    assert done.code == 0
    said = {line["event"]: line for line in objects(done.err)}
    assert {"replica-skipped", "restoring"} <= set(said)
    assert said["restoring"]["position"]
    done = litelog("--log-format", "json", "restore", "--if-not-exists", "replica", "-o", "out")
    assert [line["event"] for line in objects(done.err)] == ["nothing-to-do"]
    done = litelog("--log-format", "json", "restore", "--no-such-option")
    assert (done.code, objects(done.err)[0]["exit_code"]) == (ExitCode.USAGE, ExitCode.USAGE)


def test_repeated_failures_are_counted_and_carry_where(litelog: Command) -> None:
    litelog.lines(3)
    (litelog.folder / "down").write_text("a file where a folder has to be")
    litelog.before = SHORT_WAITS
    process = litelog.start("replicate", "log", "down", "replica", LITELOG_LOG_FORMAT="json")
    said = litelog.wait_for_line(process, "failure 4 in a row")
    failed = [line for line in objects("".join(said)) if line["event"] == "sync-failed"]
    assert [line["consecutive_failures"] for line in failed] == [1, 2, 4]
    assert {line["log"] for line in failed} == {str(litelog.folder / "log")}
    assert all(line["replica"].endswith("down") for line in failed)
    (litelog.folder / "down").unlink()
    said = litelog.wait_for_line(process, "continues after")
    (recovered,) = (line for line in objects("".join(said)) if line["event"] == "recovered")
    assert recovered["consecutive_failures"] >= 4
    process.send_signal(signal.SIGTERM)
    assert process.wait(240) == 0


def test_a_store_that_is_down_for_an_hour_gives_few_lines() -> None:
    back_off, random, now, said = BackOff(), Random(1), 0.0, []
    while now < 3600:
        now += back_off.fail(StoreError("put", "key", "connection refused", retryable=True), random)
        if back_off.worth_logging:
            said.append(back_off.failures)
    assert back_off.failures > 100
    assert said[:4] == [1, 2, 4, 8]
    assert len(said) <= 12
    day = [count for count in range(1, 24 * 120) if is_worth_logging(count)]
    assert 24 <= len(day) <= 60, "a long outage is not logged once or twice an hour"


@pytest.mark.parametrize(
    ("arguments", "shown"), [(["replicate", "--once", "log", "replica"], "json"), (["verify", "nothing"], "text")]
)
def test_without_a_terminal_only_the_daemons_lines_are_json(litelog: Command, arguments: list[str], shown: str) -> None:
    litelog.lines(1)
    done = litelog(*arguments, LITELOG_LOG_FORMAT="auto")
    assert done.err.startswith("{" if shown == "json" else "litelog: ")


def test_a_terminal_gets_text(litelog: Command) -> None:
    litelog.lines(1)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "litelog_cli", "replicate", "--once", "log", "replica"]
    environment = {**litelog.environment, "LITELOG_LOG_FORMAT": "auto"}
    with subprocess.Popen(command, stderr=theirs, cwd=litelog.folder, env=environment) as process:
        os.close(theirs)
        text = b""
        with suppress(OSError):  # EIO, when the other end is closed
            while piece := os.read(ours, 4096):
                text += piece
        assert process.wait(240) == 0
    os.close(ours)
    assert re.search(rb"^" + TIME.pattern.encode() + rb" INFO file://\S+: generation", text)
    assert f"[log={litelog.folder}/log]".encode() in text, "the field that the message lacks was not added"


def test_the_journal_gets_priorities_and_keeps_its_own_times(litelog: Command) -> None:
    litelog.lines(1)
    journal = litelog.folder / "journal"
    command = [sys.executable, "-m", "litelog_cli", "replicate", "--once", "log", "replica"]
    with journal.open("w") as file:
        status = os.fstat(file.fileno())
        stream = f"{status.st_dev}:{status.st_ino}"
        environment = {**litelog.environment, "LITELOG_LOG_FORMAT": "auto", "JOURNAL_STREAM": stream}
        subprocess.run(command, stderr=file, cwd=litelog.folder, env=environment, check=True)
    assert journal.read_text().startswith("<6>file://")
    assert not TIME.search(journal.read_text())


@pytest.mark.parametrize(("level", "there"), [("info", True), ("warning", False)])
def test_a_level_leaves_out_less_important_lines(litelog: Command, level: str, there: bool) -> None:
    litelog.lines(1)
    done = litelog("--log-level", level, "replicate", "--once", "log", "replica")
    assert (done.code, "begins" in done.err) == (0, there)


def test_an_event_is_one_line_with_any_content(litelog: Command) -> None:
    script = (
        "import logging; from litelog_cli.logging_setup import *; from litelog.events import fields;"
        "set_up_logging(logging.INFO, LogLineFormat({!r}));"
        "logging.getLogger('litelog.x').error('a\\nb', extra=fields('e', log='l\\nm', position=None, many=3))"
    )
    for chosen in ("text", "json"):
        done = subprocess.run([sys.executable, "-c", script.format(chosen)], capture_output=True, text=True, check=True)
        assert len(done.stderr.splitlines()) == 1
        if chosen == "json":
            (line,) = objects(done.stderr)
            assert (line["message"], line["log"], line["many"]) == ("a\nb", "l\nm", 3)
            assert "position" not in line


def test_fields_that_are_none_are_left_out() -> None:
    assert fields("gap", log=None, replica="r", position=None, failures=0) == {
        "event": "gap",
        "replica": "r",
        "failures": 0,
    }


def is_log_call(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in LEVELS
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "_logger"
    )


def log_calls() -> list[tuple[str, ast.Call]]:
    """Each call of a logger, with its file and line."""
    paths = [path for folder in ("litelog", "replica_clients", "cmd") for path in sorted((ROOT / folder).rglob("*.py"))]
    trees = ((path.relative_to(ROOT), ast.parse(path.read_text())) for path in paths)
    nodes = ((path, node) for path, tree in trees for node in ast.walk(tree))
    return [(f"{path}:{node.lineno}", node) for path, node in nodes if isinstance(node, ast.Call) and is_log_call(node)]


def test_every_event_has_a_name_and_its_fields() -> None:
    calls = log_calls()
    assert len(calls) > 30
    bare = [place for place, call in calls if not any(keyword.arg == "extra" for keyword in call.keywords)]
    assert not bare, "these calls need extra=fields(...)"


def test_no_message_is_put_together_before_it_is_logged() -> None:
    wrong = [place for place, call in log_calls() if any(isinstance(each, ast.JoinedStr) for each in call.args)]
    assert not wrong
