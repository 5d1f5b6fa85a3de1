"""``litelog man`` prints pages that troff shows unchanged."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ExitCode

if TYPE_CHECKING:
    from tests.unit.litelog_cli.conftest import InProcess

ROOT = Path(__file__).parents[4]


def test_a_page_has_its_sections_and_every_option(command: InProcess) -> None:
    lines = command("man", "restore").out.splitlines()
    assert lines[0].startswith('.TH "LITELOG\\-RESTORE" 1')
    assert [line for line in lines if line.startswith(".SH")] == [".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION"]
    assert ".B \\-\\-dry\\-run" in lines
    assert not [line for line in lines if line.startswith("'")]
    assert '.SH "LITELOG CONFIG CHECK"' in command("man").out.splitlines()
    assert command("man", "nothing").code == ExitCode.USAGE


def test_the_page_in_the_packages_is_as_the_code_says(command: InProcess) -> None:
    page = (ROOT / "etc" / "man" / "litelog.1").read_text()
    assert page == command("man").out, "run: litelog man > etc/man/litelog.1"


@pytest.mark.slow
def test_the_page_is_in_the_wheel_and_in_the_source_distribution() -> None:
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert targets["wheel"]["shared-data"] == {"etc/man/litelog.1": "share/man/man1/litelog.1"}
    assert "etc" in targets["sdist"]["include"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_troff_has_no_complaint(command: InProcess) -> None:
    page = command("man").out
    done = subprocess.run(["groff", "-man", "-Tutf8", "-ww"], input=page, capture_output=True, text=True, check=True)
    assert done.stderr == ""
