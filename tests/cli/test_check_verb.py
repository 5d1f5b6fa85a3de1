"""``litelog check``: its steps, their output, and its exit codes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ExitCode
from litelog.objects.layout import Fencing

if TYPE_CHECKING:
    from conftest import Command

STEPS = [
    "put",
    "get and compare",
    "list",
    "create-only put refused",
    "one of 8 puts at once wins",
    "the same, in parts",
    "ranged read",
    "delete",
]
NOT_OFFERED = {"the same, in parts": "no uploads in parts"}
"""The steps that a folder does not support, with the reasons."""


def test_each_step_is_a_line_with_its_latency_and_nothing_is_left(litelog: Command) -> None:
    done = litelog("-v", "check", "replica")
    assert done.code == ExitCode.DONE
    title, *rows = done.out.splitlines()
    assert title.split() == ["step", "result", "ms"]
    for step, row in zip(STEPS, rows, strict=False):
        assert row.startswith(step)
        if step in NOT_OFFERED:
            assert "not offered" in row
            assert NOT_OFFERED[step] in row
        else:
            assert re.fullmatch(r"\d+\.\d\d", row.split()[-1])
    *_, usable, made = rows
    assert usable == "usable with fencing: required or isolated (requested: required)"
    assert "it was made for the check, and removed again" in made
    assert not (litelog.folder / "replica").exists()
    assert "not offered" not in litelog("check", "replica").out


def test_json_is_one_object_a_step_and_the_result(litelog: Command) -> None:
    *steps, result = litelog("check", "--json", "--fencing", "isolated", "replica").lines
    assert [step["step"] for step in steps] == STEPS
    assert all(step["seconds"] > 0 for step in steps if step["outcome"] == "passed")
    assert [step["step"] for step in steps if step["required"]] == ["put", "get and compare", "list", "ranged read"]
    url = f"file://{litelog.folder}/replica"
    assert result == {
        "version": 1,
        "replica": url,
        "fencing": "isolated",
        "usable": True,
        "usable_fencing": ["required", "isolated"],
        "access": None,
    }


def test_a_store_that_refuses_puts_fails_the_check(litelog: Command) -> None:
    (litelog.folder / "replica").write_text("a file in the folder's place")
    done = litelog("check", "--json", "replica")
    assert done.code == ExitCode.FAILURE
    *steps, result = done.lines
    assert [step["outcome"] for step in steps] == ["failed"] + ["skipped"] * (len(STEPS) - 1)
    assert "nothing can be replicated there" in steps[0]["meaning"]
    url = f"file://{litelog.folder}/replica"
    assert result.pop("version") == 1
    assert result == {"replica": url, "fencing": "required", "usable": False, "usable_fencing": [], "access": None}
    assert "none (requested: isolated)" in litelog("check", "--fencing", "isolated", "replica").out


def test_replicas_of_the_configuration_are_tried_with_its_options_and_fencing(litelog: Command) -> None:
    (litelog.folder / "litelog.yml").write_text(
        "logs: [{path: log, replicas: [{url: one}, {url: two, fencing: isolated}]}]"
    )
    litelog.lines(1)
    done = litelog("check", "--json", "--config", "litelog.yml", "two")
    assert (done.code, done.lines[-1]["fencing"]) == (ExitCode.DONE, "isolated")
    one = litelog("check", "--json", "--config", "litelog.yml", "--fencing", "required", "two")
    assert one.lines[-1]["fencing"] == "required"
    config = (litelog.folder / "litelog.yml").read_text()
    (litelog.folder / "litelog.yml").write_text(config.replace("{url: one}", "{url: one, options: {colour: red}}"))
    done = litelog("check", "--config", "litelog.yml", "one")
    assert done.code == ExitCode.USAGE
    assert "colour" in done.err, "its options were not passed on"
    (litelog.folder / "litelog.yml").write_text("logs: [{path: log, replicas: [{url: one}, {url: two}]}]")
    done = litelog("check", "--config", "litelog.yml", "log")
    assert done.code == ExitCode.DONE
    assert [line for line in done.out.splitlines() if line.endswith(":")] == [
        f"file://{litelog.folder}/{name}:" for name in ("one", "two")
    ]


@pytest.mark.parametrize("verb", [["check"], ["replicate", "--once", "log"]])
def test_a_fencing_that_there_is_not_is_refused(litelog: Command, verb: list[str]) -> None:
    done = litelog(*verb, "--fencing", "none", "replica")
    assert done.code == ExitCode.USAGE
    assert all(mode in done.err for mode in Fencing)


def test_generations_show_how_they_are_fenced(litelog: Command) -> None:
    for fencing in Fencing:
        litelog.lines(3)
        assert litelog("replicate", "--once", "--fencing", fencing, "log", "replica").code == ExitCode.DONE
    title, *rows = litelog("generations", "--wide", "replica").out.splitlines()
    assert "fencing" in title.split()
    assert [" isolated " in row for row in rows] == [False, True]
    assert [facts["fencing"] for facts in litelog("generations", "--json", "replica").lines] == list(Fencing)
    assert [facts["ended"] for facts in litelog("generations", "--json", "replica").lines] == [True, False]


def test_fencing_on_the_command_line_is_for_logs_that_are_given_there(litelog: Command) -> None:
    done = litelog("replicate", "--fencing", "isolated", "--config", "litelog.yml")
    assert done.code == ExitCode.USAGE
    assert "--fencing needs LOG_DIR" in done.err
