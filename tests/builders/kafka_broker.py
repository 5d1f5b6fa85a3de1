"""A Kafka broker for tests and recordings: one process in KRaft mode on loopback, and a Java program that talks to it.

tests/README.md says how to get Kafka. ``find_libs`` looks in the folders that ``LITELOG_TEST_SERVERS`` names.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tests.builders.real_servers import START_SECONDS, VARIABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION = "3.9.1"
PROGRAM = Path(__file__).parent.parent / "fixtures" / "kafka" / "Record.java"
CLUSTER = "bGl0ZWxvZy10ZXN0cy0wMQ"
"""A cluster id: 16 bytes in base64."""

READY = "Kafka Server started"
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "CLIENTS",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "200",
    "log.cleaner.dedupe.buffer.size": "2000000",
    "replica.high.watermark.checkpoint.interval.ms": "200",
    "log.retention.ms": "-1",
    "auto.create.topics.enable": "false",
    "num.network.threads": "2",
    "num.io.threads": "2",
    "background.threads": "2",
}


def find_libs() -> str | None:
    """The folder with Kafka's jars; None if Kafka or Java is not installed."""
    if shutil.which("java") is None:
        return None
    for folder in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        if Path(folder, "kafka", "libs", f"kafka_2.13-{VERSION}.jar").exists():
            return str(Path(folder, "kafka", "libs"))
    return None


class KafkaBroker:
    """One broker with its folders and ports. ``data`` is its ``log.dirs``."""

    def __init__(self, folder: Path) -> None:
        libs = find_libs()
        assert libs is not None, "Kafka is not installed"
        self.folder, self.data = folder, folder / "data"
        self._classes = f"{libs}/*"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.port, controller = _free_ports()
        settings = {
            **SETTINGS,
            "log.dirs": str(self.data),
            "listeners": f"CLIENTS://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"CLIENTS://127.0.0.1:{self.port}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        }
        (folder / "server.properties").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        (folder / "log4j.properties").write_text(
            "log4j.rootLogger=INFO, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
            "log4j.appender.out.layout.ConversionPattern=%p %m (%c)%n\n"
        )

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def format(self) -> None:
        """Write what a new broker's folder needs: ``meta.properties``, and the first metadata."""
        self._java("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(self.folder / "server.properties"))

    def start(self) -> None:
        """Start it, and wait until it serves."""
        log = self.folder / "output"
        before = log.stat().st_size if log.exists() else 0
        options = [
            "-Xmx512m",
            "-Xms64m",
            "-XX:+UseSerialGC",
            f"-Dlog4j.configuration=file:{self.folder}/log4j.properties",
        ]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                ["java", *options, "-cp", self._classes, "kafka.Kafka", str(self.folder / "server.properties")],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
            )
        deadline = time.monotonic() + START_SECONDS
        while READY not in (said := log.read_bytes()[before:].decode(errors="replace")):
            assert self._process.poll() is None, f"Kafka ended: {said[-2000:]}"
            assert time.monotonic() < deadline, f"Kafka does not start: {said[-2000:]}"
            time.sleep(0.1)

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Kill it, or let it stop with SIGTERM."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_SECONDS)
            self._process = None

    def client(self, *verbs: str) -> str:
        """Run verbs of the Java program, each with its arguments in one text, and return what they print."""
        words = [word for verb in verbs for word in (",", *verb.split())]
        return self._java(str(PROGRAM), self.bootstrap, *words[1:])

    def start_client(self, verb: str, output: IO[Any]) -> subprocess.Popen[bytes]:
        """Start a verb of the Java program that runs until it is killed."""
        command = ["java", "-Xmx128m", "-cp", self._classes, str(PROGRAM), self.bootstrap, *verb.split()]
        return subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)

    def dump(self, topic: str, isolation: str = "read_uncommitted") -> list[dict[str, Any]]:
        """What the broker serves of partition 0: its records, and at the end the first offset and the one after all."""
        return self.dump_all([topic], isolation)[topic]

    def dump_all(self, topics: list[str], isolation: str = "read_uncommitted") -> dict[str, list[dict[str, Any]]]:
        """What ``dump`` returns, of several topics."""
        found: dict[str, list[dict[str, Any]]] = {topic: [] for topic in topics}
        left = list(topics)
        for line in self.client(*(f"dump {topic} {isolation}" for topic in topics)).splitlines():
            found[left[0]].append(json.loads(line))
            if "end" in found[left[0]][-1]:
                del left[0]
        return found

    def _java(self, *arguments: str) -> str:
        options: Sequence[str] = ["-Xmx256m", f"-Dlog4j.configuration=file:{self.folder}/quiet.properties"]
        (self.folder / "quiet.properties").write_text("log4j.rootLogger=OFF\n")
        command = ["java", *options, "-cp", self._classes, *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, timeout=180
        )
        assert done.returncode == 0, f"{arguments}: {done.stderr[-3000:]}{done.stdout[-500:]}"
        return done.stdout


def _free_ports() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return int(one.getsockname()[1]), int(other.getsockname()[1])
