"""``litelog service`` and ``litelog config example`` print the files of ``etc/``, and a wheel holds them."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import litelog as library
from litelog_cli.verbs.service import FILES

if TYPE_CHECKING:
    from conftest import Command

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", FILES)
def test_each_file_is_printed_as_it_is(litelog: Command, name: str) -> None:
    file, _ = FILES[name]
    assert litelog("service", name).out == (ROOT / "etc" / file).read_text()


def test_the_example_configuration_fits(litelog: Command) -> None:
    example = litelog("config", "example")
    assert example.out == (ROOT / "etc" / "litelog.yml").read_text()
    checked = litelog("config", "check", "-", text=example.out)
    assert (checked.code, "valid" in checked.out) == (0, True)
    wrong = litelog("config", "check", "-", text=example.out.replace("logs:", "lgos:"))
    assert (wrong.code, "did you mean logs?" in wrong.err) == (2, True)


def test_a_wheel_holds_the_files_and_the_version(tmp_path: Path) -> None:
    builder = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed")
    (built,) = builder.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(built) as wheel:
        for file in ("litelog.yml", *(file for file, _ in FILES.values())):
            assert wheel.read(f"litelog_cli/etc/{file}") == (ROOT / "etc" / file).read_bytes()
        metadata = wheel.read(f"litelog-{library.__version__}.dist-info/METADATA").decode()
    assert f"\nVersion: {library.__version__}\n" in metadata
    assert "Classifier: Programming Language :: Python :: 3.13\n" in metadata
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert {"uvicorn", "starlette", "jinja2", "prometheus-client"} <= {line.split()[1].split("<")[0] for line in needed}
