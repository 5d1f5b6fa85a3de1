"""``litelog status`` and ``litelog sync`` as processes: with a daemon, without one, and on the replica itself."""

from __future__ import annotations

import json
import re
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")

from litelog.errors import ExitCode
from litelog.log.replica_registry import log_state_folder
from litelog.shipping.lock_extension import FILE as LOCKS
from litelog.shipping.lock_extension import LockResult
from litelog.system.checked_files import NoteFile
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from conftest import Command

    from tests.warm import Running

ROOT = Path(__file__).parents[2]
TOKEN = "canary-token-of-the-tests-0123456789"
CHECK = "canary-check-of-the-tests"
OPTION = "canary-option-of-the-tests"


def configure(litelog: Command, **more: Any) -> None:
    """Write a configuration with the log ``log`` and the replica ``replica``. The daemon listens at a unix socket."""
    folder = litelog.folder
    replicas = more.pop("replicas", [{"url": str(folder / "replica")}])
    own = [{"path": str(folder / "log"), "replicas": replicas}, *more.pop("more_logs", [])]
    logs = more.pop("logs", own)
    (folder / "c.yml").write_text(json.dumps({"addr": f"unix:{folder}/socket", "logs": logs, **more}))


def start(litelog: Command) -> Running:
    """Start a daemon, and wait until it has synced all that it can."""
    process = litelog.start("replicate", "--config", "c.yml")
    litelog.wait_for_line(process, "listening", "begins")
    assert litelog("sync", "--config", "c.yml").code == ExitCode.DONE
    return process


def test_a_log_folder_that_is_missing_is_reported_once(litelog: Command) -> None:
    configure(litelog)
    process = litelog.start("replicate", "--config", "c.yml")
    litelog.wait_for_line(process, f"waiting for {litelog.folder}/log to appear")

    def rows() -> list[str]:
        return [line for line in litelog("status", "--config", "c.yml").out.splitlines() if "no such folder" in line]

    wait_until(rows)
    (row,) = rows()
    assert row.count("no such folder") == 1


def test_status_asks_the_daemon(litelog: Command) -> None:
    litelog.lines(3)
    configure(litelog)
    start(litelog)
    done = litelog("status", "--config", "c.yml", "--json")
    (report,) = done.lines
    assert (done.code, report["source"], report["healthy"]) == (ExitCode.DONE, "daemon", True)
    assert report["logs"][0]["replicas"][0]["next"] == 3
    for place in (str(litelog.folder / "log"), "log/", "replica", f"file://{litelog.folder}/replica"):
        table = litelog("status", "--config", "c.yml", place)
        assert (table.code, table.out.splitlines()[0]) == (ExitCode.DONE, "All safe")
        assert f"file://{litelog.folder}/replica" in table.out


def test_a_daemon_that_is_not_healthy_is_reported_with_exit_code_1_and_why(litelog: Command) -> None:
    litelog.lines(3)
    litelog.lines(1, log="other")
    other = {"path": str(litelog.folder / "other"), "replicas": [{"url": str(litelog.folder / "second")}]}
    configure(litelog, more_logs=[other])
    process = start(litelog)
    (segment,) = (each for each in (litelog.folder / "log").iterdir() if each.suffix == ".log")
    body = segment.read_bytes()
    litelog.lines(2)
    commit = segment.read_bytes()[len(body) :]
    with segment.open("ab") as file:
        file.write(commit)  # the same sequences once more
    assert litelog("sync", "--config", "c.yml", "--wait", "20s", "log").code == ExitCode.FAILURE
    done = litelog("status", "--config", "c.yml")
    assert (done.code, done.out.splitlines()[0]) == (ExitCode.FAILURE, "Not safe: 1 of 2 replicas frozen")
    folder = litelog.folder
    assert f"UNSAFE: {folder}/log to file://{folder}/replica\n  frozen, because bytes are damaged" in done.out
    assert f"\n  frozen: file://{folder}/replica\n" in done.out
    assert f"  $ litelog verify file://{folder}/replica --against {folder}/log\n" in done.out
    well = litelog("status", "--config", "c.yml", "--json", "other").lines[0]["logs"]
    assert [(each["log"], each["replicas"][0]["lag_bytes"]) for each in well] == [(str(litelog.folder / "other"), 0)]
    kill(process)
    left = litelog("status", "--config", "c.yml")
    assert (left.code, left.out.splitlines()[0]) == (ExitCode.FAILURE, "Not safe: 1 of 2 replicas frozen")
    assert f"UNSAFE: {folder}/log to file://{folder}/replica\n  frozen, because bytes are damaged" in left.out


def kill(process: Running) -> None:
    """Kill a daemon, if it still runs."""
    if process.poll() is None:
        process.kill()
        process.communicate()


def test_damage_that_a_scrub_found_is_unsafe_with_and_without_a_daemon(litelog: Command) -> None:
    litelog.lines(3)
    litelog.lines(3, log="other")
    replicas = [{"url": str(litelog.folder / "replica"), "scrub-interval": "1s"}]
    configure(litelog, replicas=replicas)
    process = start(litelog)
    (wal,) = (litelog.folder / "replica").rglob("*.wal.lz4")
    key = wal.relative_to(litelog.folder / "replica")
    body = wal.read_bytes()
    wal.chmod(0o600)
    wal.write_bytes(body[:-1] + bytes([body[-1] ^ 1]))
    wait_until(lambda: litelog("status", "--config", "c.yml").code == ExitCode.FAILURE)
    for _ in range(2):
        done = litelog("status", "--config", "c.yml")
        assert "Not safe: 1 of 1 replica damaged" in done.out
        assert re.search(rf"damaged: a verification found \d anomal(y|ies): {key}", done.out)
        assert f"  $ litelog verify file://{litelog.folder}/replica\n" in done.out
        assert done.code == ExitCode.FAILURE
        kill(process)  # the second time, the status comes from the state folder


def test_a_rewound_log_is_a_warning_until_it_is_dismissed(litelog: Command) -> None:
    litelog.lines(3)
    configure(litelog)
    process = start(litelog)
    assert litelog("dismiss", "log", "--config", "c.yml").code == ExitCode.USAGE
    (segment,) = (each for each in (litelog.folder / "log").iterdir() if each.suffix == ".log")
    body = segment.read_bytes()
    litelog.lines(2)
    assert litelog("sync", "--config", "c.yml").code == ExitCode.DONE
    with segment.open("r+b") as file:
        file.truncate(len(body))

    def told(*arguments: str) -> Any:
        return litelog("status", "--config", "c.yml", "--json", *arguments).lines[0]

    wait_until(lambda: told()["reasons"])
    for _ in range(2):
        report = told()
        (reason,) = (each for each in report["reasons"] if each["kind"] != "no_daemon")
        assert (reason["kind"], reason["verdict"]) == ("diverged", "safe")
        assert "5 records were acknowledged before, the log holds 3 now" in reason["message"]
        assert reason["command"].startswith(f"litelog dismiss {litelog.folder}/log file://")
        kill(process)  # the warning outlasts the daemon
    process = litelog.start("replicate", "--config", "c.yml")
    litelog.wait_for_line(process, "listening")
    wait_until(lambda: told()["ready"])
    assert (told()["verdict"], told()["words"]) == ("safe", "Safe, with a warning: 1 of 1 replica diverged")
    assert litelog("dismiss", "log", "elsewhere", "--config", "c.yml").code == ExitCode.USAGE
    done = litelog("dismiss", "log", "--config", "c.yml")
    assert (done.code, done.out.startswith("dismissed: log to file://")) == (ExitCode.DONE, True)
    wait_until(lambda: told()["words"] == "All safe")
    kill(process)
    assert [each["kind"] for each in told()["reasons"]] == ["no_daemon"]


def test_a_daemon_that_was_fenced_and_is_gone_is_shown_until_it_takes_over(litelog: Command) -> None:
    litelog.lines(3)
    configure(litelog)
    process = start(litelog)
    other = ("replicate", "--once", "log", "replica", "--state-dir", "other")
    assert litelog(*other, "--takeover").code == ExitCode.DONE
    litelog.lines(1)
    assert process.wait(WAIT_SECONDS) == ExitCode.FENCED
    assert "If that was a mistake: stop that daemon, then start this one with --takeover" in process.communicate()[1]

    def told() -> Any:
        done = litelog("status", "--config", "c.yml", "--json")
        return done.code, done.lines[0]

    host = socket.gethostname()
    for _ in range(2):
        code, report = told()
        (reason,) = (each for each in report["reasons"] if each["kind"] != "no_daemon")
        assert (code, report["words"]) == (ExitCode.FAILURE, "Not safe: 1 of 1 replica fenced")
        assert (reason["kind"], reason["verdict"]) == ("fenced", "unsafe")
        assert re.search(rf"owner [0-9a-f]{{8}} on {host} took the replica over at 20\S+ \S+Z$", reason["message"])
        assert "start this one once with --takeover" in reason["action"]
        assert report["logs"][0]["replicas"][0]["condition"] == "fenced"
        assert reason["since"] is not None
        assert litelog("replicate", "--once", "--config", "c.yml").code == ExitCode.FENCED  # it stays fenced
    done = litelog("status", "--config", "c.yml")
    assert done.out.startswith("Not safe: 1 of 1 replica fenced\n")
    assert f"run `litelog forget {litelog.folder}/log file://{litelog.folder}/replica`" in " ".join(done.out.split())
    assert litelog("replicate", "--once", "--config", "c.yml", "--takeover").code == ExitCode.DONE
    code, report = told()
    assert (code, [each["kind"] for each in report["reasons"]]) == (ExitCode.DONE, ["no_daemon"])


def test_a_daemon_that_ships_again_is_not_fenced_by_a_record_that_was_left(litelog: Command) -> None:
    litelog.lines(3)
    configure(litelog)
    once = ("replicate", "--once")
    assert litelog(*once, "--config", "c.yml").code == ExitCode.DONE
    assert litelog(*once, "log", "replica", "--state-dir", "other", "--takeover").code == ExitCode.DONE
    assert litelog(*once, "--config", "c.yml").code == ExitCode.FENCED
    (record,) = (litelog.folder / "state").rglob("ended.json")
    kept = record.read_bytes()
    litelog.lines(1)
    assert litelog(*once, "--config", "c.yml", "--takeover").code == ExitCode.DONE
    assert not record.exists()
    record.write_bytes(kept)
    assert litelog("status", "--config", "c.yml").code == ExitCode.DONE


def test_without_a_daemon_the_state_folder_shows(litelog: Command) -> None:
    litelog.lines(3)
    configure(litelog)
    assert litelog("replicate", "--once", "--config", "c.yml").code == 0
    before = sum(each.stat().st_size for each in (litelog.folder / "log").iterdir() if each.is_file())
    litelog.lines(4)
    grown = sum(each.stat().st_size for each in (litelog.folder / "log").iterdir() if each.is_file()) - before
    done = litelog("status", "--config", "c.yml", "--json")
    (report,) = done.lines
    replica = report["logs"][0]["replicas"][0]
    assert (done.code, report["source"], report["healthy"]) == (ExitCode.DONE, "state", None)
    assert (replica["next"], replica["lag_bytes"], replica["lag_seconds"]) == (3, grown, None)
    assert "no daemon answers at unix:" in done.err
    assert litelog("status", "--config", "c.yml", "log").code == ExitCode.DONE


def test_locks_that_were_not_extended_are_shown_without_a_daemon(litelog: Command) -> None:
    litelog.lines(3)
    configure(litelog)
    assert litelog("replicate", "--once", "--config", "c.yml").code == ExitCode.DONE
    (folder,) = {path.parent for path in (litelog.folder / "state").rglob("state.json")}
    NoteFile(str(folder / LOCKS), LockResult, "").write(LockResult(1_795_600_000_000_000, 60.0, 1, "lock: denied"))
    (report,) = litelog("status", "--config", "c.yml", "--json").lines
    found = report["logs"][0]["replicas"][0]
    assert (found["lock_error"], found["locks_extended"]) == ("lock: denied", "2026-11-25T09:46:40.000Z")
    assert "locks_failing" in json.dumps(report["reasons"])


def test_a_replica_of_a_log_that_never_appeared_was_never_synced(litelog: Command) -> None:
    configure(litelog)
    process = litelog.start("replicate", "--config", "c.yml")
    litelog.wait_for_line(process, "to appear")
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_SECONDS) == 0
    status = litelog("status", "--config", "c.yml")
    assert "never synced: nothing was ever shipped to it" in " ".join(status.out.replace("_", " ").split())
    assert litelog("forget", "log", "replica").code == 0
    assert "replica" not in litelog("status", "--config", "c.yml").out


def test_nothing_known_is_an_error(litelog: Command) -> None:
    configure(litelog)
    done = litelog("status", "--config", "c.yml", "log")
    assert (done.code, done.out) == (ExitCode.FAILURE, "")
    assert "has no state of log" in done.err
    asked = litelog("status", "--addr", f"unix:{litelog.folder}/none")
    assert (asked.code, "no daemon answers" in asked.err) == (ExitCode.FAILURE, True)


def test_the_replica_itself_is_read_where_that_is_asked_for(litelog: Command) -> None:
    litelog.lines(3)
    configure(litelog)
    assert litelog("replicate", "--once", "--config", "c.yml").code == 0
    for arguments in (("replica",), ("log", "--config", "c.yml"), ("--config", "c.yml")):
        done = litelog("status", "--replica", "--json", *arguments)
        (report,) = done.lines
        assert (done.code, report["source"]) == (ExitCode.DONE, "replica")
        assert report["logs"][0]["replicas"][0]["next"] == 3
    done = litelog("status", "--replica", "--json", "nowhere")
    assert (done.code, bool(done.lines[0]["logs"][0]["replicas"][0]["sync_error"])) == (ExitCode.FAILURE, True)


def configure_folder(litelog: Command, **more: Any) -> None:
    """A configuration of the logs in ``logs``, whose replicas are in ``replicas``."""
    entry = {"dir": "logs", "poll-interval": "100ms", "replicas": [{"url": "replicas/{name}", **more}]}
    configure(litelog, logs=[entry], **{"max-lag": "1s"})


def test_without_a_replica_to_read_it_is_asked_for(litelog: Command) -> None:
    if Path("/etc/litelog.yml").exists():
        pytest.skip("this machine has a configuration")
    done = litelog("status", "--replica")
    assert done.code == ExitCode.USAGE
    assert "which replica? give a REPLICA_URL, or the LOG_DIR of a configured log" in done.err


def test_a_log_that_is_not_replicated_is_reported_wherever_one_looks(litelog: Command) -> None:
    litelog.lines(1, "logs/fine")
    configure_folder(litelog)
    assert litelog("replicate", "--once", "--config", "c.yml").code == ExitCode.DONE
    litelog.lines(1, "logs/other")
    Path(log_state_folder(str(litelog.folder / "state" / "litelog"), str(litelog.folder / "logs/other"))).write_bytes(
        b""
    )
    once = litelog("replicate", "--once", "--config", "c.yml")
    assert once.code == ExitCode.FAILURE
    assert "logs/other: is not replicated: " in once.err
    process = litelog.start("replicate", "--config", "c.yml")
    litelog.wait_for_line(process, "cannot be replicated (2 times")
    sync = litelog("sync", "--config", "c.yml", "--json")
    (answer,) = sync.lines
    assert (sync.code, answer["reached"], answer["replica_count"]) == (ExitCode.FAILURE, False, 2)
    assert [each["phase"] for each in answer["unreached"]] == ["not replicated"]
    one = litelog("sync", "--config", "c.yml", "logs/other")
    assert one.code == ExitCode.FAILURE
    assert "logs/other: is not replicated: " in one.err
    while (done := litelog("status", "--config", "c.yml")).code == ExitCode.DONE:
        assert "not_replicated: " in done.out  # not known at first, and unsafe after max-lag
    assert "UNSAFE: logs/other to " in done.out
    assert done.out.splitlines()[0] == "Not safe: 1 not replicated"
    (report,) = litelog("status", "--config", "c.yml", "--json").lines
    (lacking,) = report["not_replicated"]
    assert (lacking["log"], lacking["failing_seconds"] > 1) == ("logs/other", True)


def test_a_folder_without_logs_is_ready_for_them(litelog: Command) -> None:
    (litelog.folder / "logs").mkdir()
    configure_folder(litelog)
    process = litelog.start("replicate", "--config", "c.yml")
    litelog.wait_for_line(process, "listening")
    while not (report := litelog("status", "--config", "c.yml", "--json").lines[0])["ready"]:
        assert [each["message"] for each in report["reasons"]] == ["the daemon has not opened its replicas yet"]
    assert (report["healthy"], report["logs"], report["reasons"]) == (True, [], [])


def test_the_replicas_of_a_folders_logs_are_read_and_isolated_ones_are_reported(litelog: Command) -> None:
    for name in ("a", "b"):
        litelog.lines(1, f"logs/{name}")
    configure_folder(litelog, fencing="isolated")
    assert litelog("replicate", "--once", "--config", "c.yml").code == ExitCode.DONE
    (report,) = litelog("status", "--replica", "--config", "c.yml", "--json").lines
    assert [log["log"] for log in report["logs"]] == ["logs/a", "logs/b"]
    (report,) = litelog("status", "--replica", "--config", "c.yml", "--json", "logs/a").lines
    assert [log["log"] for log in report["logs"]] == ["logs/a"]
    (report,) = litelog("status", "--config", "c.yml", "--json").lines  # of the state folder
    assert {log["log"] for log in report["logs"]} == {"logs/a", "logs/b"}
    assert litelog("status", "--config", "c.yml", COLUMNS="300").out.count("isolated") == 2


def test_an_address_that_is_none_is_a_usage_error(litelog: Command) -> None:
    for verb in ("status", "sync"):
        done = litelog(verb, "--addr", "nonsense")
        assert (done.code, "HOST:PORT" in done.err) == (ExitCode.USAGE, True)


def test_sync_waits_for_the_existing_data(litelog: Command) -> None:
    configure(litelog, **{"sync-interval": "10ms"})
    litelog.lines(3)
    start(litelog)
    for sequence in (5, 7, 9):
        litelog.lines(2)
        done = litelog("sync", "--config", "c.yml", "--json", "--replica", "replica", "log")
        assert (done.code, done.lines[0]["reached"], done.lines[0]["replica_count"]) == (ExitCode.DONE, True, 1)
        assert litelog("generations", "--json", "replica").lines[-1]["next"] == sequence


def test_sync_names_replicas_that_were_not_in_time(litelog: Command) -> None:
    litelog.lines(3)
    configure(litelog, **{"sync-interval": "1d", "max-lag": "3d"})
    process = litelog.start("replicate", "--json", "--config", "c.yml")
    assert process.stdout
    told = (json.loads(line)["event"] for line in process.stdout)
    assert {next(told) for _ in range(3)} == {"began", "snapshot", "shipped"}
    litelog.lines(2)  # they are not due for a day
    late = litelog("sync", "--config", "c.yml", "--wait", "100ms")
    assert (late.code, "not in time" in late.err) == (ExitCode.FAILURE, True)
    assert "0 of 1" in late.out


def test_sync_without_a_daemon_says_so(litelog: Command) -> None:
    configure(litelog)
    done = litelog("sync", "--config", "c.yml")
    assert (done.code, done.out) == (ExitCode.FAILURE, "")
    assert done.err == f"litelog: no daemon answers at unix:{litelog.folder}/socket\n"
    configure(litelog, addr="off")
    assert "addr: off" in litelog("sync", "--config", "c.yml").err
    assert litelog("sync", "--wait", "soon").code == ExitCode.USAGE
    assert litelog("sync", "--wait", "1h").code == ExitCode.USAGE


def test_sync_and_status_say_which_daemon_answered_and_refuse_another_one(litelog: Command) -> None:
    configure(litelog, **{"state-dir": str(litelog.folder / "mine")})
    litelog.lines(3)
    process = start(litelog)
    assert f"(process {process.pid} on " in litelog("sync", "--config", "c.yml").out
    (report,) = litelog("status", "--config", "c.yml", "--json").lines
    assert (report["state_dir"], report["pid"]) == (str(litelog.folder / "mine"), process.pid)
    (litelog.folder / "other").mkdir()
    mine, other = litelog.folder / "mine", litelog.folder / "other"
    said = f"is not yours: process {process.pid}, which keeps its state in {mine}, not in {other}"
    refused = litelog("sync", "--config", "c.yml", "--state-dir", "other")
    assert (refused.code, said in refused.err) == (ExitCode.FAILURE, True)
    assert f"{litelog.folder}/log" not in litelog("status", "--config", "c.yml", "--state-dir", "other").out
    configure(litelog, **{"state-dir": str(litelog.folder / "other")})
    assert said in litelog("sync", "--config", "c.yml").err
    assert litelog("sync", "--addr", f"unix:{litelog.folder}/socket").code == ExitCode.DONE


def test_sync_of_a_log_that_the_daemon_does_not_have_names_those_it_has(litelog: Command) -> None:
    litelog.lines(1)
    configure(litelog)
    start(litelog)
    done = litelog("sync", "--config", "c.yml", "other")
    assert (done.code, f"known: {litelog.folder}/log" in done.err) == (ExitCode.FAILURE, True)
    done = litelog("sync", "--config", "c.yml", "--replica", "other", "log")
    assert (done.code, f"known: file://{litelog.folder}/replica" in done.err) == (ExitCode.FAILURE, True)


def test_an_address_for_others_needs_a_token_to_start(litelog: Command) -> None:
    litelog.lines(1)
    configure(litelog, addr="0.0.0.0:0")
    done = litelog("replicate", "--config", "c.yml")
    assert (done.code, "needs a token-file" in done.err) == (ExitCode.USAGE, True)


def test_the_daemon_shows_no_secret(litelog: Command) -> None:
    litelog.lines(3)
    token_file = litelog.folder / "token"
    token_file.write_text(TOKEN)
    token_file.chmod(0o600)
    replicas = [
        {"url": str(litelog.folder / "replica")},
        {"url": "fsspec+memory://canary/logs", "options": {"secret": OPTION}},
    ]
    beat = {"heartbeat-url": f"http://127.0.0.1:1/{CHECK}?k={CHECK}", "heartbeat-interval": "1s"}
    configure(litelog, replicas=replicas, **{"token-file": str(token_file)}, **beat)
    process = litelog.start("replicate", "--json", "--config", "c.yml")
    said = litelog.wait_for_line(process, "listening", "begins")
    wait_until(lambda: litelog("status", "--config", "c.yml", "--json").lines[0]["logs"])
    told = [litelog("status", "--config", "c.yml", *more) for more in ((), ("--json",))]
    told.append(litelog("sync", "--config", "c.yml", "--json"))
    told.append(litelog("sync", "--config", "c.yml", "--replica", f"x://{OPTION}@y"))
    assert told[1].lines[0]["logs"]
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=240)
    told.append(litelog("status", "--config", "c.yml"))
    token_file.write_text("none")
    told.append(litelog("replicate", "--config", "c.yml"))
    everything = "".join(said) + out + err + "".join(each.out + each.err for each in told)
    for canary in (TOKEN, CHECK, OPTION):
        assert canary not in everything


@pytest.mark.parametrize("verb", [("status",), ("status", "--replica"), ("sync",), ("sync", "--replica")])
def test_a_secret_in_a_url_is_not_repeated(litelog: Command, verb: tuple[str, ...]) -> None:
    litelog.lines(1)
    configure(litelog)
    url = f"nowhere://user:{OPTION}@host/logs?token={OPTION}"
    alone = litelog(*verb, url)
    start(litelog)
    asked = litelog(*verb, url, "--config", "c.yml")
    assert (alone.code, asked.code) != (ExitCode.DONE, ExitCode.DONE)
    assert OPTION not in alone.out + alone.err + asked.out + asked.err


def test_without_a_daemon_or_a_configuration_a_log_has_the_folder_in_its_state(litelog: Command) -> None:
    litelog.lines(3)
    assert litelog("replicate", "--once", "log", "replica").code == ExitCode.DONE
    (report,) = litelog("status", "--json", "log").lines  # by its folder: another test's daemon may listen here
    assert [each["log"] for each in report["logs"]] == [str(litelog.folder / "log")]
    assert report["logs"][0]["replicas"][0]["lag_bytes"] == 0
