"""The README's section on Spark: its code and commands do what they show, and its options are those that there are."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

from litelog.spark.options import READ_OPTIONS
from litelog.spark.sink.options import OPTIONS
from litelog.spark.stream.options import STREAM_OPTIONS
from litelog_cli.main import run
from tests.builders.readme import README, blocks

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_code_and_commands_hold_what_they_say(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One after the other, in the session that is there. Its workers are in another folder: so paths are whole."""
    (code,) = blocks("python", "Spark")
    (commands,) = blocks("sh", "Spark")
    assert code.count("assert") >= 6
    exec(compile(code.replace("events-", f"{tmp_path}/events-"), "README.md", "exec"), {})
    lines = [shlex.split(line.replace("events-", f"{tmp_path}/events-")) for line in commands.splitlines()]
    assert len(lines) >= 4
    for line in lines:
        assert line[0] == "litelog"
        assert run([*line[1:], "--quiet"]) == 0, line
    said = capsys.readouterr().out
    assert "exported 1000 records" in said
    assert "all is well" in said
    assert '{"last":999}' in said
    assert spark.range(3).count() == 3  # the session of the other tests still works


def test_every_option_is_described() -> None:
    section = README.split("\n## Spark\n", 1)[1].split("\n## ", 1)[0]
    told = set(re.findall(r"`([A-Za-z]+)`", section))
    assert {*READ_OPTIONS, *STREAM_OPTIONS} - {"path", "paths"} <= told
    named = {*re.findall(r"`([A-Za-z]+)(?:=true)?`", section)}
    assert {*OPTIONS} - {"path"} <= named
