"""A task that Spark ends gives back what it holds."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import pyspark

from litelog.spark.jvm.jar import find_jar

SOURCE = Path(__file__).with_name("EndedTask.java")


def test_a_buffer_is_given_back_once(tmp_path: Path) -> None:
    """A buffer that is given back twice would be used by two tasks at a time."""
    jar = find_jar()
    if jar is None or shutil.which("javac") is None:
        pytest.skip("there is no Java compiler")
    path = f"{tmp_path}:{jar}:{Path(pyspark.__file__).parent}/jars/*"
    opened = "--add-opens=java.base/java.nio=ALL-UNNAMED"
    subprocess.run(["javac", "-proc:none", "-cp", path, "-d", str(tmp_path), str(SOURCE)], check=True, timeout=100)
    command = ["java", opened, "-cp", path, "litelog.spark.EndedTask"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=100)
    assert done.stdout.split("\n")[:2] == ["the task was ended", "1"]
