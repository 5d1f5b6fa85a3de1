"""The command as a whole: help, completion, exit codes, messages."""

from __future__ import annotations

import errno
import json
import logging
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import click
import pytest

import litelog.errors
from litelog import LogWriter
from litelog.errors import ExitCode, LitelogError, NothingToRestoreError
from litelog_cli import logging_setup
from litelog_cli.main import BROKEN_PIPE, INTERRUPTED, run
from litelog_cli.verb_group import VERBS, VerbGroup

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

HEAVY = {"pydantic", "numpy", "pyarrow", "rich", "yaml", "lz4", "watchdog"}


@pytest.mark.parametrize("arguments", [["version"], ["--version"], ["completion", "bash"], ["version", "--help"]])
def test_a_small_verb_imports_nothing_heavy(arguments: list[str]) -> None:
    script = (
        "import json, sys; from litelog_cli.main import run; "
        f"code = run({arguments!r}); print(); print(json.dumps([code, *sorted(sys.modules)]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    code, *modules = json.loads(done.stdout.splitlines()[-1])
    assert code == 0
    assert not HEAVY & set(modules)


def make_replica(folder: Path) -> None:
    """Replicate a log of one record to the folder ``replica``."""
    with LogWriter(folder / "log") as writer:
        writer.append(b"record")
    places = ("--state-dir", str(folder / "state"), str(folder / "log"), str(folder / "replica"))
    assert run(["replicate", "--once", *places]) == ExitCode.DONE


def test_a_verb_that_opens_a_folder_searches_no_installed_packages(tmp_path: Path) -> None:
    """Built-in stores and formats need no search for entry points, which takes a tenth of a command's time."""
    script = (
        "import json, sys; from litelog_cli.main import run; "
        f"code = run(['restore', '-o', {str(tmp_path / 'out')!r}, {str(tmp_path / 'replica')!r}]); "
        "print(); print(json.dumps([code, *sorted(sys.modules)]))"
    )
    make_replica(tmp_path)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    code, *modules = json.loads(done.stdout.splitlines()[-1])
    assert code == 0
    assert "importlib.metadata" not in modules
    assert not {"argparse", "email"} & set(modules)


@pytest.mark.parametrize("verb", ["generations", "wal"])
def test_a_listing_of_a_small_replica_loads_no_numpy(verb: str, tmp_path: Path) -> None:
    """NumPy would take half of their time."""
    make_replica(tmp_path)
    script = f"import sys; from litelog_cli.main import run; code = run([{verb!r}, {str(tmp_path / 'replica')!r}]); "
    script += "print([int(code), 'numpy' in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[0, False]"


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_every_verb_describes_it_with_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([verb, "--help"]) == ExitCode.DONE
    text = capsys.readouterr().out
    assert text.startswith(f"Usage: litelog {verb}")
    assert f"Examples:\n    litelog {verb}" in text or f"| litelog {verb}" in text


DAILY = ["append", "cat", "copy", "mirror", "prune", "replicate", "restore", "snapshot", "status", "sync", "verify"]


@pytest.mark.parametrize("verb", DAILY)
def test_the_help_of_a_daily_verb_states_its_exit_codes_in_lines_that_fit(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run([verb, "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert "Exit codes: 0 " in "\n".join(lines)
    prose = [line for line in lines if not line.startswith("    ")]  # an example is one line, however long
    assert [line for line in prose if len(line) > 86] == []


def test_the_command_lists_its_verbs_and_its_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == ExitCode.DONE
    text = capsys.readouterr().out
    for verb in VERBS:
        assert f"\n  {verb} " in text
    assert "4 final sync failed, 5 fenced" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Usage: litelog"),
        (["frobnicate"], "no verb 'frobnicate'"),
        (["version", "--jsn"], "No such option"),
        (["restore", "somewhere"], "-o FOLDER is missing"),
        (["append", "--batch", "0", "log"], "Invalid value for '--batch'"),
        (["replicate", "log"], "LOG_DIR needs at least one REPLICA_URL"),
        (["replicate", "--config", "x", "log", "url"], "--config and LOG_DIR exclude each other"),
        (["replicate", "--format", "raw"], "--format needs LOG_DIR"),
        (["replicate", "--once", "--exec", "true", "log", "url"], "--once and --exec exclude each other"),
        (["wal", "--generation", "xyz", "url"], "not a generation"),
        (["restore", "url", "-o", "out", "--index", "xyz"], "not an index"),
        (["restore", "url", "-o", "out", "--index", "1_0"], "not an index"),
        (["restore", "url", "-o", "out", "--index", "0x0"], "not an index"),
        (["restore", "url", "-o", "out", "--timestamp", "latest"], "not a time"),
        (["completion", "tcsh"], "Invalid value"),
    ],
)
def test_a_wrong_command_line_exits_with_2_and_says_why(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert message in captured.out + captured.err


def raising(error: BaseException) -> click.Command:
    @click.command()
    @click.argument("arguments", nargs=-1)
    def verb(arguments: tuple[str, ...]) -> None:
        assert arguments is not None
        raise error

    return verb


ERRORS = [
    kind
    for kind in vars(litelog.errors).values()
    if isinstance(kind, type) and issubclass(kind, LitelogError) and kind.__init__ is Exception.__init__
]


@pytest.mark.parametrize("kind", ERRORS)
def test_a_litelog_error_is_one_line_and_has_its_exit_code(
    kind: type[LitelogError], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([], raising(kind("what happened"))) == kind.exit_code
    assert capsys.readouterr().err == "litelog: what happened\n"


def test_a_file_that_cannot_be_read_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    error = PermissionError(errno.EACCES, "Permission denied", "/secret/place")
    assert run([], raising(error)) == ExitCode.FAILURE
    assert capsys.readouterr().err == "litelog: /secret/place: Permission denied\n"


def test_a_bug_is_one_line_and_shows_its_trace_only_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["a"], raising(ZeroDivisionError("by nought"))) == ExitCode.FAILURE
    assert capsys.readouterr().err == (
        "litelog: unexpected error: ZeroDivisionError: by nought (litelog -v shows where)\n"
    )
    assert run(["--", "-v"], raising(ZeroDivisionError("by nought"))) == ExitCode.FAILURE
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_ends_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([], raising(KeyboardInterrupt())) == INTERRUPTED
    assert "Traceback" not in capsys.readouterr().err


def test_a_reader_that_went_away_ends_the_command_quietly(litelog: Command) -> None:
    process = litelog.start("append", "--batch", "1", "log")
    assert process.stdin
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    process.stdin.write("a\nb\nc\n")
    process.stdin.close()
    assert process.wait(240) == BROKEN_PIPE
    assert process.stderr.read() == ""


CLOSED = ("<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-")


def in_shell(litelog: Command, redirections: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command with its standard streams redirected or closed."""
    line = [
        "sh",
        "-c",
        f'unset PYTHONUNBUFFERED; exec "$@" {redirections}',
        "sh",
        sys.executable,
        "-m",
        "litelog_cli",
        *arguments,
    ]
    return subprocess.run(
        line, cwd=litelog.folder, env=litelog.environment, input="a\n", capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("closed", CLOSED)
def test_closed_standard_streams_stop_no_replication(litelog: Command, closed: str) -> None:
    litelog.lines(3)
    done = in_shell(litelog, closed, "replicate", "--once", "log", "replica")
    assert (done.returncode, done.stdout) == (ExitCode.DONE, "")
    assert "Traceback" not in done.stderr
    assert in_shell(litelog, closed, "restore", "replica", "-o", "again").returncode in (0, 1)
    assert (litelog.folder / "again" / f"{0:020}.log").read_bytes() == (
        litelog.folder / "log" / f"{0:020}.log"
    ).read_bytes()


def test_a_file_never_takes_the_place_of_a_closed_stream(litelog: Command) -> None:
    """Otherwise the standard error of a program could end up in a log segment or in a lock file."""
    litelog.lines(3)
    program = "python3 -c 'import os; print(*(os.readlink(f\"/proc/self/fd/{n}\") for n in range(3)))'"
    done = in_shell(litelog, "<&- 2>&-", "replicate", "--exec", program, "log", "replica")
    assert done.returncode == ExitCode.DONE
    read, _, said = done.stdout.split()
    assert (read, said) == (os.devnull, os.devnull)


@pytest.mark.parametrize(
    ("redirection", "reason"), [(">&-", "Bad file descriptor"), (">/dev/full", "No space left on device")]
)
@pytest.mark.parametrize("arguments", [("cat", "log"), ("cat", "--json", "log"), ("append", "log"), ("version",)])
def test_output_that_is_not_taken_is_distinguished_from_a_full_disk_of_the_log(
    litelog: Command, redirection: str, reason: str, arguments: tuple[str, ...]
) -> None:
    litelog.lines(3)
    done = in_shell(litelog, redirection, *arguments)
    assert done.returncode == ExitCode.FAILURE
    assert done.stderr == f"litelog: standard output: {reason}\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_output_of_which_only_a_part_fits_is_a_failure(
    litelog: Command, options: tuple[str, ...], unbuffered: str
) -> None:
    """Without Python's buffer, a write takes as many bytes as fit, and raises no error."""
    assert litelog("append", "log", text="x" * 10_000 + "\n").code == ExitCode.DONE
    line = 'ulimit -f 1; exec "$@" > out'
    done = subprocess.run(
        ["sh", "-c", line, "sh", sys.executable, "-m", "litelog_cli", "cat", *options, "log"],
        cwd=litelog.folder,
        env={**litelog.environment, "PYTHONUNBUFFERED": unbuffered},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "File too large" in done.stderr) == (ExitCode.FAILURE, True)


def test_names_that_are_not_utf_8_are_names(litelog: Command) -> None:
    log, replica, again = (os.fsdecode(b"%s\xff\xfe" % name) for name in (b"log", b"replica", b"again"))
    litelog.lines(3)
    assert litelog("replicate", "--once", "log", "replica").code == ExitCode.DONE
    (litelog.folder / "log").rename(litelog.folder / log)
    (litelog.folder / "replica").rename(litelog.folder / replica)
    environment = {"PYTHONIOENCODING": "utf-8:strict"}  # as in a locale such as en_US.UTF-8
    assert len(litelog("cat", log, **environment).out.splitlines()) == 3
    assert len(litelog("cat", replica, **environment).out.splitlines()) == 3
    done = litelog("restore", replica, "-o", again, **environment)
    assert (done.code, "again\\udcff\\udcfe" in done.out) == (ExitCode.DONE, True)
    done = litelog("restore", "--delta", "--json", replica, "-o", again, **environment)
    assert (done.code, done.lines[0]["output"]) == (ExitCode.DONE, str(litelog.folder / again))


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_output_is_json_under_any_encoding_of_standard_output(litelog: Command, encoding: str) -> None:
    values = ["caf\u00e9", "\u65e5\u672c", "\U0001f600"]
    assert litelog("append", "log", text="".join(f"{value}\n" for value in values)).code == ExitCode.DONE
    arguments = [sys.executable, "-m", "litelog_cli", "cat", "--json", "log"]
    environment = {**litelog.environment, "PYTHONIOENCODING": encoding}
    done = subprocess.run(arguments, cwd=litelog.folder, env=environment, capture_output=True, check=True)
    assert [json.loads(line)["value"] for line in done.stdout.decode(encoding).splitlines()] == values


def test_each_logged_event_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    logging_setup.set_up_logging(logging.INFO)
    logging.getLogger("litelog.test").info("two\nlines")
    logging.getLogger("litelog.test").debug("unseen")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("Z INFO two | lines")


@pytest.mark.parametrize(
    ("shell", "sign"), [("bash", "complete -o"), ("zsh", "#compdef litelog"), ("fish", "complete ")]
)
def test_completion_is_printed_for_each_shell(shell: str, sign: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == ExitCode.DONE
    assert sign in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("litelog rep", "plain,replicate"),
        ("litelog restore --if-n", "plain,--if-not-exists"),
        ("litelog spark mai", "plain,maintain"),
        ("litelog spark maintain --con", "plain,--confirm"),
        ("litelog cat ev", "dir,ev"),
        ("litelog replicate events bac", "dir,bac"),
        ("litelog restore backup -o ev", "dir,ev"),
    ],
)
def test_a_shell_completes_verbs_options_and_folders(litelog: Command, words: str, expected: str) -> None:
    assert expected in complete(litelog, words)


@pytest.mark.parametrize("verb", ["restore", "segments"])
def test_a_shell_completes_the_generations_of_a_replica(litelog: Command, verb: str) -> None:
    litelog.lines(3)
    assert litelog("replicate", "--once", "log", "replica").code == ExitCode.DONE
    name = litelog("generations", "replica", "--json").lines[0]["generation"]
    assert complete(litelog, f"litelog {verb} replica --generation 0") == [f"plain,{name}"]
    assert not any(complete(litelog, f"litelog {verb} --generation 0"))


def complete(litelog: Command, words: str) -> list[str]:
    """What a shell offers in the place of the last of ``words``."""
    count = str(len(words.split()) - 1)
    # click derives the variable's name from the program's name, so this has to be the script's.
    script = "import sys; sys.argv[0] = 'litelog'; from litelog_cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=litelog.folder,
        env={**litelog.environment, "_LITELOG_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": count},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.splitlines()


def test_only_listed_verbs_are_imported() -> None:
    assert VerbGroup().get_command(click.Context(click.Command("litelog")), "main") is None


def test_nothing_to_restore_has_its_own_code() -> None:
    assert NothingToRestoreError.exit_code == 3
