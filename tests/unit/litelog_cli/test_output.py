"""Text from objects is escaped: it cannot control a terminal, begin a line or end a command."""

from __future__ import annotations

import ast
import json
import logging
import re
import sys
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import litelog_cli
from litelog.errors import ExitCode
from litelog.formats.lines import LinesFormat
from litelog_cli.logging_setup import LogLineFormat, set_up_logging
from litelog_cli.main import run
from litelog_cli.output import escape, escape_json, print_table
from replica_clients.file import FileStore
from tests.builders.replica_builder import LogSegment, ReplicaBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.litelog_cli.conftest import InProcess

HOSTILE = "\x1b]0;owned\x07\x1b[31mred\x9b2J\u202egnp\nlitelog: all is well\r\t\x7f"
FILE = "app-\x1b[2J\x9b\u202e\n.log"
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\ud800-\udfff]")


@pytest.fixture
def hostile(tmp_path: Path) -> str:
    """A folder with a replica in which every text controls a terminal. Its newest generation is damaged."""
    builder = ReplicaBuilder(LinesFormat("*"))
    claim = replace(builder.claim(), owner=HOSTILE, host=HOSTILE, log=HOSTILE)
    built = builder.add(claim)
    built.ship_segment(LogSegment(FILE, b"one\ntwo\n", (4, 8), 2))
    built.ship_segment(LogSegment(FILE + "z", b"three\n", (6,), 3), final=None)
    built.snapshot(1)
    reason = replace(builder.claim(), owner=HOSTILE, host=HOSTILE, log=HOSTILE, reason=HOSTILE)
    builder.add(reason, start=False)
    store = FileStore(str(tmp_path / "replica"))
    builder.put_into(store)
    return store.url


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    "verb",
    [
        "generations",
        "segments",
        "wal",
        "snapshots",
        "verify",
        "restore --dry-run -o out",
        "restore -o {out}",
        "prune --max-snapshots 1",
        "cat --generation 0000000900000000",
    ],
)
def test_nothing_in_an_object_steers_a_terminal(
    hostile: str, verb: str, as_json: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *more = verb.format(out=tmp_path / "out").split()
    arguments = [name, *more, *(["--json"] if as_json else []), hostile]
    code = run(arguments)
    said = capsys.readouterr()
    assert code in (ExitCode.DONE, ExitCode.FAILURE, ExitCode.NOTHING_TO_RESTORE, ExitCode.CORRUPTION), said
    assert "unexpected error" not in said.err
    assert said.out + said.err
    assert not UNSAFE.findall(said.out + said.err)
    assert not any(line.startswith("litelog: all is well") for line in said.err.splitlines() + said.out.splitlines())
    for line in said.out.splitlines() if as_json else ():
        json.loads(line)


def test_the_owners_host_is_shown_escaped(hostile: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["generations", hostile]) == ExitCode.DONE
    assert r"\x1b]0;owned\x07\x1b[31mred\x9b2J\u202egnp\nlitelog: all is well\r\t\x7f" in capsys.readouterr().out
    assert run(["generations", "--json", hostile]) == ExitCode.DONE
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (first["host"], first["owner"]) == (HOSTILE, HOSTILE)


@pytest.mark.parametrize("chosen", [LogLineFormat.TEXT, LogLineFormat.JSON])
def test_a_log_line_is_one_line_of_text(chosen: LogLineFormat, capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(logging.INFO, chosen)
    logging.getLogger("litelog.test").warning("owner %s on %s", HOSTILE, "\ud800", extra={"replica": HOSTILE})
    said = capsys.readouterr().err
    assert not UNSAFE.findall(said)
    assert said.count("\n") == 1
    if chosen is LogLineFormat.JSON:
        assert json.loads(said)["message"] == f"owner {HOSTILE} on \ud800"


def test_an_argument_is_shown_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["\x1b[31m"],
        ["restore", "--format", "\x1b[31m", "-o", "x", "/nowhere\x1b[31m"],
        ["cat", "\x9b"],
    ):
        assert run(arguments) != ExitCode.DONE
        said = capsys.readouterr()
        assert not UNSAFE.findall(said.out + said.err)


def test_only_control_characters_are_escaped() -> None:
    assert escape("a.log, é, \U0001f600, C:\\x") == "a.log, é, \U0001f600, C:\\x"
    assert escape("a\x1b\x00\n\udcff\u2029") == "a\\x1b\\x00\\n\\udcff\\u2029"
    text = json.dumps({"a": HOSTILE + "é\ud800"}, ensure_ascii=False)
    assert json.loads(escape_json(text)) == {"a": HOSTILE + "é\ud800"}


@pytest.mark.parametrize("is_terminal", [False, True])
def test_the_columns_of_a_table_are_as_wide_as_their_widest_cell(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wide character takes two columns. In a file no line ends with spaces."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal, raising=False)
    print_table(("file", "bytes", ""), [("\u65e5.log", "1", ""), ("a", "12,345", "\x1b[2J")], ("bytes",))
    lines = re.sub("\x1b[^m]*m", "", capsys.readouterr().out).splitlines()
    assert [line.rstrip() if is_terminal else line for line in lines] == [
        "file     bytes",
        "\u65e5.log       1",
        "a       12,345  \\x1b[2J",
    ]


@pytest.mark.parametrize("terminal", ["xterm", "dumb"])
def test_no_cell_of_a_table_is_cut_on_any_terminal(
    terminal: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", terminal)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    text = " ".join(f"word{number}" for number in range(10))
    print_table(("first", "second", ""), [("f" * 40, "s" * 40, text)])
    shown = capsys.readouterr().out
    assert max(map(len, re.sub("\x1b[^m]*m", "", shown).splitlines())) <= 120
    assert {"f" * 40, "s" * 40, *text.split()} <= set(shown.split())


@pytest.mark.slow
def test_all_that_is_printed_passes_the_one_place_that_escapes() -> None:
    """The exceptions are the bytes of records and JSON lines (``cat``), a number (``append``) and a shell's script."""
    allowed = {"output.py", "completion.py", "append.py", "cat.py"}
    folder = Path(litelog_cli.__file__).parent
    printing = re.compile(r"print|click\.(s?echo|secho|style)|sys\.std(out|err)\.write(lines)?|traceback\.print_.*")
    found = []
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and path.name not in allowed:
                called = ast.unparse(node.func)
                if printing.fullmatch(called):
                    found.append(f"{path.name}:{node.lineno}: {called}")
    assert found == []


def test_json_has_a_version_and_times_in_utc(command: InProcess) -> None:
    replica = command.replica()
    shapes = {
        ("generations",): ("claimed", "first_shipped", "last_shipped"),
        ("snapshots",): ("created",),
        ("segments",): ("lowest_timestamp", "highest_timestamp", "first_shipped", "last_shipped"),
        ("wal", "--headers"): ("lowest_timestamp", "highest_timestamp", "shipped"),
        ("restore", "-o", "out", "--dry-run"): ("last_shipped",),
        ("prune", "--max-age", "30d"): ("time", "window_start"),
    }
    for verb, times in shapes.items():
        for line in command(*verb, "--json", replica).lines:
            assert next(iter(line)) == "version", verb
            assert line["version"] == 1
            for name in times:
                assert datetime.fromisoformat(line[name]).utcoffset() == timedelta(0), (verb, name)


@pytest.mark.parametrize(
    ("arguments", "kind", "code"),
    [
        (["generations", "--json", "nowhere"], "no-replica", ExitCode.NOTHING_TO_RESTORE),
        (["restore", "--json", "replica"], "usage", ExitCode.USAGE),
        (["check", "--json", "s3//bucket"], "config", ExitCode.USAGE),
        (["segments", "--json", "nowhere"], "source-missing", ExitCode.FAILURE),
    ],
)
def test_a_failure_is_json_too(command: InProcess, arguments: list[str], kind: str, code: ExitCode) -> None:
    done = command(*arguments)
    (line,) = done.lines
    assert (done.code, line["version"]) == (code, 1)
    assert (line["error"]["kind"], line["error"]["exit_code"]) == (kind, code)
    assert line["error"]["message"] in done.err
    assert command(*(argument for argument in arguments if argument != "--json")).out == ""


@pytest.mark.slow
def test_a_failure_between_events_is_an_event(command: InProcess) -> None:
    done = command("replicate", "--once", "--json", "nowhere", "replica")
    assert [line["event"] for line in done.lines][-1] == "error"
    assert done.lines[-1]["error"]["kind"] == "source-missing"
