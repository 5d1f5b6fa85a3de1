"""The processes of a soak: writers, daemons and followers, as seen from outside."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from prometheus_client.parser import text_string_to_metric_families

from litelog.errors import ExitCode
from tests.builders.short_waits import RUN_COMMAND, SHORT_LISTING
from tests.faults.soak_gauges import Gauge
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    import signal

BARRIER_SECONDS = 60
"""Longer than the delay between two attempts of a sync that fails repeatedly."""

LOOKS = 20
"""The number of measurements for one gauge."""

FOLLOWER_ERROR = re.compile(r"litelog: .*\b(open|list)\b")
"""The StoreError that a follower prints when its requests fail for longer than it retries."""

LATE = {"lag", "failing"}
"""The kinds of reasons for a late replica: it lags, or its syncs fail, for longer than allowed."""

Labels = tuple[str, ...]


class JsonLines:
    """The whole lines that a process has written to a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seen: list[dict[str, Any]] = []
        self.others: list[str] = []
        """Lines that are not JSON."""
        self._at = 0

    def read(self) -> list[dict[str, Any]]:
        """All JSON objects in the file. A call reads only the new lines."""
        with self.path.open("rb") as file:
            file.seek(self._at)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._at += len(whole)
        for line in whole.decode().splitlines():
            if line.startswith("{"):
                self.seen.append(json.loads(line))
            else:
                self.others.append(line)
        return self.seen


class Process:
    """A Python process whose standard output and error are files of JSON lines."""

    def __init__(self, name: Path, *arguments: str) -> None:
        out, err = name.with_suffix(".out"), name.with_suffix(".err")
        with out.open("wb") as stdout, err.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, *arguments], stdin=subprocess.PIPE, stdout=stdout, stderr=stderr
            )
        self.said, self.logged = JsonLines(out), JsonLines(err)

    def check_alive(self) -> None:
        assert self.process.poll() is None, f"exit code {self.process.returncode}: {self.errors()}"

    def errors(self) -> str:
        """The end of its log."""
        return self.logged.path.read_text()[-2000:]

    def end(self, number: signal.Signals) -> int:
        """Send a signal; return the exit code."""
        self.process.send_signal(number)
        code = self.process.wait(WAIT_SECONDS)
        self.end_input()
        return code

    def end_input(self) -> None:
        """Close its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.close()


class Writer(Process):
    """A process that appends to many logs."""

    def __init__(self, name: Path, seed: int, segment_bytes: int, pause: float) -> None:
        script = str(Path(__file__).with_name("soak_writer.py"))
        super().__init__(name, script, str(seed), str(segment_bytes), str(pause))
        self._read = 0
        self._done: Counter[str] = Counter()
        self._next: dict[str, int] = {}

    def order(self, command: str) -> None:
        """Send a command, and wait until the writer has executed it."""
        self._look()
        done = self._done[command]
        assert self.process.stdin is not None
        self.process.stdin.write(command.encode() + b"\n")
        self.process.stdin.flush()

        def obeyed() -> bool:
            self.check_alive()
            self._look()
            return self._done[command] > done

        wait_until(obeyed, f"the writer does: {command}")

    def written(self) -> dict[str, int]:
        """The sequence after the last record of each log that it reported as durable."""
        self._look()
        return dict(self._next)

    def _look(self) -> None:
        facts = self.said.read()
        for fact in facts[self._read :]:
            if "did" in fact:
                self._done[fact["did"]] += 1
            else:
                self._next[fact["log"]] = fact["next"]
        self._read = len(facts)


class Daemon(Process):
    """``litelog replicate --config``, which listens at a unix socket."""

    def __init__(self, name: Path, config: Path, place: Path) -> None:
        super().__init__(name, "-c", SHORT_LISTING + RUN_COMMAND, "replicate", "--json", "--config", str(config))
        self._place = str(place)

    def get(self, path: str) -> tuple[int, bytes]:
        """An answer's status and body; the status is 0 without an answer."""
        return self._ask("GET", path)

    def barrier(self, log: str | None) -> bool:
        """Wait until all that one log, or every log, holds now is in all replicas; False after BARRIER_SECONDS."""
        chosen = "" if log is None else f"&log={quote(log)}"
        status, body = self._ask("POST", f"/sync?wait={BARRIER_SECONDS}s{chosen}")
        assert status in (200, 504), f"{status} {body!r}: {self.errors()}"
        return status == 200

    def _ask(self, method: str, path: str) -> tuple[int, bytes]:
        self.check_alive()
        connection = http.client.HTTPConnection("localhost")
        with socket.socket(socket.AF_UNIX) as connection.sock:
            connection.sock.settimeout(WAIT_SECONDS)
            try:
                connection.sock.connect(self._place)
                connection.request(method, path)
                answer = connection.getresponse()
                return answer.status, answer.read()
            except (OSError, http.client.HTTPException):
                return 0, b""

    def wait_for(self, path: str, status: int) -> None:
        """Wait until the answer for ``path`` has this status."""
        wait_until(
            lambda: self.get(path)[0] == status,
            f"{path} is {status}",
            lambda: f"{self.get('/healthz')}: {self.errors()}",
        )

    def wait_until_ready(self) -> None:
        """Wait until the daemon is ready. It may lag, as on a busy machine it may never keep up with the writers."""

        def is_ready() -> bool:
            status, body = self.get("/readyz")
            return status == 200 or (status == 503 and {each["kind"] for each in json.loads(body)["reasons"]} <= LATE)

        wait_until(is_ready, "it is ready", lambda: f"{self.get('/readyz')}: {self.errors()}")

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self._answered("/status")))

    def _answered(self, path: str) -> bytes:
        status, body = self.get(path)
        assert status == 200, f"{path}: {status} {body!r}: {self.errors()}"
        return body

    def logs(self) -> set[str]:
        """The logs that are replicated."""
        return {each["log"] for each in self.status()["logs"]}

    def metrics(self, name: str, *labels: str) -> dict[Labels, float]:
        """The samples of a metric other than 0, by the values of these labels."""
        families = text_string_to_metric_families(self._answered("/metrics").decode())
        return {
            tuple(sample.labels[label] for label in labels): sample.value
            for family in families
            for sample in family.samples
            if sample.name == name and sample.value
        }

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.said.read() if event["event"] == kind]

    def acknowledged(self, log: str, replica: str) -> int:
        """The sequence after the last record that it reported for a replica whose URL begins with ``replica``."""
        events = (event for event in self.events("shipped") if event["log"] == log)
        own = [event for event in events if event["replica"].partition("?")[0] == replica]
        return max((event["next"] or 0 for event in own), default=0)

    def written(self) -> dict[Labels, float]:
        """The objects that it reported as durable, counted as the metric counts them."""
        kinds = {"shipped": "wal", "sealed": "sealed", "snapshot": "snapshot"}
        events = (event for event in self.said.read() if event["event"] in kinds)
        return dict(Counter((event["log"], event["replica"], kinds[event["event"]]) for event in events))

    def gauge(self) -> Gauge:
        """The daemon's resources now: the least of several measurements, as background work briefly opens files."""
        looks = [self._look() for _ in range(LOOKS)]
        least = [min(getattr(look, field) for look in looks) for field in ("resident_bytes", "files", "sockets")]
        return Gauge(*least, threads=max(look.threads for look in looks))

    def _look(self) -> Gauge:
        self.status()  # the daemon does some work between two measurements
        folder = Path(f"/proc/{self.process.pid}")
        lines = (folder / "status").read_text().splitlines()
        facts = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        targets = []
        for descriptor in (folder / "fd").iterdir():
            try:
                targets.append(os.readlink(descriptor))
            except FileNotFoundError:  # closed meanwhile
                continue
        sockets = sum(target.startswith("socket:") for target in targets)
        resident = int(facts["RssAnon"].split()[0]) * 1024
        return Gauge(resident, len(targets) - sockets, sockets, int(facts["Threads"]))


class Follower:
    """``litelog cat --follow`` of a replica.

    If a request fails, the process ends; it is started again after the last record that it has printed."""

    def __init__(self, name: Path, config: Path, url: str) -> None:
        self._name, self._arguments = name, (url, "--config", str(config))
        self.given_up = 0
        self._done: list[int] = []
        self.process = self._start()

    def sequences(self) -> list[int]:
        """The sequences of the printed records."""
        if self.process.process.poll() is not None:
            assert self.process.process.returncode == ExitCode.FAILURE, self.process.errors()
            assert FOLLOWER_ERROR.search(self.process.errors()), self.process.errors()
            self._done += self._printed()
            self.process.end_input()
            self.given_up += 1
            self.process = self._start()
        return [*self._done, *self._printed()]

    def _start(self) -> Process:
        start = self._done[-1] + 1 if self._done else 0
        name = self._name.with_name(f"{self._name.name}-{self.given_up}")
        return Process(name, "-m", "litelog_cli", "cat", "--follow", "--from", str(start), *self._arguments)

    def _printed(self) -> list[int]:
        lines = self.process.said.path.read_bytes().split(b"\n")[:-1]
        return [int(line.partition(b":")[0]) for line in lines]
