"""``litelog cat --consumer`` continues where it was, and ``litelog consumers`` lists, moves and deletes positions."""

from __future__ import annotations

import json
import shutil
import socket
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ExitCode
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from conftest import Command

    from tests.warm import Running


def numbers(out: str) -> list[int]:
    return [int(line.split()[1]) for line in out.splitlines()]


def listed(litelog: Command, place: str = "log") -> list[tuple[str, int | None, int | None]]:
    done = litelog("consumers", "list", "--json", place)
    assert done.code == ExitCode.DONE, done.err
    return [(each["consumer"], each["next"], each["lag_records"]) for each in done.lines]


def test_a_consumer_gets_each_record_once_over_several_runs(litelog: Command) -> None:
    litelog.lines(20)
    assert numbers(litelog("cat", "--consumer", "billing", "log").out) == list(range(20))
    assert litelog("cat", "--consumer", "billing", "log").out == ""
    litelog("append", "log", text="line 20\nline 21\n")
    assert listed(litelog) == [("billing", 20, 2)]
    assert numbers(litelog("cat", "--consumer", "billing", "log").out) == [20, 21]
    assert numbers(litelog("cat", "--consumer", "audit", "--from", "latest", "log").out) == [21]
    assert listed(litelog) == [("audit", 22, 0), ("billing", 22, 0)]


def test_what_netlog_does_with_a_scanner_takes_three_commands(litelog: Command) -> None:
    """Its README creates a scanner, reads from it, and deletes it. An ephemeral one is ``cat --from``."""
    litelog.lines(5)
    assert numbers(litelog("cat", "--consumer", "scanner", "--from", "beginning", "log").out) == [0, 1, 2, 3, 4]
    assert "scanner" in litelog("consumers", "list", "log").out
    assert litelog("consumers", "delete", "log", "scanner").code == ExitCode.DONE
    assert listed(litelog) == []


def test_a_consumer_moves_back_and_forward(litelog: Command) -> None:
    litelog.lines(10)
    litelog("cat", "--consumer", "billing", "log")
    done = litelog("consumers", "move", "log", "billing", "7")
    assert done.out == "moved: billing of log to sequence 7\n"
    assert numbers(litelog("cat", "--consumer", "billing", "log").out) == [7, 8, 9]
    done = litelog("consumers", "move", "--json", "log", "billing", "beginning")
    assert (done.code, done.lines[0]["next"]) == (ExitCode.DONE, None)
    assert listed(litelog) == [("billing", None, 10)]
    refused = litelog("consumers", "move", "log", "billing", "11")
    assert (refused.code, listed(litelog)) == (ExitCode.USAGE, [("billing", None, 10)])
    assert "the next record will have the sequence 10" in refused.err


@pytest.mark.parametrize("verb", [["move", "log", "biling", "end"], ["delete", "log", "biling"]])
def test_a_mistyped_name_is_refused_with_those_that_exist(litelog: Command, verb: list[str]) -> None:
    litelog.lines(3)
    litelog("cat", "--consumer", "billing", "log")
    done = litelog("consumers", *verb)
    assert (done.code, "no consumer biling (known: billing)" in done.err) == (ExitCode.USAGE, True)
    assert listed(litelog) == [("billing", 3, 0)]


def test_standard_input_acknowledges_what_is_processed(litelog: Command) -> None:
    litelog.lines(10)
    process = litelog.start("cat", "--consumer", "billing", "--ack", "manual", "--json", "--follow", "log")
    assert process.stdin is not None
    assert process.stdout is not None
    seen = [json.loads(process.stdout.readline())["sequence"] for _ in range(10)]
    process.stdin.write("3\n6\n5\n")
    out, err = process.communicate("", timeout=240)  # the end of the input ends it
    litelog.processes.remove(process)
    assert (process.returncode, out, seen) == (ExitCode.DONE, "", list(range(10))), err
    assert listed(litelog) == [("billing", 7, 3)]
    wrong = litelog("cat", "--consumer", "billing", "--ack", "manual", "log", text="all\n")
    assert (wrong.code, "acknowledges sequences, one a line" in wrong.err) == (ExitCode.USAGE, True)
    assert listed(litelog) == [("billing", 7, 3)]


def test_of_two_processes_of_one_name_the_second_to_commit_is_refused(litelog: Command) -> None:
    litelog.lines(10)
    first = litelog.start("cat", "--consumer", "billing", "--ack", "manual", "--follow", "log")
    assert first.stdin is not None
    assert first.stdout is not None
    for _ in range(10):
        first.stdout.readline()
    assert numbers(litelog("cat", "--consumer", "billing", "log").out) == list(range(10))
    _, err = first.communicate("2\n", timeout=240)
    litelog.processes.remove(first)
    assert first.returncode == ExitCode.FENCED
    assert "consumer billing was moved to sequence 10 by another process" in err
    assert listed(litelog) == [("billing", 10, 0)]


def test_a_consumer_of_a_rewound_log_is_told_and_stays(litelog: Command) -> None:
    litelog.lines(10)
    litelog("cat", "--consumer", "billing", "log")
    shutil.rmtree(litelog.folder / "log")
    litelog("append", "log", text="other\n" * 20)
    done = litelog("cat", "--consumer", "billing", "log")
    assert (done.code, done.out) == (ExitCode.FAILURE, "")
    assert "holds another record at sequence 9, which consumer billing has processed" in done.err
    assert listed(litelog) == [("billing", 10, 10)]
    litelog("consumers", "move", "log", "billing", "beginning")
    assert litelog("cat", "--consumer", "billing", "log").out == "other\n" * 20


def test_a_configured_log_is_read_from_its_replica_where_the_folder_ends(litelog: Command) -> None:
    litelog.lines(10)
    assert litelog("replicate", "--once", "log", "backup").code == ExitCode.DONE
    config = litelog.folder / "litelog.yml"
    config.write_text(f"logs:\n  - path: {litelog.folder}/log\n    replicas: [{{url: {litelog.folder}/backup}}]\n")
    shutil.rmtree(litelog.folder / "log")
    done = litelog("cat", "--consumer", "billing", "--config", "litelog.yml", "log")
    assert numbers(done.out) == list(range(10))
    assert numbers(litelog("cat", "--consumer", "audit", "backup").out) == list(range(10))
    assert listed(litelog, "backup") == [("audit", 10, 0)]


@pytest.mark.parametrize(
    "options",
    [["--to", "3"], ["--isolation", "read_committed"], ["--generation", "ab"], ["--format", "gazette"]],
)
def test_options_that_a_consumer_does_not_have_are_refused(litelog: Command, options: list[str]) -> None:
    litelog.lines(3)
    done = litelog("cat", "--consumer", "billing", *options, "log")
    assert (done.code, "is not for a consumer" in done.err) == (ExitCode.USAGE, True)
    assert litelog("cat", "--ack", "auto", "log").code == ExitCode.USAGE
    assert listed(litelog) == []


@pytest.fixture(params=["replica", "daemon"])
def elsewhere(request: pytest.FixtureRequest, litelog: Command) -> str:
    """A place of a log of ten records that is not its folder."""
    litelog.lines(10)
    if request.param == "replica":
        assert litelog("replicate", "--once", "log", "backup").code == ExitCode.DONE
        return f"file://{litelog.folder}/backup"
    return serve(litelog)


def serve(litelog: Command) -> str:
    """The URL of ``log``, which a daemon serves."""
    return serve_with_daemon(litelog)[1]


def serve_with_daemon(litelog: Command) -> tuple[Running, str]:
    """A daemon that serves ``log``, and the log's URL."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    (litelog.folder / "serve.yml").write_text(
        f"state-dir: ./daemons-state\naddr: 127.0.0.1:{port}\nserve: all\nsync-interval: 20ms\n"
        "logs:\n  - path: ./log\n    replicas: [./backup]\n"
    )
    daemon = litelog.start("replicate", "--config", "serve.yml")
    litelog.wait_for_line(daemon, "listening")
    url = f"http://127.0.0.1:{port}/logs/log"
    wait_until(lambda: len(litelog("cat", url).out.splitlines()) == 10)
    return daemon, url


def test_a_consumer_of_a_replica_or_a_served_log_has_its_position_there(litelog: Command, elsewhere: str) -> None:
    assert numbers(litelog("cat", "--consumer", "billing", elsewhere).out) == list(range(10))
    assert litelog("cat", "--consumer", "billing", elsewhere).out == ""
    assert listed(litelog, elsewhere) == [("billing", 10, 0)]
    moved = litelog("consumers", "move", elsewhere, "billing", "8")
    assert (moved.code, moved.out) == (ExitCode.DONE, f"moved: billing of {elsewhere} to sequence 8\n")
    assert listed(litelog, elsewhere) == [("billing", 8, 2)]
    assert numbers(litelog("cat", "--consumer", "billing", elsewhere).out) == [8, 9]
    assert litelog("consumers", "move", elsewhere, "billing", "11").code == ExitCode.USAGE
    assert "no consumer biling (known: billing)" in litelog("consumers", "delete", elsewhere, "biling").err
    assert litelog("consumers", "delete", elsewhere, "billing").code == ExitCode.DONE
    assert listed(litelog, elsewhere) == []
    assert numbers(litelog("cat", "--consumer", "billing", "--from", "latest", elsewhere).out) == [9]
    kept = list((litelog.folder / "backup" / "consumers").glob("billing/*"))
    assert len(kept) == (0 if elsewhere.startswith("http") else 3), "one says that it was deleted"


def test_a_state_folder_keeps_the_position_on_this_machine(litelog: Command, elsewhere: str) -> None:
    state = ["--state-dir", "mine"]
    assert numbers(litelog("cat", "--consumer", "billing", *state, elsewhere).out) == list(range(10))
    assert listed(litelog, elsewhere) == []
    assert [each["next"] for each in litelog("consumers", "list", "--json", *state, elsewhere).lines] == [10]


def test_verify_and_prune_leave_the_positions_in_a_replica(litelog: Command) -> None:
    litelog.lines(10)
    assert litelog("replicate", "--once", "log", "backup").code == ExitCode.DONE
    assert numbers(litelog("cat", "--consumer", "billing", "backup").out) == list(range(10))
    assert litelog("verify", "--json", "backup").lines[-1]["anomalies"] == []
    assert litelog("prune", "--max-age", "1h", "backup").code == ExitCode.DONE
    assert listed(litelog, "backup") == [("billing", 10, 0)]
    (newest,) = sorted((litelog.folder / "backup" / "consumers" / "billing").iterdir())[-1:]
    newest.chmod(0o600)
    newest.write_bytes(newest.read_bytes().replace(b'"next": 10', b'"next": 90'))
    damaged = litelog("verify", "--json", "backup")
    assert damaged.code == ExitCode.CORRUPTION
    assert [each["object"] for each in damaged.lines[-1]["anomalies"]] == [f"consumers/billing/{newest.name}"]


@pytest.mark.process
def test_a_consumer_of_a_served_log_survives_kills_of_its_daemon_and_of_itself(litelog: Command) -> None:
    litelog.lines(10)
    daemon, url = serve_with_daemon(litelog)
    seen: list[int] = []
    for number in range(10, 40, 10):
        consumer = litelog.start("cat", "--consumer", "billing", "--follow", url)
        assert consumer.stdout is not None
        daemon.kill()
        daemon.wait(WAIT_SECONDS)
        litelog("append", "log", text="".join(f"line {each}\n" for each in range(number, number + 10)))
        daemon = litelog.start("replicate", "--config", "serve.yml")
        litelog.wait_for_line(daemon, "listening")
        while not seen or seen[-1] < number + 9:
            seen += numbers(consumer.stdout.readline())
        if number < 30:
            consumer.kill()
        else:
            wait_until(lambda: listed(litelog, url) == [("billing", 40, 0)])
    assert sorted(set(seen)) == list(range(40)), "none is left out"
    assert [each for number, each in enumerate(seen) if each > max(seen[:number], default=-1) + 1] == []
