"""The list of verbs, and the answers to a mistyped verb or option."""

from __future__ import annotations

import json
import pkgutil
from typing import TYPE_CHECKING

import pytest

import litelog_cli.verbs
from litelog.errors import ExitCode
from litelog_cli.verb_group import GROUPS, MAX_SUMMARY, VERBS

if TYPE_CHECKING:
    from tests.unit.litelog_cli.conftest import InProcess


def test_every_verb_is_in_one_group_and_its_summary_fits(command: InProcess) -> None:
    assert sorted(VERBS) == sorted(module.name for module in pkgutil.iter_modules(litelog_cli.verbs.__path__))
    out = command("--help").out
    for title, verbs in GROUPS.items():
        assert f"\n{title}:\n" in out
        for verb, summary in verbs.items():
            assert len(summary) <= MAX_SUMMARY
            assert f"  {verb.ljust(max(map(len, VERBS)))}  {summary}\n" in out


@pytest.mark.parametrize("verb", ["spark", "config", "influxdb", "service", "consumers"])
def test_the_summaries_of_a_verbs_parts_fit(command: InProcess, verb: str) -> None:
    out = command(verb, "--help").out
    assert "\nCommands:\n" in out
    assert "..." not in out.partition("\nCommands:\n")[2].partition("\n\n")[0]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["replicte"], "no verb 'replicte': did you mean replicate?"),
        (["snapsots"], "did you mean snapshots or snapshot?"),
        (["databases"], "did you mean ls?"),
        (["tail", "log"], "did you mean cat --follow?"),
        (["xyzzy"], "no verb 'xyzzy'\n"),
        (["help", "restor"], "did you mean restore?"),
        (["restore", "-config", "x"], "options take two dashes: --config"),
        (["restore", "-timestamp=2026-01-01", "x"], "options take two dashes: --timestamp"),
        (["restore", "-o", "x", "-if-replica-exists", "y"], "options take two dashes: --if-replica-exists"),
    ],
)
def test_a_mistyped_verb_is_answered_with_the_right_one(command: InProcess, typed: list[str], meant: str) -> None:
    done = command(*typed)
    assert (done.code, meant in done.err) == (ExitCode.USAGE, True), done.err


def test_help_is_a_verb(command: InProcess) -> None:
    assert command("help").out == command("--help").out.replace("\b", "")
    assert command("help", "restore").out == command("restore", "--help").out.replace("\b", "")
    assert command("help", "config", "check").out == command("config", "check", "--help").out.replace("\b", "")


def test_usage_errors_are_text_unless_json_is_asked_for(command: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LITELOG_LOG_FORMAT")
    done = command("replicate", "--onec")
    assert done.code == ExitCode.USAGE
    assert "Error: No such option" in done.err
    asked = command("--log-format", "json", "replicate", "--onec")
    assert json.loads(asked.err)["exit_code"] == ExitCode.USAGE


@pytest.mark.slow
def test_both_spellings_name_the_configuration(command: InProcess) -> None:
    (command.folder / "c.yml").write_text("logs: [{path: /log, replicas: [{url: /replica}]}]")
    for verb in ("show", "check"):
        assert command("config", verb, "c.yml").out == command("config", verb, "--config", "c.yml").out
        assert command("config", verb, "c.yml", "--config", "c.yml").code == ExitCode.USAGE
    assert "(1 entry of logs, 1 replica)" in command("config", "check", "c.yml").out
