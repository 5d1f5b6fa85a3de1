"""A standalone cluster of Spark on this machine: a master, a worker, and jobs of which one executor is killed."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litelog.spark.spark_session import java_home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

WAIT_SECONDS = 300.0
"""Time for some JVMs to start on a busy machine."""

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "0ms",
}
"""Spark begins a second attempt of a task as soon as it takes longer than the first ones that are over."""

WORKER_PYTHON = """#!/bin/sh
touch {gate}/started.$PPID
until [ -e {gate}/open ]; do sleep 0.1; done
exec {python} "$@"
"""
"""The Python of the executors. It waits until an executor was killed: so each job is in its tasks at that moment."""


@dataclass(frozen=True)
class Cluster:
    """A running cluster."""

    master: str
    folder: Path
    environment: Mapping[str, str]

    def submit(self, job: str, arguments: Sequence[str], config: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run ``litelog spark ...`` by spark-submit, with speculation, and kill an executor that runs a task of it."""
        gate = self.folder / f"gate-{job}"
        gate.mkdir()
        python = gate / "python"
        python.write_text(WORKER_PYTHON.format(gate=shlex.quote(str(gate)), python=shlex.quote(sys.executable)))
        python.chmod(0o755)
        settings = SPECULATION | {"spark.executor.cores": "1", "spark.executor.memory": "512m"} | dict(config)
        command = [*_script("spark-submit"), "--master", self.master, "--driver-memory", "512m"]
        command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        command += [str(_main()), *arguments]
        environment = {**self.environment, "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": sys.executable}
        running = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder
        )
        try:
            wait_for(lambda: running.poll() is not None or list(gate.glob("started.*")))
            for started in list(gate.glob("started.*"))[:1]:
                os.kill(int(started.suffix[1:]), signal.SIGKILL)
                started.rename(gate / "killed")
            (gate / "open").touch()
            output, errors = running.communicate(timeout=WAIT_SECONDS)
        finally:
            running.kill()
        return subprocess.CompletedProcess(command, running.returncode, output, errors)

    def has_killed(self, job: str) -> bool:
        """Whether an executor of a job was killed in a task."""
        return (self.folder / f"gate-{job}" / "killed").exists()


@contextmanager
def cluster(folder: Path, environment: Mapping[str, str]) -> Iterator[Cluster]:
    """Run a master and a worker with two processors, on the loopback."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    given = {**kept, **environment, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(folder / "local")}
    if (home := java_home()) is not None:
        given["JAVA_HOME"] = home
    with ExitStack() as stack:
        log = stack.enter_context(_started(folder, given, "master.Master", "--port", "0"))
        master = wait_for(lambda: re.search(r"Starting Spark master at (spark://\S+)", log.read_text()))[1]
        work = ["--cores", "2", "--memory", "2g", "--work-dir", str(folder / "work"), master]
        log = stack.enter_context(_started(folder, given, "worker.Worker", *work))
        wait_for(lambda: "Successfully registered with master" in log.read_text())
        yield Cluster(master, folder, given)


@contextmanager
def _started(folder: Path, environment: Mapping[str, str], name: str, *arguments: str) -> Iterator[Path]:
    """Run a process of the cluster, and yield its log."""
    log = folder / f"{name}.log"
    command = [*_script("spark-class"), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", "--webui-port", "0"]
    with open(log, "wb") as output:
        process = subprocess.Popen([*command, *arguments], env=dict(environment), stdout=output, stderr=output)
    try:
        yield log
    finally:
        process.terminate()
        try:
            process.wait(WAIT_SECONDS)
        finally:
            process.kill()


def wait_for(found: Callable[[], Any]) -> Any:
    """Wait until ``found`` returns something, and return it."""
    until = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < until:
        if result := found():
            return result
        time.sleep(0.1)
    raise TimeoutError("the cluster did not come up")


def _script(name: str) -> list[str]:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return ["bash", str(Path(spec.origin).parent / "bin" / name)]


def _main() -> Path:
    spec = find_spec("litelog_cli.__main__")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin)
