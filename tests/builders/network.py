"""TwoMachines: two network namespaces with a cable between them, which a test may pull. Needs root and iproute2."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Self

from tests.waiting import WAIT_SECONDS
from tests.warm import ROOT

if TYPE_CHECKING:
    from pathlib import Path

ADDRESSES = {"a": "10.231.77.1", "b": "10.231.77.2"}


def why_no_namespaces() -> str | None:
    """The reason to skip, or None."""
    if sys.platform != "linux" or shutil.which("ip") is None:
        return "ip (iproute2) is not installed"
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    name = f"litelog-{os.getpid()}-tried"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    if tried.returncode != 0:
        return "network namespaces cannot be made here"
    subprocess.run(["ip", "netns", "del", name], check=False)
    return None


class TwoMachines:
    """A context manager. The machines are ``a`` and ``b``; they share the disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        for machine in ADDRESSES:
            _ip("netns", "add", _name(machine))
            _ip("-n", _name(machine), "link", "set", "lo", "up")
        ends = [("a", "ethernet-a"), ("b", "ethernet-b")]
        _ip("-n", _name("a"), "link", "add", "ethernet-a", "type", "veth", "peer", "name", "ethernet-b")
        _ip("-n", _name("a"), "link", "set", "ethernet-b", "netns", _name("b"))
        for machine, device in ends:
            _ip("-n", _name(machine), "addr", "add", f"{ADDRESSES[machine]}/24", "dev", device)
            _ip("-n", _name(machine), "link", "set", device, "up")
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            process.kill()
            process.communicate()
        for machine in ADDRESSES:
            subprocess.run(["ip", "netns", "del", _name(machine)], check=False)

    def cut(self) -> None:
        """Pull the cable: packets are lost, and neither end learns of it."""
        _ip("-n", _name("b"), "addr", "del", f"{ADDRESSES['b']}/24", "dev", "ethernet-b")

    def mend(self) -> None:
        """Plug the cable in again."""
        _ip("-n", _name("b"), "addr", "add", f"{ADDRESSES['b']}/24", "dev", "ethernet-b")

    def start(self, machine: str, *arguments: str) -> subprocess.Popen[str]:
        """Start the command on a machine, and leave it running."""
        command = ["ip", "netns", "exec", _name(machine), sys.executable, "-m", "litelog_cli", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "LITELOG_LOG_FORMAT": "text"}
        process = subprocess.Popen(
            command,
            cwd=self._folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def run(self, machine: str, *arguments: str, text: str = "") -> tuple[int, str, str]:
        """Run the command on a machine to its end. Return the exit code, what it printed, and what it reported."""
        process = self.start(machine, *arguments)
        out, err = process.communicate(text, timeout=WAIT_SECONDS)
        self._started.remove(process)
        return process.returncode, out, err


def _name(machine: str) -> str:
    return f"litelog-{os.getpid()}-{machine}"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
