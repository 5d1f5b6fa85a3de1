"""``litelog ls`` lists configured logs, and the replicas below a place. Shells complete their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest

from litelog.errors import ExitCode
from litelog.stores.missing import find_replicas
from litelog_cli.arguments import FORMAT, GENERATION, PLACE
from replica_clients.memory import MemoryStore

if TYPE_CHECKING:
    from tests.unit.litelog_cli.conftest import InProcess


def test_replicas_are_found_below_a_place() -> None:
    store = MemoryStore("test")
    keys = ("a/epochs/1", "a/generations/x/wal", "b/c/epochs/1", "b/notes", "d", "e/f/g/epochs/1", "h/i/j/k/epochs/1")
    for key in keys:
        store.put(key, [b""])
    assert list(find_replicas(store)) == ["a", "b/c", "e/f/g"]
    assert list(find_replicas(store, "a/")) == ["a"]


@pytest.mark.slow
def test_a_folder_of_replicas_is_listed(command: InProcess) -> None:
    command.replica()
    command.append(1, "other")
    assert command("replicate", "--once", "other", "all/one").code == ExitCode.DONE
    assert command("ls", "all").out == f"file://{command.folder}/all/one\n"
    assert command("ls", "replica").out == f"file://{command.folder}/replica\n"
    none = command("ls", "state/none")
    assert (none.code, "no such folder" in none.err) == (ExitCode.NOTHING_TO_RESTORE, True)


@pytest.mark.slow
def test_configured_logs_are_listed(command: InProcess) -> None:
    (command.folder / "c.yml").write_text("logs: [{path: /log, replicas: [{url: /one}, {url: /two}]}]")
    title, one, two = (line.split() for line in command("ls", "--config", "c.yml").out.splitlines())
    assert title == ["log", "format", "replica"]
    assert (one, two) == (["/log", "litelog", "/one"], ["/log", "litelog", "/two"])
    assert command("ls").code == ExitCode.USAGE


@pytest.mark.slow
def test_values_are_completed(command: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    replica = command.replica()
    (command.folder / "c.yml").write_text("logs: [{path: /srv/log, replicas: [{url: /one}]}]")
    ctx, param = click.Context(click.Command("x")), click.Option(["--x"])
    assert [item.value for item in FORMAT.shell_complete(ctx, param, "l")] == ["lines", "litelog"]
    monkeypatch.setenv("LITELOG_CONFIG", "c.yml")
    assert "/srv/log" in [item.value for item in PLACE.shell_complete(ctx, param, "/srv")]
    ctx.params["place"] = replica
    name = command("generations", "--json", replica).lines[0]["generation"]
    assert [item.value for item in GENERATION.shell_complete(ctx, param, "0000")] == [name]
