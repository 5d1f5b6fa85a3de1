"""A failover to a mirror while the network between two machines is cut, with real processes, as etc/docs/live.md has
it step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("urllib3")

from litelog.errors import ExitCode
from tests.builders.network import ADDRESSES, TwoMachines, why_no_namespaces
from tests.builders.restoring import files_in
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from pathlib import Path

WHY_NOT = why_no_namespaces()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")


def held(folder: Path) -> dict[str, bytes]:
    """The log segments of a folder."""
    found = files_in(folder) if folder.exists() else {}
    return {name: data for name, data in found.items() if name.endswith(".log")}


def write_configurations(folder: Path) -> None:
    """The machines' configurations: each serves its log, and reads the other one's with a token. A daemon that listens
    at its machine's address alone cannot start during the cut, which takes that away."""
    (folder / "token").write_text("token-of-these-tests-0123456789\n")
    (folder / "token").chmod(0o600)
    for machine, other, log in (("a", "b", "orders"), ("b", "a", "copy")):
        served = {"a": "copy", "b": "orders"}[machine]
        (folder / f"{machine}.yml").write_text(
            f"state-dir: ./state-of-{machine}\naddr: 0.0.0.0:9977\nserve: all\n"
            f"token-file: {folder}/token\n"
            f"sync-interval: 20ms\nlogs:\n  - path: ./{log}\n    replicas: [./backup]\n"
        )
        url = f"http://{ADDRESSES[other]}:9977/logs/{served}"
        (folder / f"read-{machine}.yml").write_text(
            f"logs:\n  - path: ./unused\n    replicas:\n      - url: {url}\n"
            f"        options: {{token_file: {folder}/token, read_timeout: 2, connect_timeout: 2}}\n"
        )


def test_a_failover_during_a_network_cut_loses_nothing_and_fences_the_old_daemon(tmp_path: Path) -> None:
    write_configurations(tmp_path)
    url, back = (f"http://{ADDRESSES[machine]}:9977/logs/{log}" for machine, log in (("a", "orders"), ("b", "copy")))
    with TwoMachines(tmp_path) as machines:
        machines.run("a", "append", "orders", text="one\ntwo\n")
        old = machines.start("a", "replicate", "--config", "a.yml")
        following = ("mirror", "--config", "read-b.yml", url, "copy")
        wait_until(lambda: machines.run("b", *following, "--once")[0] == ExitCode.DONE)
        mirror = machines.start("b", *following)
        machines.run("a", "append", "orders", text="three\n")
        wait_until(lambda: held(tmp_path / "copy") == held(tmp_path / "orders"))

        machines.cut()
        mirrored = held(tmp_path / "copy")
        machines.run("a", "append", "orders", text="four: only at the source and in the replica\n")
        wait_until(lambda: machines.run("a", "cat", "backup")[1].endswith("in the replica\n"))
        assert held(tmp_path / "copy") == mirrored
        assert mirror.poll() is None

        mirror.terminate()
        _, said = mirror.communicate(timeout=WAIT_SECONDS)
        assert mirror.returncode == ExitCode.DONE, said
        code, _, said = machines.run("b", "mirror", "--promote", "copy", "backup")
        assert code == ExitCode.DONE, said
        code, _, said = machines.run("b", "replicate", "--once", "--takeover", "--config", "b.yml")
        assert code == ExitCode.DONE, said
        machines.run("b", "append", "copy", text="five\n")
        new = machines.start("b", "replicate", "--config", "b.yml")

        machines.run("a", "append", "orders", text="lost: the old writer was not stopped\n")
        _, said = old.communicate(timeout=WAIT_SECONDS)
        assert old.returncode == ExitCode.FENCED, said
        machines.mend()
        assert machines.run("a", "replicate", "--once", "--config", "a.yml")[0] == ExitCode.FENCED
        (tmp_path / "orders").rename(tmp_path / "orders-of-old")
        returning = ("mirror", "--config", "read-a.yml", "--once", back, "orders")
        tries: list[tuple[int, str, str]] = []
        wait_until(
            lambda: [tries.append(machines.run("a", *returning)), tries[-1][0] == ExitCode.DONE][1],
            why=lambda: str(tries[-1]),
        )
        wait_until(lambda: [machines.run("a", *returning), held(tmp_path / "orders") == held(tmp_path / "copy")][1])
        printed = machines.run("a", "cat", "orders")[1].splitlines()
        assert printed == ["one", "two", "three", "four: only at the source and in the replica", "five"]
        new.terminate()
        new.communicate(timeout=WAIT_SECONDS)
