"""Signals that reach ``litelog replicate`` while it starts. A named pipe holds the start up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from litelog_cli.signals import HeldSignals

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

    from tests.warm import Running


HOLD = """
import os, sys

class Hold:
    def find_spec(self, name, path=None, target=None):
        if name == "litelog.config":
            sys.meta_path.remove(self)
            with open(os.environ["HOLD"]) as pipe:
                pipe.read()

sys.meta_path.insert(0, Hold())
"""
"""Code that the interpreter runs at its start. The import of the configuration then waits until a pipe is closed."""


def start_held(litelog: Command) -> tuple[Running, Path]:
    """Start the daemon. It waits for the pipe when it imports its configuration."""
    litelog.lines(10)
    folder = litelog.folder
    config = folder / "litelog.yml"
    config.write_text(f"logs:\n  - path: {folder}/log\n    replicas:\n      - url: file://{folder}/replica\n")
    (folder / "start").mkdir()
    (folder / "start" / "sitecustomize.py").write_text(HOLD)
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    environment = {"PYTHONPATH": str(folder / "start"), "HOLD": str(pipe)}
    return litelog.start("replicate", "--config", str(config), **environment), pipe


def sequences(litelog: Command) -> int:
    (generation,) = litelog("generations", "--json", "replica").lines
    count: int = generation["next"]
    return count


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_it_starts_begins_the_final_sync(litelog: Command, number: signal.Signals) -> None:
    process, pipe = start_held(litelog)
    with open(pipe, "wb"):  # opened once the daemon has opened it
        process.send_signal(number)
    assert process.wait(240) == 0
    assert sequences(litelog) == 10


def test_a_hangup_while_it_starts_has_the_configuration_read_again(litelog: Command) -> None:
    process, pipe = start_held(litelog)
    with open(pipe, "wb"):
        process.send_signal(signal.SIGHUP)
    litelog.wait_for_line(process, "the configuration was reloaded")
    process.send_signal(signal.SIGTERM)
    assert process.wait(240) == 0
    assert sequences(litelog) == 10


def test_a_hangup_without_a_configuration_file_begins_the_final_sync(litelog: Command) -> None:
    litelog.lines(10)
    process = litelog.start("replicate", "--sync-interval", "1d", "log", "replica")
    litelog.wait_for_line(process, "begins")
    litelog.lines(10)
    process.send_signal(signal.SIGHUP)
    assert process.wait(240) == 0
    assert sequences(litelog) == 20


def test_a_second_signal_while_it_starts_ends_it_at_once(litelog: Command) -> None:
    process, pipe = start_held(litelog)
    with open(pipe, "wb"):
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        assert process.wait(240) in {128 + signal.SIGINT, 128 + signal.SIGTERM}  # the lower number is delivered first


def test_a_start_that_hangs_after_a_signal_ends_by_itself() -> None:
    program = """if True:
        import os, signal
        from litelog_cli.signals import HeldSignals
        HeldSignals(starting_seconds=0.01).hold()
        os.kill(os.getpid(), signal.SIGTERM)
        while True:
            signal.pause()
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 128 + signal.SIGTERM
    assert "took longer than 0.01 s after it: nothing was synced" in done.stderr


def test_released_signals_take_their_previous_effect() -> None:
    arrived: list[int] = []
    previous = {
        number: signal.signal(number, lambda number, _: arrived.append(number))
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    }
    try:
        held = HeldSignals()
        held.hold()
        for number in (signal.SIGHUP, signal.SIGTERM):
            os.kill(os.getpid(), number)
        assert arrived == []
        held.release()
        assert arrived == [signal.SIGHUP, signal.SIGTERM]
        os.kill(os.getpid(), signal.SIGTERM)
        assert arrived == [signal.SIGHUP, signal.SIGTERM, signal.SIGTERM]
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
