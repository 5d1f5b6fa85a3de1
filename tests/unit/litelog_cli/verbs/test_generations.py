"""Tables for people fit a terminal and cut no text. The first digits of a generation are enough to name it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
import pytest

from litelog.errors import ExitCode
from litelog_cli.output import print_table

if TYPE_CHECKING:
    from tests.unit.litelog_cli.conftest import InProcess


def set_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make standard output a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)


@pytest.mark.slow
@pytest.mark.parametrize("verb", [["generations"], ["snapshots"], ["segments"], ["wal"], ["wal", "--headers"]])
def test_a_table_fits_80_columns_with_whole_ids(
    command: InProcess, monkeypatch: pytest.MonkeyPatch, verb: list[str]
) -> None:
    replica = command.replica(130)
    name = command("generations", "--json", replica).lines[0]["generation"]
    set_terminal(monkeypatch)
    out = click.unstyle(command(*verb, replica).out)
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "…" not in out
    assert (name in out) == (verb[0] in ("generations", "wal"))
    if verb[0] in ("generations", "segments"):
        assert "0-12,999" in out


@pytest.mark.slow
def test_a_wide_table_shows_the_rest(command: InProcess) -> None:
    out = command("generations", "--wide", command.replica()).out
    assert all(column in out for column in ("owner", "host", "fencing", "ratio", "lag"))


@pytest.mark.slow
def test_text_that_does_not_fit_is_wrapped_and_never_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_terminal(monkeypatch)
    print_table(("object", "kind", ""), [("a" * 60, "damaged", "the checksum is another one than it was")])
    print_table(("object", "kind", ""), [("b" * 30, "damaged", "word " * 30)])
    shown = click.unstyle(capsys.readouterr().out)
    assert "a" * 60 in shown
    assert "b" * 30 in shown
    assert "…" not in shown
    assert all(len(line.rstrip()) <= 80 for line in shown.splitlines() if "word" in line)


@pytest.mark.slow
def test_a_generation_is_named_by_its_first_digits(command: InProcess) -> None:
    replica = command.replica()
    command.append(1)
    done = command("replicate", "--once", "--takeover", "--state-dir", "other", "log", replica)
    assert done.code == ExitCode.DONE
    old, new = (line["generation"] for line in command("generations", "--json", replica).lines)
    for verb in (["wal"], ["snapshots"], ["segments"], ["cat"], ["restore", "-o", "out"]):
        assert command(*verb, "--generation", old[:9], replica).code == ExitCode.DONE, verb
    assert command("restore", "-o", "again", "--generation", old[:9], "--json", replica).lines[0]["next"] == 300
    both = command("wal", "--generation", "0000", replica)
    assert both.code == ExitCode.USAGE
    assert f"generation 0000 may be {old} or {new}: write more digits" in both.err
    none = command("wal", "--generation", "ffff", replica)
    assert (none.code, "no generation begins with ffff" in none.err) == (ExitCode.NOTHING_TO_RESTORE, True)
    wrong = command("wal", "--generation", "latest", replica)
    assert (wrong.code, "'latest' is not a generation" in wrong.err) == (ExitCode.USAGE, True)
