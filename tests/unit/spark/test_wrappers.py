"""The scripts through which Spark starts Java and Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from litelog.errors import ConfigError
from litelog.spark.wrappers import wrap_java, wrap_python


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    return tmp_path / "cache"


def spark_home() -> str:
    import pyspark

    return os.path.dirname(os.path.realpath(pyspark.__file__))


@pytest.mark.process
def test_python_takes_the_installed_pyspark_and_all_else_that_spark_puts_on_the_path(tmp_path: Path) -> None:
    """The script leaves out Spark's archives and jars, and keeps other places, arguments and the interpreter."""
    lib = os.path.join(spark_home(), "python", "lib")
    archives = [os.path.join(lib, name) for name in sorted(os.listdir(lib)) if name.endswith(".zip")]
    assert any(archive.endswith("/pyspark.zip") for archive in archives)
    kept = [str(tmp_path / "a b*"), str(tmp_path / "sent.zip"), "/usr/share/spark/jars/other.jar"]
    path = [*archives, os.path.join(spark_home(), "jars", "spark-core_2.13-4.3.0.jar"), *kept]
    script = (
        "import importlib.util, os, sys\n"
        "print(importlib.util.find_spec('pyspark').origin)\n"
        "print(os.environ['PYTHONPATH'])\n"
        "print(sys.executable)\n"
        "print(sys.argv[1:])\n"
    )
    done = subprocess.run(
        [wrap_python(), "-c", script, "one two", "*"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        check=True,
    )
    expected = [os.path.join(spark_home(), "__init__.py"), os.pathsep.join(kept), sys.executable, "['one two', '*']"]
    assert done.stdout.splitlines() == expected


def test_python_of_another_spark_is_not_wrapped(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The installed PySpark could be of another version."""
    monkeypatch.setenv("SPARK_HOME", spark_home())
    assert wrap_python().startswith(str(cache))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert wrap_python() == sys.executable


def test_python_whose_pyspark_is_not_installed_is_not_wrapped(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A PySpark that a program put on its own path is not on that of its workers."""
    assert wrap_python().startswith(str(cache))
    monkeypatch.setattr("site.getsitepackages", lambda: [str(tmp_path)])
    monkeypatch.setattr("site.getusersitepackages", lambda: str(tmp_path))
    assert wrap_python() == sys.executable


def test_a_cache_that_cannot_be_written_is_an_error_for_java_alone(cache: Path) -> None:
    cache.write_bytes(b"no folder")
    assert wrap_python() == sys.executable
    with pytest.raises(ConfigError, match="set XDG_CACHE_HOME or JAVA_HOME"):
        wrap_java(str(cache))


def test_a_script_of_before_is_replaced_once() -> None:
    path = Path(wrap_python())
    made = path.stat().st_ino
    assert Path(wrap_python()).stat().st_ino == made
    path.write_text("exit 1\n")
    assert "exec" in Path(wrap_python()).read_text()
    assert path.stat().st_mode & 0o777 == 0o700
