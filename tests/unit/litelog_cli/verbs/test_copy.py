"""``litelog copy``: the copy is a replica, a second run copies what is new, and other places are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litelog.errors import ExitCode

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.litelog_cli.conftest import InProcess


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_copy_has_the_same_objects_and_a_second_run_adds_what_is_new(command: InProcess) -> None:
    replica = command.replica()
    whole = files_in(command.folder / replica)
    done = command("copy", replica, "copied")
    assert done.code == ExitCode.DONE
    assert done.out.startswith(f"copied {len(whole)} objects, ")
    assert files_in(command.folder / "copied") == whole
    again = command("copy", replica, "copied").out
    assert again.startswith(
        f"nothing to copy: file://{command.folder}/copied has all of file://{command.folder}/replica"
    )
    command.append(1)
    assert command("replicate", "--once", "log", replica).code == ExitCode.DONE
    (result,) = command("copy", replica, "copied", "--json").lines
    assert (result["copied_objects"], result["objects"]) == (1, len(whole) + 1)
    assert command("restore", "copied", "-o", "restored").code == ExitCode.DONE
    name = "0" * 20 + ".log"
    assert (command.folder / "restored" / name).read_bytes() == (command.folder / "log" / name).read_bytes()


@pytest.mark.parametrize(
    ("place", "target", "code", "said"),
    [
        ("nothing", "copied", ExitCode.NOTHING_TO_RESTORE, "nothing"),
        ("replica", "replica", ExitCode.USAGE, "a copy needs another place than its replica"),
        ("replica", "other", ExitCode.FENCED, "other"),
        ("replica", "", ExitCode.USAGE, "empty"),
    ],
)
def test_a_copy_that_cannot_be_made_changes_nothing(
    command: InProcess, place: str, target: str, code: int, said: str
) -> None:
    command.replica()
    command.append(1, "log2")
    assert command("replicate", "--once", "log2", "other").code == ExitCode.DONE
    before = files_in(command.folder)
    done = command("copy", place, target)
    assert (done.code, said in done.err) == (code, True), done.err
    assert files_in(command.folder) == before


def test_the_options_of_replicas_come_from_the_configuration(command: InProcess) -> None:
    replica = command.replica()
    (command.folder / "litelog.yml").write_text("logs:\n  - path: log\n    replicas: [{url: replica}, {url: copied}]\n")
    assert command("copy", "--config", "litelog.yml", replica, "copied").code == ExitCode.DONE
    assert command("copy", "--config", "litelog.yml", "log", "copied").code == ExitCode.USAGE
