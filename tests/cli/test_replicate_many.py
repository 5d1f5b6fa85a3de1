"""``litelog replicate`` with folders of logs, as a process: reloads, and restores of found logs."""

from __future__ import annotations

import fcntl
import shutil
import signal
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ExitCode

if TYPE_CHECKING:
    from conftest import Command

    from tests.warm import Running

TREE = """
state-dir: state
addr: off
poll-interval: 50ms
logs:
  - dir: logs
    pattern: "*/*"
    replicas: [{url: "replicas/{name}", sync-interval: 10ms}]
"""
PIPE_BYTES = 4096
MORE = "  - path: extra\n    replicas: [{url: replicas-of-extra}]\n"


def append(litelog: Command, log: str, text: str) -> None:
    assert litelog("append", log, text=text).code == 0


def start(litelog: Command) -> Running:
    process = litelog.start("replicate", "--config", "c.yml")
    litelog.wait_for_line(process, "kafka/orders")
    return process


@pytest.fixture
def tree(litelog: Command) -> Command:
    (litelog.folder / "c.yml").write_text(TREE)
    for log in ("logs/kafka/orders", "logs/kafka/or ders"):
        append(litelog, log, f"one of {log}\n")
    return litelog


def test_a_found_log_is_restored_by_its_folder_or_its_replicas_url(tree: Command) -> None:
    """Even if the folder is lost, the configuration says where its replica is."""
    assert tree("replicate", "--once", "--config", "c.yml").code == 0
    shutil.rmtree(tree.folder / "logs")
    for number, place in enumerate(("logs/kafka/or ders", "replicas/kafka/or=20ders")):
        assert tree("restore", "--config", "c.yml", place, "-o", f"out-{number}").code == 0
        assert "one of logs/kafka/or ders" in tree("cat", f"out-{number}").out


def test_a_path_that_no_entry_matches_is_reported_with_the_known_entries(tree: Command) -> None:
    done = tree("restore", "--config", "c.yml", "logs/kafka", "-o", "out")
    assert done.code == ExitCode.USAGE
    assert "known: logs/*/*" in done.err


def test_the_configuration_is_read_again_on_sighup(tree: Command) -> None:
    append(tree, "extra", "an extra\n")
    process = start(tree)
    (tree.folder / "c.yml").write_text(TREE + MORE)
    process.send_signal(signal.SIGHUP)
    tree.wait_for_line(process, "replicas-of-extra")
    process.send_signal(signal.SIGTERM)
    assert process.wait(240) == ExitCode.DONE
    assert "an extra" in tree("cat", "replicas-of-extra").out


def test_a_reloaded_shutdown_timeout_applies_to_the_final_sync(tree: Command) -> None:
    process = start(tree)
    (tree.folder / "c.yml").write_text(f"shutdown-timeout: 7s\n{TREE}")
    process.send_signal(signal.SIGHUP)
    tree.wait_for_line(process, "was reloaded")
    process.send_signal(signal.SIGTERM)
    assert "at most 7s" in tree.wait_for_line(process, "final sync")[-1]
    assert process.wait(240) == ExitCode.DONE


def test_a_reload_reports_settings_that_take_effect_at_the_next_start(tree: Command) -> None:
    append(tree, "extra", "an extra\n")
    process = start(tree)
    for text, waits in ((f"max-lag: 99s\n{TREE}", True), (f"max-lag: 99s\n{TREE}{MORE}", True), (TREE, False)):
        (tree.folder / "c.yml").write_text(text)
        process.send_signal(signal.SIGHUP)
        lines = tree.wait_for_line(process, "was reloaded")
        assert any("max-lag: changes take effect at the next start" in line for line in lines) is waits
    process.send_signal(signal.SIGTERM)
    assert process.wait(240) == ExitCode.DONE


def test_events_without_a_reader_do_not_delay_the_end(tree: Command) -> None:
    """The pipe is full: it takes fewer bytes than the events of these logs have."""
    logs = 12
    process = tree.start("replicate", "--config", "c.yml", "--json")
    assert process.stdout
    fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    tree.wait_for_line(process, "kafka/orders")
    for number in range(logs):
        append(tree, f"logs/new/{number}", "one\n")
    tree.wait_for_line(process, *(f"replicas/new/{number}:" for number in range(logs)))
    process.send_signal(signal.SIGTERM)
    assert process.wait(240) == ExitCode.DONE
    for number in range(logs):
        assert "one" in tree("cat", f"replicas/new/{number}").out


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (TREE + "wrong: key\n", "unknown key"),
        (TREE.replace("replicas/{name}", "nowhere://{name}"), "in effect"),
        (TREE.replace("state-dir: state", "state-dir: other"), "state-dir"),
    ],
)
def test_a_configuration_that_is_wrong_is_reported_and_changes_nothing(tree: Command, text: str, reason: str) -> None:
    process = start(tree)
    (tree.folder / "c.yml").write_text(text)
    process.send_signal(signal.SIGHUP)
    lines = tree.wait_for_line(process, reason)
    assert lines
    append(tree, "logs/kafka/orders", "after the reload\n")
    process.send_signal(signal.SIGTERM)
    assert process.wait(240) == ExitCode.DONE
    assert "after the reload" in tree("cat", "replicas/kafka/orders").out
