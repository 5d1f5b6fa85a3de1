"""``litelog copy --all``: each replica below a place, a summary, and the highest exit code."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ExitCode

if TYPE_CHECKING:
    from tests.unit.litelog_cli.conftest import InProcess


@pytest.fixture
def replicas(command: InProcess) -> InProcess:
    """The replicas ``all/one`` and ``all/two/deep``."""
    command.append(2)
    command.append(1, "log2")
    assert command("replicate", "--once", "log", "all/one").code == ExitCode.DONE
    assert command("replicate", "--once", "log2", "all/two/deep").code == ExitCode.DONE
    return command


def test_all_replicas_below_a_place_are_copied_with_a_summary(replicas: InProcess) -> None:
    done = replicas("copy", "--all", "all", "copies")
    assert (done.code, done.err) == (ExitCode.DONE, "")
    *each, last = done.out.splitlines()
    assert [line.startswith("copied ") for line in each] == [True, True]
    assert last.startswith("copied 2 of 2 replicas: ")
    for name, log in (("one", "log"), ("two/deep", "log2")):
        restored = f"restored-{log}"
        assert replicas("restore", f"copies/{name}", "-o", restored).code == ExitCode.DONE
        assert sorted(path.read_bytes() for path in (replicas.folder / restored).glob("*.log")) == sorted(
            path.read_bytes() for path in (replicas.folder / log).glob("*.log")
        )
    *_, summary = replicas("copy", "--all", "all", "copies", "--json").lines
    assert (summary["replica_count"], summary["failed_count"], summary["copied_objects"]) == (2, 0, 0)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_replica_that_fails_leaves_the_others_and_gives_the_exit_code(replicas: InProcess, as_json: bool) -> None:
    shutil.copytree(replicas.folder / "all" / "two" / "deep", replicas.folder / "copies" / "one")
    done = replicas("copy", "--all", "all", "copies", *(["--json"] if as_json else []))
    assert done.code == ExitCode.FENCED
    if as_json:
        failed, copied, summary = done.lines
        assert (failed["error"]["exit_code"], failed["target"]) == (ExitCode.FENCED, "copies/one")
        assert copied["copied_objects"] == copied["objects"] > 0
        assert (summary["replica_count"], summary["failed_count"]) == (2, 1)
    else:
        assert "all/one: not copied: " in done.err
        assert done.out.splitlines()[-1].startswith("copied 1 of 2 replicas: ")
        assert done.out.splitlines()[-1].endswith("; 1 replica failed")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--all", "log", "copies"], ExitCode.NOTHING_TO_RESTORE, "no replica there, nor up to three levels below it"),
        (["--all", "all", "all/copies"], ExitCode.USAGE, "choose a target outside of it"),
        (["--interval", "1s", "all/one", "copies"], ExitCode.USAGE, "--interval needs --follow"),
        (["--follow", "--interval", "0s", "all/one", "copies"], ExitCode.USAGE, "a duration above 0"),
        (["--follow", "nothing", "copies"], ExitCode.NOTHING_TO_RESTORE, "nothing"),
        (["--follow", "--quiet", "all/one", "all/two/deep"], ExitCode.FENCED, "is not a copy of"),
    ],
)
def test_what_cannot_be_copied_ends_with_its_exit_code(
    replicas: InProcess, arguments: list[str], code: int, said: str
) -> None:
    done = replicas("copy", *arguments)
    assert (done.code, said in done.err) == (code, True), done.err
    assert not (replicas.folder / "copies").exists()
