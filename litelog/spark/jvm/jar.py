"""The jar of the columnar reader: compiled by the JDK of this machine against the jars of the installed Spark."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
import zipfile
from functools import cache
from pathlib import Path

from litelog.errors import ConfigError
from litelog.events import fields

PROVIDER = "litelog.spark.LitelogProvider"
JAR_PREFIX = "litelog-spark"
"""The beginning of the jar's name. It shows whether a session has the jar."""

_SERVICE = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
_RELEASE = "17"
"""The oldest Java that Spark runs on."""

_TIMEOUT_SECONDS = 300
_OLD = (1980, 1, 1, 0, 0, 0)
"""The time of all files in a jar, so that the same source gives the same bytes."""

_logger = logging.getLogger(__name__)


def build_jar(target: str | Path) -> Path:
    """Compile the reader to the jar ``target``. Raises ConfigError without a compiler or Spark, or if javac fails."""
    compiler = _compiler()
    if compiler is None:
        raise ConfigError("no Java compiler was found (JAVA_HOME/bin/javac, javac on PATH); install a JDK 17 or newer")
    place = Path(target)
    with tempfile.TemporaryDirectory(prefix="litelog-jar-") as folder:
        _compile(compiler, folder)
        handle, made = tempfile.mkstemp(dir=place.absolute().parent, suffix=".jar")
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as jar:
            for path in sorted(Path(folder).rglob("*.class")):
                jar.writestr(zipfile.ZipInfo(path.relative_to(folder).as_posix(), _OLD), path.read_bytes())
            jar.writestr(zipfile.ZipInfo(_SERVICE, _OLD), PROVIDER + "\n")
        os.chmod(made, 0o644)
        os.rename(made, place)
    return place


@cache
def find_jar() -> Path | None:
    """The jar in the user's cache, compiled on first use. If that fails, logs the reason once and returns None."""
    cache_folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    place = Path(cache_folder) / "litelog" / "spark" / f"{JAR_PREFIX}-{_version()}.jar"
    if place.exists():
        return place
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        return build_jar(place)
    except (ConfigError, OSError) as error:
        message = "the columnar reader is left out, and Python reads: %s"
        _logger.info(message, error, extra=fields("no-columnar-reader"))
        return None


def _sources() -> list[Path]:
    return sorted(Path(__file__).parent.glob("*.java"))


def _version() -> str:
    """The version of Spark, and a digest of the source."""
    import pyspark  # noqa: PLC0415 - an extra

    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in _sources()))
    return f"{pyspark.__version__}-{digest.hexdigest()[:16]}"


def _compiler() -> str | None:
    home = os.environ.get("JAVA_HOME")
    held = Path(home) / "bin" / "javac" if home else None
    return str(held) if held is not None and held.exists() else shutil.which("javac")


def _compile(compiler: str, folder: str) -> None:
    import pyspark  # noqa: PLC0415 - an extra

    jars = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / "jars"
    options = ["-proc:none", "-nowarn", "-encoding", "UTF-8", "--release", _RELEASE]
    command = [compiler, *options, "-cp", f"{jars}/*", "-d", folder, *map(str, _sources())]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{compiler} cannot be run ({error})") from error
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if ": error: " in line] or done.stderr.splitlines()
        raise ConfigError(f"{compiler} refuses the columnar reader: {' | '.join(errors[:3])}")
