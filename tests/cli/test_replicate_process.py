"""``litelog replicate`` as a process: signals, the program of ``--exec``, configuration, exit codes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from litelog.errors import ExitCode
from litelog_cli.main import run
from tests.builders.short_waits import SHORT_WAITS
from tests.sampling import examples

if TYPE_CHECKING:
    from conftest import Command


def sequences(litelog: Command, replica: str) -> int | None:
    """The sequence after the last record that a replica holds."""
    done = litelog("generations", "--json", replica)
    return done.lines[-1]["next"] if done.code == 0 else None


def test_once_ships_the_existing_data_to_every_replica(litelog: Command) -> None:
    litelog.lines(2500)
    done = litelog("replicate", "--once", "--json", "log", "one", f"file://{litelog.folder}/two")
    assert done.code == ExitCode.DONE
    states = [line for line in done.lines if line["event"] == "status"]
    assert [(state["phase"], state["next"]) for state in states] == [("done", 2500)] * 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_begins_the_final_sync(litelog: Command, number: signal.Signals) -> None:
    litelog.lines(10)
    # With an interval of a day, only the final sync can ship records after the first WAL segment.
    process = litelog.start("replicate", "--sync-interval", "1d", "log", "replica")
    litelog.wait_for_line(process, "begins")
    litelog.lines(10)
    process.send_signal(number)
    assert process.wait(240) == ExitCode.DONE
    assert sequences(litelog, "replica") == 20


def test_a_signal_while_it_waits_for_a_folder_ends_it_well(litelog: Command) -> None:
    process = litelog.start("replicate", "nope", "backup")
    litelog.wait_for_line(process, "waiting for")
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    assert process.returncode == 0, said
    assert f"{litelog.folder}/nope: there was nothing to ship; the folder never appeared" in said
    assert "failed" not in said


def test_replication_continues_when_no_reader_takes_its_events(litelog: Command) -> None:
    litelog.lines(10)
    process = litelog.start("replicate", "--json", "--sync-interval", "1ms", "log", "replica")
    assert process.stdout
    assert '"began"' in process.stdout.readline()
    process.stdout.close()
    litelog.lines(10)
    litelog.lines(10)
    process.send_signal(signal.SIGTERM)
    assert process.wait(240) == 141
    assert sequences(litelog, "replica") == 30


def test_a_second_signal_ends_at_once_and_the_program_with_it(litelog: Command) -> None:
    litelog.lines(1)
    stubborn = "sh -c \"trap '' TERM; echo $$; exec 2>/dev/null; while :; do sleep 0.05; done\""
    process = litelog.start("replicate", "--exec", stubborn, "log", "replica")
    assert process.stdout
    child = int(process.stdout.readline())
    process.send_signal(signal.SIGTERM)
    litelog.wait_for_line(process, "forwarded")
    process.send_signal(signal.SIGTERM)
    assert process.wait(240) == 128 + signal.SIGTERM
    assert not process.stdout.read()  # the other end is closed: the program has ended
    assert not Path(f"/proc/{child}/cmdline").exists() or not Path(f"/proc/{child}/cmdline").read_bytes()


@pytest.mark.parametrize(("program", "code"), [("true", 0), ("sh -c 'exit 7'", 7), ("sh -c 'kill -9 $$'", 137)])
def test_with_exec_the_exit_code_is_the_programs(litelog: Command, program: str, code: int) -> None:
    litelog.lines(3)
    done = litelog("replicate", "--exec", program, "log", "replica")
    assert done.code == code
    assert sequences(litelog, "replica") == 3


def test_the_last_writes_of_the_program_are_in_the_final_sync(litelog: Command) -> None:
    program = f"sh -c 'echo last words | {sys.executable} -m litelog_cli append log'"
    litelog.lines(3)
    assert litelog("replicate", "--exec", program, "log", "replica").code == 0
    assert sequences(litelog, "replica") == 4


def test_a_signal_is_forwarded_to_the_program(litelog: Command) -> None:
    litelog.lines(3)
    program = "sh -c \"trap 'exit 42' TERM; echo ready; while :; do sleep 0.05; done\""
    process = litelog.start("replicate", "--exec", program, "log", "replica")
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(240) == 42
    assert sequences(litelog, "replica") == 3


def test_a_final_sync_that_fails_has_its_own_code_unless_the_program_failed_too(litelog: Command) -> None:
    """Another log's folder never appears. This is not a failure."""
    litelog.lines(1)
    (litelog.folder / "file").touch()
    body = "shutdown-timeout: 100ms\nlogs:\n  - {path: log, replicas: [{url: file/below}]}\n"
    body += "  - {path: missing, replicas: [{url: replica}]}\n"
    (litelog.folder / "c.yml").write_text(body)
    done = litelog("replicate", "--exec", "true", "--config", "c.yml")
    assert done.code == ExitCode.FINAL_SYNC_FAILED
    assert "final sync of log to" in done.err
    assert "final sync of missing" not in done.err
    assert litelog("replicate", "--exec", "sh -c 'exit 7'", "--config", "c.yml").code == 7


@pytest.mark.parametrize(
    ("program", "message"),
    [("no-such-program", "No such file"), ("", "names no program"), ("'unclosed", "No closing quotation")],
)
def test_a_program_that_cannot_run_is_a_usage_error(litelog: Command, program: str, message: str) -> None:
    litelog.lines(1)
    done = litelog("replicate", "--exec", program, "log", "replica")
    assert done.code == ExitCode.USAGE
    assert message in done.err
    assert sequences(litelog, "replica") is None


def test_a_program_is_not_started_where_the_configuration_cannot_work(litelog: Command) -> None:
    done = litelog("replicate", "--exec", "touch started", "log", "nowhere://x")
    assert done.code == ExitCode.USAGE
    assert not (litelog.folder / "started").exists()


def test_another_owners_replica_is_not_touched_without_permission(litelog: Command) -> None:
    litelog.lines(3)
    assert litelog("replicate", "--once", "log", "replica").code == 0
    litelog.lines(3)
    done = litelog("replicate", "--once", "--state-dir", "other", "log", "replica")
    assert done.code == ExitCode.FENCED
    assert "--takeover" in done.err
    assert sequences(litelog, "replica") == 3
    assert litelog("replicate", "--once", "--takeover", "--state-dir", "other", "log", "replica").code == 0
    assert sequences(litelog, "replica") == 6


def test_an_unknown_scheme_or_format_lists_the_known_ones(litelog: Command) -> None:
    litelog.lines(1)
    done = litelog("replicate", "--once", "log", "nowhere://x")
    assert (done.code, "known: file, http, https, memory" in done.err) == (ExitCode.USAGE, True)
    done = litelog("replicate", "--once", "log", "gs://bucket/x")
    assert (done.code, "gcsfs" in done.err) == (ExitCode.USAGE, True)
    done = litelog("replicate", "--once", "--format", "nonsense", "log", "replica")
    assert (done.code, "litelog" in done.err and "raw" in done.err) == (ExitCode.USAGE, True)


CONFIG = "logs: [{path: log, replicas: [{url: '%s'}]}]"


def test_the_configuration_comes_from_the_option_before_the_environment(litelog: Command) -> None:
    litelog.lines(3)
    (litelog.folder / "one.yml").write_text(CONFIG % "${TARGET}")
    (litelog.folder / "two.yml").write_text(CONFIG % "two")
    both = {"LITELOG_CONFIG": "one.yml", "TARGET": "one"}
    assert litelog("replicate", "--once", **both).code == 0
    assert sequences(litelog, "one") == 3
    assert litelog("replicate", "--once", "--config", "two.yml", **both).code == 0
    assert sequences(litelog, "two") == 3


def test_the_command_lines_state_folder_replaces_the_configured_one(litelog: Command) -> None:
    litelog.lines(3)
    (litelog.folder / "c.yml").write_text("state-dir: own-state\n" + CONFIG % "replica")
    assert litelog("replicate", "--once", "--config", "c.yml").code == 0
    assert (litelog.folder / "own-state").is_dir()
    assert not (litelog.folder / "state").exists()
    assert litelog("replicate", "--once", "--takeover", "--config", "c.yml", "--state-dir", "third").code == 0
    assert (litelog.folder / "third").is_dir()


def test_a_wrong_configuration_exits_with_2_and_all_that_is_wrong(litelog: Command) -> None:
    (litelog.folder / "c.yml").write_text("logs:\n  - path: ${NO}\n    replicas: [{url: x, sync-intervall: 1s}]\n")
    done = litelog("replicate", "--config", "c.yml")
    assert done.code == ExitCode.USAGE
    assert done.err == (
        "litelog: c.yml: 2 errors in the configuration\n"
        "  line 2, column 11: logs[0].path: the variable NO is not set\n"
        "  line 3, column 25: logs[0].replicas[0].sync-intervall: unknown key; did you mean sync-interval?\n"
    )


def test_no_configuration_at_all_says_where_it_is_looked_for(litelog: Command) -> None:
    if Path("/etc/litelog.yml").exists():
        pytest.skip("this machine has a configuration")
    done = litelog("replicate")
    assert done.code == ExitCode.USAGE
    assert "/etc/litelog.yml is not there" in done.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_lines_that_cannot_be_printed_are_an_error_at_the_end(litelog: Command) -> None:
    litelog.lines(10)
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "litelog_cli", "replicate", "--once", "--json", "log", "replica"],
            cwd=litelog.folder,
            env=litelog.environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=240,
        )
    assert done.returncode == ExitCode.FAILURE
    assert "litelog: standard output: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert litelog("cat", "replica").out.count("\n") == 10


def test_the_command_lines_own_mistakes_are_reported_without_a_line(litelog: Command) -> None:
    done = litelog("replicate", "--sync-interval", "soon", "--pattern", "*.log", "log", "a", "./a")
    assert done.code == ExitCode.USAGE
    assert "--sync-interval: must be a duration such as 10s" in done.err
    assert "  --pattern: only the formats lines and raw have a pattern" in done.err


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(50))
@given(body=st.binary(max_size=80) | st.text(alphabet=":-[]{}#&*!|>'\"%@` \nlogspath", max_size=80).map(str.encode))
def test_no_file_gives_a_trace(tmp_path: Path, body: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "any.yml"
    file.write_bytes(body)
    assert run(["replicate", "--once", "--config", str(file)]) == ExitCode.USAGE
    message = capsys.readouterr().err
    assert message.startswith("litelog: ")
    assert "unexpected error" not in message


def test_a_replica_is_the_same_no_matter_how_its_folder_is_spelled(litelog: Command) -> None:
    text = ""
    for spelled in ("./backup", "backup", "backup/", f"{litelog.folder}/backup", f"file://{litelog.folder}/backup"):
        text += litelog.lines(1)
        done = litelog("replicate", "--once", "log", spelled)
        assert (done.code, done.err.count("begins")) == (0, 1 if spelled == "./backup" else 0)
    assert litelog("cat", "backup").out == text
    both = litelog("replicate", "--once", "log", "./backup", f"{litelog.folder}/backup")
    assert (both.code, "name every log and replica once" in both.err) == (ExitCode.USAGE, True)


def test_an_error_of_the_store_names_the_replica_and_the_key(litelog: Command) -> None:
    litelog.lines(1)
    (litelog.folder / "file").touch()
    litelog.before = SHORT_WAITS
    done = litelog("replicate", "--once", "--quiet", "log", "file/below")
    assert done.code == ExitCode.FAILURE
    assert f"litelog: file://{litelog.folder}/file/below: put epochs/00000001.json: " in done.err
