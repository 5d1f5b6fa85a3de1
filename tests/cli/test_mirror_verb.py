"""``litelog mirror``: a copy of a served log in another process, a failover to it, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("urllib3")

from litelog.errors import ExitCode
from tests.builders.restoring import files_in
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

    from tests.warm import Running


def held(folder: Path) -> dict[str, bytes]:
    """The log segments of a folder."""
    if not folder.exists():
        return {}
    return {name: data for name, data in files_in(folder).items() if name.endswith(".log")}


def serve(litelog: Command, sync_interval: str = "20ms", more: str = "") -> tuple[Running, str]:
    """A daemon that serves ``log``, and the URL of that."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    (litelog.folder / "serve.yml").write_text(
        f"state-dir: ./state\naddr: 127.0.0.1:{port}\nserve: all\nsync-interval: {sync_interval}\n"
        f"logs:\n  - path: ./log\n    replicas: [./backup]\n{more}"
    )
    daemon = litelog.start("replicate", "--config", "serve.yml")
    litelog.wait_for_line(daemon, "listening")
    return daemon, f"http://127.0.0.1:{port}/logs/log"


def mirror_once(litelog: Command, url: str) -> Any:
    """Run ``mirror --once`` until the log has a replica."""
    done = [litelog("mirror", "--once", "--json", url, "copy")]
    wait_until(lambda: [done.append(litelog("mirror", "--once", "--json", url, "copy")), done[-1].code == 0][1])
    return done[-1].lines[0]


def unread_bytes(url: str) -> int:
    """The bytes of requests that the daemon of a URL has not read."""
    port = urlsplit(url).port
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in table][1:]
    return sum(int(row[4].partition(":")[2], 16) for row in rows if int(row[1].partition(":")[2], 16) == port)


def test_a_mirror_follows_from_another_process_and_continues_after_kill_9(litelog: Command) -> None:
    litelog.lines(20)
    _, url = serve(litelog)
    first = mirror_once(litelog, url)
    assert (first["replica"], first["output"]) == (url, "copy")
    assert held(litelog.folder / "copy") == held(litelog.folder / "log")
    for _ in range(2):
        process = litelog.start("mirror", "--quiet", url, "copy")
        litelog("append", "log", text="one\ntwo\n")
        wait_until(lambda: held(litelog.folder / "copy") == held(litelog.folder / "log"))
        process.kill()
        process.communicate()
        litelog.processes.remove(process)
        litelog("append", "log", text="three\n")
    process = litelog.start("mirror", url, "copy")
    wait_until(lambda: held(litelog.folder / "copy") == held(litelog.folder / "log"))
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate()
    litelog.processes.remove(process)
    assert (process.returncode, f"mirrored {url} to copy up to" in out) == (ExitCode.DONE, True), err


def test_a_failover_loses_nothing_that_was_mirrored_and_fences_the_old_daemon(litelog: Command) -> None:
    litelog.lines(20)
    daemon, url = serve(litelog, sync_interval="1h")
    mirror_once(litelog, url)
    process = litelog.start("mirror", "--quiet", url, "copy")
    litelog("append", "log", text="not in the replica\n")
    log = held(litelog.folder / "log")
    wait_until(lambda: held(litelog.folder / "copy") == log)
    daemon.kill()
    for each in (daemon, process):
        each.kill()
        each.communicate()
        litelog.processes.remove(each)
    assert litelog("append", "copy", text="too early\n").code == ExitCode.USAGE

    at_daemon = litelog("mirror", "--promote", "copy", url)
    assert (at_daemon.code, "name the replica itself" in at_daemon.err) == (ExitCode.USAGE, True), at_daemon.err
    nowhere = litelog("mirror", "--promote", "nowhere", "backup")
    assert (nowhere.code, "nowhere: no such folder" in nowhere.err) == (ExitCode.USAGE, True), nowhere.err
    promoted = litelog("mirror", "--promote", "--json", "copy", "backup")
    assert promoted.code == ExitCode.DONE, promoted.err
    assert promoted.lines[0]["replica"] == url
    assert litelog("append", "copy", text="after the failover\n").code == ExitCode.DONE
    other = ("--state-dir", "state-of-copy", "copy", "backup")
    assert litelog("replicate", "--once", *other).code == ExitCode.FENCED
    taken = litelog("replicate", "--once", "--takeover", *other)
    assert taken.code == ExitCode.DONE, taken.err

    assert litelog("append", "log", text="lost at the source\n").code == ExitCode.DONE
    back = litelog("replicate", "--once", "--config", "serve.yml")
    assert back.code == ExitCode.FENCED, back.err
    # What the old machine appended has the size of what replaced it.
    differs = litelog("verify", "backup", "--against", "log")
    assert (differs.code, "holds other bytes of" in differs.out) == (ExitCode.CORRUPTION, True), differs.out
    printed = litelog("cat", "backup").out.splitlines()
    assert printed[-2].endswith("not in the replica")
    assert printed[-1].endswith("after the failover")
    assert litelog("restore", "backup", "-o", "restored").code == ExitCode.DONE
    assert held(litelog.folder / "restored") == held(litelog.folder / "copy")


def test_a_pattern_mirrors_each_log_and_prints_a_line_for_each_and_a_summary(litelog: Command) -> None:
    litelog.lines(20)
    _, url = serve(litelog)
    mirror_once(litelog, url)
    pattern = url.replace("/log", "/l*").replace("/l*s/", "/logs/")
    done = litelog("mirror", "--once", "--json", pattern, "copies")
    (each, summary), code = done.lines, done.code
    assert (code, each["log"], each["replica"], each["output"]) == (0, "log", url, str(litelog.folder / "copies/log"))
    assert (summary["log_count"], summary["failed_count"]) == (1, 0)
    assert held(litelog.folder / "copies" / "log") == held(litelog.folder / "log")
    (litelog.folder / "copies" / "log" / ".mirror.json").unlink()
    litelog("append", "copies/log", text="another history\n")
    litelog("append", "log", text="one\n")
    failed = [litelog("mirror", "--once", pattern, "copies")]
    wait_until(
        lambda: [failed.append(litelog("mirror", "--once", pattern, "copies")), "1 log failed" in failed[-1].out][1]
    )
    assert failed[-1].code == ExitCode.FAILURE
    none = litelog("mirror", "--once", url.replace("/logs/log", "/logs/x*"), "others")
    assert (none.code, "no served log has such a name" in none.err) == (ExitCode.NOTHING_TO_RESTORE, True), none.err


def test_a_mirror_that_has_not_begun_is_not_said_to_be_one_that_can_be_promoted(litelog: Command) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        process = litelog.start("mirror", "--quiet", f"http://127.0.0.1:{silent.getsockname()[1]}/logs/log", "copy")
        with silent.accept()[0]:
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate()
    litelog.processes.remove(process)
    assert (process.returncode, "promote" in err) == (128 + signal.SIGTERM, False), err
    assert err.endswith("logs/log: the same command continues\n")
    assert not (litelog.folder / "copy").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_the_first_restore_of_a_group_is_its_exit_code(litelog: Command, number: int) -> None:
    asked = set[str]()

    class Opening(BaseHTTPRequestHandler):
        """A daemon that lists two logs, and is still opening them."""

        def do_GET(self) -> None:
            is_list = self.path.startswith("/logs?") or self.path == "/logs"
            body = b'{"revision":"1","logs":[{"name":"a"},{"name":"b"}]}' if is_list else b"{}"
            asked.add(self.path)
            self.send_response(200 if is_list else 503)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base class
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Opening) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/logs/*"
        process = litelog.start("mirror", "--quiet", "--json", url, "copies")
        wait_until(lambda: {path.split("/")[2] for path in asked if path.count("/") > 1} == {"a", "b"})
        process.send_signal(number)
        out, err = process.communicate()
        server.shutdown()
    litelog.processes.remove(process)
    *logs, _ = [json.loads(line) for line in out.splitlines()]
    assert process.returncode == 128 + number, err
    assert [log["error"]["exit_code"] for log in logs] == [128 + number] * 2


def test_a_mirror_ends_while_its_daemon_does_not_answer_and_is_promoted(litelog: Command) -> None:
    """The machine of the log was cut off from the network: the connection stays open, and nothing comes."""
    litelog.lines(20)
    daemon, url = serve(litelog)
    mirror_once(litelog, url)
    process = litelog.start("mirror", "--quiet", url, "copy")
    litelog("append", "log", text="one\n")
    wait_until(lambda: held(litelog.folder / "copy") == held(litelog.folder / "log"))
    os.kill(daemon.pid, signal.SIGSTOP)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate()
    litelog.processes.remove(process)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert err.endswith(f"litelog: ended by force 5 s after the signal; {url}: the same command continues\n")
    os.kill(daemon.pid, signal.SIGKILL)
    promoted = litelog("mirror", "--promote", "copy", "backup")
    assert promoted.code == ExitCode.DONE, promoted.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_copy_that_follows_ends_while_its_daemon_does_not_answer(litelog: Command, number: int) -> None:
    litelog.lines(20)
    daemon, url = serve(litelog)
    mirror_once(litelog, url)
    process = litelog.start("restore", "--follow", "--poll-interval", "20ms", url, "-o", "followed")
    litelog.wait_for_line(process, "following")
    os.kill(daemon.pid, signal.SIGSTOP)
    wait_until(lambda: unread_bytes(url) > 0)
    process.send_signal(number)
    _, err = process.communicate()
    litelog.processes.remove(process)
    assert (process.returncode, "restore --delta --follow" in err) == (128 + number, True), err


def test_a_replica_that_is_no_served_log_is_not_mirrored_and_nothing_is_written(litelog: Command) -> None:
    litelog.lines(20)
    litelog("replicate", "--once", "log", "backup")
    done = litelog("mirror", "--once", "./backup", "copy")
    assert (done.code, "litelog restore --follow" in done.err) == (ExitCode.USAGE, True), done.err
    assert not (litelog.folder / "copy").exists()
    advised = litelog("restore", "./backup", "-o", "copy")
    assert advised.code == ExitCode.DONE, advised.err
    assert litelog("mirror", "--once", "./backup", "copy").code == ExitCode.USAGE
    assert not list((litelog.folder / "copy").glob(".*mirror*"))


@pytest.mark.parametrize("options", [(), ("--takeover",), ("--once",)])
def test_a_served_log_is_no_place_to_replicate_or_copy_to(litelog: Command, options: tuple[str, ...]) -> None:
    """It is refused before any request: nothing listens at this address."""
    litelog.lines(20)
    litelog("replicate", "--once", "log", "backup")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/logs/log"
        for arguments in (
            ("replicate", *options, "./log", url),
            ("copy", "./backup", url),
            ("copy", "--follow", "./backup", url),
            ("copy", "--all", "./backup", url),
        ):
            done = litelog(*arguments)
            assert (done.code, "is read only" in done.err) == (ExitCode.USAGE, True), (arguments, done.err)
            assert "--takeover" not in done.err


@pytest.mark.parametrize(
    ("truncate", "said"),
    [
        ("", "truncation does not wait for it"),
        ("    truncate: {max-age: 1d, wait-for-mirrors: 14d}\n", "truncation waits for it, 14d00h at most"),
    ],
)
def test_status_shows_the_mirrors_of_a_log(litelog: Command, truncate: str, said: str) -> None:
    litelog.lines(20)
    _, url = serve(litelog, more=truncate)
    mirror_once(litelog, url)
    shown = litelog("status", "--config", "serve.yml")
    assert shown.code == ExitCode.DONE, shown.out
    at = shown.out.index("  mirror: ")
    name, facts, gate = shown.out[at:].splitlines()[:3]
    assert name.endswith(f":{litelog.folder}/copy"), name
    assert facts.startswith("    lag "), facts
    assert "next sequence 20, position " in facts, facts
    assert gate.strip() == said


def test_append_waits_until_a_mirror_has_each_commit_or_says_that_none_has_it(litelog: Command) -> None:
    litelog.lines(20)
    _, url = serve(litelog)
    mirror_once(litelog, url)
    alone = litelog("append", "--json", "--mirrored-at", url, "--mirror-timeout", "200ms", "log", text="alone\n")
    assert (alone.code, alone.lines[0]["mirrored"], "no mirror has the records" in alone.err) == (0, False, True)
    litelog.start("mirror", "--quiet", url, "copy")
    together = litelog("append", "--json", "--mirrored-at", url, "log", text="together\n")
    assert (together.code, together.lines[0]["mirrored"]) == (0, True)
    assert held(litelog.folder / "copy") == held(litelog.folder / "log")
    assert "mirrored" not in litelog("append", "--json", "log", text="as before\n").lines[0]
    assert litelog("append", "--mirror-timeout", "1s", "log").code == ExitCode.USAGE
    assert litelog("append", "--mirrored-at", "backup", "log").code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("http://127.0.0.1:1/logs/log",), ExitCode.USAGE, "write LOG_URL FOLDER"),
        (("http://127.0.0.1:1/logs/a", "http://127.0.0.1:1/logs/b", "copy"), ExitCode.USAGE, "write LOG_URL FOLDER"),
        (("http://127.0.0.1:1/nothing", "copy"), ExitCode.USAGE, "not a served log"),
        (("--promote", "log", "backup"), ExitCode.USAGE, "log: is not a mirror"),
        (("--promote", "--replica", "b", "log", "backup"), ExitCode.USAGE, "name replicas after the folder"),
        (("--replica", "b", "http://127.0.0.1:1/logs/*", "copy"), ExitCode.USAGE, "write * for the log's name"),
        (("--replica", "b/*", "http://127.0.0.1:1/logs/log", "copy"), ExitCode.USAGE, "if LOG_URL is a pattern"),
    ],
)
def test_a_request_without_a_meaning_is_refused(
    litelog: Command, arguments: tuple[str, ...], code: int, said: str
) -> None:
    litelog.lines(2)
    done = litelog("mirror", *arguments)
    assert (done.code, said in done.err) == (code, True), done.err


def test_a_place_that_no_daemon_serves_is_refused(litelog: Command) -> None:
    litelog.lines(5)
    assert litelog("replicate", "--once", "log", "backup").code == ExitCode.DONE
    done = litelog("mirror", "backup", "copy")
    assert (done.code, "is not a log that a daemon serves" in done.err) == (ExitCode.USAGE, True), done.err


def test_a_folder_with_another_history_is_kept_and_set_aside_if_asked_for(litelog: Command) -> None:
    litelog.lines(20)
    litelog.lines(30, "copy")
    other = held(litelog.folder / "copy")
    _, url = serve(litelog)
    refused = [litelog("mirror", "--once", url, "copy")]
    wait_until(lambda: [refused.append(litelog("mirror", "--once", url, "copy")), "not those" in refused[-1].err][1])
    assert (refused[-1].code, held(litelog.folder / "copy")) == (ExitCode.FAILURE, other)
    # The message says what to type.
    assert f"so copy cannot continue as a mirror of {url}; " in refused[-1].err
    command = refused[-1].err.strip().rpartition(": litelog ")[2].split()
    assert command == ["mirror", "--on-fork", "new", url, "copy"]
    done = litelog(*command, "--once")
    assert done.code == ExitCode.DONE, done.err
    assert "the mirror is now copy.unknown" in done.err
    assert held(litelog.folder / "copy") == held(litelog.folder / "log")
    assert held(litelog.folder / "copy.unknown") == other
