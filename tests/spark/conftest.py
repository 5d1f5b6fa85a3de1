"""One Spark session for all tests of a process, and all Spark tests in one process."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any

import pytest

from litelog.errors import ConfigError
from litelog.spark.options import Engine, parse_engine
from litelog.spark.query.columnar import has_jar
from litelog.spark.spark_session import java_home, require_spark, session
from litelog.spark.wrappers import wrap_python
from tests.builders.real_servers import find_jars
from tests.sampling import one_in_a_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


JVM = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Without this, a JVM spends half of its processor time on optimizing, since the jobs of tests are short."""

QUICK_JVM = {"JAVA_TOOL_OPTIONS": JVM["spark.driver.extraJavaOptions"]}
"""The environment with the same setting, for processes that start a JVM by themselves."""

PYTHON = """#!/bin/sh
if [ "$1 $2" = "-m pyspark.daemon" ]; then
  shift 2
  set -- -m tests.spark.worker_daemon "$@"
fi
exec {python} "$@"
"""
"""The script by which Spark starts its workers: this Python, whose daemon forks workers that have their modules."""

CONFIG = {
    **JVM,
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "2",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.authenticate.socketTimeout": "120s",
}


ENGINE_VARIABLE = "LITELOG_TEST_SPARK_ENGINE"
"""``python``: sessions start without the columnar reader, also those of processes that tests start, and tests of that
reader are skipped. ``java``: a session without it is an error. Otherwise it reads where a compiler can make it."""

killed = one_in_a_run(("stream", "write", "sink"), "Spark that is killed")
"""For tests that kill drivers and workers of Spark: half a minute each."""

started_by_itself = one_in_a_run(("connect", "submit", "settings", "cluster"), "Spark that is started in other ways")
"""For tests that start a JVM, or two, of their own: half a minute each."""

IGNORED = (
    "ignore::ResourceWarning",  # Py4J leaves its sockets to the garbage collector
    "ignore:PySpark does not yet:FutureWarning",  # where pandas 3 happens to be installed; nothing here uses it
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/spark/" in item.nodeid:
            for ignored in IGNORED:
                item.add_marker(pytest.mark.filterwarnings(ignored))


@pytest.fixture(scope="session")
def event_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of Spark's event log."""
    return tmp_path_factory.mktemp("spark-events")


@pytest.fixture(scope="session")
def wanted_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine | None]:
    """The engine that the environment names. For ``python``, the user's cache has no place for the columnar reader."""
    wanted = parse_engine(os.environ.get(ENGINE_VARIABLE))
    with pytest.MonkeyPatch.context() as changed:
        if wanted is Engine.PYTHON:
            cache = tmp_path_factory.mktemp("no-columnar-reader")
            (cache / "litelog").mkdir()
            (cache / "litelog" / "spark").write_text("This file is where the folder of the jar would be.\n")
            changed.setenv("XDG_CACHE_HOME", str(cache))
        yield wanted


@pytest.fixture(scope="session")
def spark(event_log: Path, wanted_engine: Engine | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real session, ``local[2]``. Skips with the reason if Java or pyspark is missing."""
    try:
        require_spark()
        java_home()
    except ConfigError as error:
        pytest.skip(str(error))
    folders = {
        "spark.eventLog.dir": event_log.as_uri(),
        "spark.local.dir": str(tmp_path_factory.mktemp("spark-local")),
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("spark-warehouse")),
    }
    if jars := find_jars():
        folders["spark.jars"] = ",".join(jars)
    python = tmp_path_factory.mktemp("spark-python") / "python"
    quick = wrap_python()
    python.write_text(PYTHON.format(python=shlex.quote(quick)))
    python.chmod(0o755)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = str(python)
    started = session("tests", master="local[2]", driver_memory="1g", config={**CONFIG, **folders})
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = quick  # for the processes that tests start
    started.sparkContext.setLogLevel("ERROR")
    assert wanted_engine is None or has_jar(started) == (wanted_engine is Engine.JAVA), "the wrong engine would read"
    try:
        yield started
    finally:
        started.stop()
