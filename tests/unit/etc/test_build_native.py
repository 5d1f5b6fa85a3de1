"""A wheel holds the compiled library and is for the platform if there is a compiler; otherwise it is for any."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from litelog.native import library

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[3]
IN_WHEEL = "litelog/native/libwalks.so.1"


def build(folder: Path) -> Path:
    builder = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed")
    (built,) = builder.WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    return Path(built)


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_wheel_holds_a_library_of_its_source_and_is_for_the_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CC", raising=False)
    built = build(tmp_path)
    assert "-py3-none-linux_" in built.name
    with zipfile.ZipFile(built) as wheel:
        wheel.extractall(tmp_path / "site")
    loaded, why_not = library._open(str(tmp_path / "site" / IN_WHEEL), str(tmp_path / "site" / "litelog/native"))
    assert (loaded is not None, why_not) == (True, "")


@pytest.mark.parametrize(("variable", "value"), [("CC", "/no/such/compiler"), ("CC", "false"), ("LITELOG_NATIVE", "0")])
def test_a_wheel_without_a_compiler_is_for_any_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    built = build(tmp_path)
    assert built.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(built) as wheel:
        assert IN_WHEEL not in wheel.namelist()
