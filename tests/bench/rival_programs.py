"""litelog and Litestream as ``bench_litestream`` runs them: the same rows in a log and in an SQLite database, a daemon
that replicates them, and a restore."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import yaml
from s3_server import BUCKET, REGION, replica_url

from litelog.log.writer import LogWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

LITELOG = Path(sys.executable).parent / "litelog"
SEGMENT_BYTES = 64 << 20
BATCH = 1000
RIVALS = ("0.3", "0.5")
"""The versions of Litestream that keep a replica in a way of their own."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place for replicas: below a folder, or below a prefix in a bucket."""

    folder: Path | None
    endpoint: str = ""
    prefix: str = ""


class Appender(Protocol):
    """Appends rows to one source. Each call is one commit, which is not synced: a busy disk does not slow the rate."""

    def append(self, row: bytes) -> None: ...

    def close(self) -> None: ...


class Program(Protocol):
    """A program that replicates."""

    name: str

    def make(self, source: Path, rows: Sequence[bytes]) -> None:
        """Make a source that holds ``rows``."""

    def open(self, source: Path) -> Appender:
        """Open a source to append to it."""

    def daemon(self, work: Path, sources: Sequence[Path], place: Place) -> list[str]:
        """The command of a daemon that replicates ``sources``. It writes a configuration to ``work``."""

    def restore(self, work: Path, source: Path, place: Place, output: Path) -> list[str]:
        """The command that restores what the daemon's configuration in ``work`` replicates of ``source``."""

    def size(self, source: Path) -> int:
        """The bytes of a source."""


class Litelog:
    """This litelog, with its defaults, or with another compression."""

    def __init__(self, compression: str = "") -> None:
        self.name = f"litelog {compression}".strip()
        self._settings = {"compression": compression} if compression else {}

    def make(self, source: Path, rows: Sequence[bytes]) -> None:
        with LogWriter(str(source), fsync="never", segment_bytes=SEGMENT_BYTES) as writer:
            for at in range(0, len(rows), BATCH):
                writer.append(rows[at : at + BATCH])

    def open(self, source: Path) -> Appender:
        return _LogAppender(source)

    def daemon(self, work: Path, sources: Sequence[Path], place: Place) -> list[str]:
        logs = [{"path": str(source), "replicas": [self._url(source, place)]} for source in sources]
        (work / "litelog.yml").write_text(yaml.safe_dump({"addr": "off", "logs": logs, **self._settings}))
        state = ["--state-dir", str(work / "state")]
        return [str(LITELOG), "replicate", "--quiet", *state, "--config", str(work / "litelog.yml")]

    def restore(self, work: Path, source: Path, place: Place, output: Path) -> list[str]:
        return [str(LITELOG), "restore", "--quiet", "-o", str(output), self._url(source, place)]

    def size(self, source: Path) -> int:
        return sum(path.stat().st_size for path in source.glob("*.log"))

    @staticmethod
    def _url(source: Path, place: Place) -> str:
        if place.folder is not None:
            return str(place.folder / source.name)
        return replica_url(place.endpoint, f"{place.prefix}/{source.name}")


class _LogAppender:
    def __init__(self, source: Path) -> None:
        self._writer = LogWriter(str(source), fsync="never")

    def append(self, row: bytes) -> None:
        self._writer.append(row)

    def close(self) -> None:
        self._writer.close()


class Litestream:
    """A Litestream binary, with its defaults."""

    def __init__(self, binary: Path) -> None:
        self._binary = str(binary)
        done = subprocess.run([self._binary, "version"], capture_output=True, text=True, check=True)
        version = done.stdout.strip().removeprefix("v")
        self.name = f"litestream {version if version[:1].isdigit() else binary.name.removeprefix('litestream-')}"

    def make(self, source: Path, rows: Sequence[bytes]) -> None:
        source.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(source)) as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, value BLOB)")
            database.executemany("INSERT INTO rows (value) VALUES (?)", ((row,) for row in rows))
            database.commit()
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def open(self, source: Path) -> Appender:
        return _DatabaseAppender(source)

    def daemon(self, work: Path, sources: Sequence[Path], place: Place) -> list[str]:
        databases = [{"path": str(source), "replicas": [self._replica(source, place)]} for source in sources]
        (work / "litestream.yml").write_text(yaml.safe_dump({"dbs": databases}))
        return [self._binary, "replicate", "-config", str(work / "litestream.yml")]

    def restore(self, work: Path, source: Path, place: Place, output: Path) -> list[str]:
        output.mkdir(parents=True, exist_ok=True)
        configuration = ["-config", str(work / "litestream.yml")]
        return [self._binary, "restore", *configuration, "-o", str(output / "database"), str(source)]

    def size(self, source: Path) -> int:
        return source.stat().st_size

    @staticmethod
    def _replica(source: Path, place: Place) -> dict[str, object]:
        if place.folder is not None:
            return {"type": "file", "path": str(place.folder / source.name)}
        named = {"bucket": BUCKET, "path": f"{place.prefix}/{source.name}", "region": REGION}
        return {"type": "s3", **named, "endpoint": place.endpoint, "force-path-style": True}


class _DatabaseAppender:
    def __init__(self, source: Path) -> None:
        self._database = sqlite3.connect(source, isolation_level=None)
        self._database.execute("PRAGMA synchronous = NORMAL")

    def append(self, row: bytes) -> None:
        self._database.execute("INSERT INTO rows (value) VALUES (?)", (row,))

    def close(self) -> None:
        self._database.close()


def find_programs(compressions: Sequence[str] = ()) -> list[Program]:
    """litelog, with its defaults and with each of ``compressions``, and each binary on the path whose name begins with
    ``litestream``."""
    found: dict[str, Path] = {}
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        for path in sorted(Path(folder).glob("litestream*")) if folder else ():
            if shutil.which(path):
                found.setdefault(path.name, path)
    return [Litelog(), *map(Litelog, compressions), *map(Litestream, found.values())]


def find_missing(programs: Sequence[Program]) -> dict[str, str]:
    """The versions of Litestream that are not among ``programs``, with the reason."""
    names = [program.name for program in programs]
    absent = [version for version in RIVALS if not any(name.startswith(f"litestream {version}") for name in names)]
    return {f"Litestream {version}": "no such program on the path" for version in absent}
