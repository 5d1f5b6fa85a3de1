"""The append-only files of a Redis that a test plays: a base file, incremental files, and their manifest."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from litelog.formats.redis_aof import RedisAofFormat
from litelog.formats.redis_aof.manifest import write_manifest
from tests.builders.log_builder import LogBuilder
from tests.builders.redis_server import encode

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST = "appendonly.aof.manifest"


@dataclass
class RedisLog(LogBuilder):
    """A log whose writer keeps a manifest. ``listed`` holds the files that are in it."""

    listed: list[str] = field(default_factory=list)

    def commit(self, size: int = 10, tag: bytes = b"r") -> bytes:
        self.next += 1
        return encode(("SET", tag + b"%d" % self.next, b"." * size))

    def begin(self, number: int, base: bytes = b"REDIS0011 a base file") -> None:
        """Begin the log again, as the end of a rewrite does: with a base file, and a new incremental file."""
        old = self.listed
        self.write(base, f"appendonly.aof.{number}.base.rdb")
        self.listed = [f"appendonly.aof.{number}.base.rdb"]
        self.name = f"appendonly.aof.{number}.incr.aof"
        self.write(b"")
        self.list(self.name)
        for name in old:
            self.delete(name)

    def increment(self, number: int) -> None:
        """Continue in a new incremental file, as the beginning of a rewrite does."""
        self.name = f"appendonly.aof.{number}.incr.aof"
        self.write(b"")
        self.list(self.name)

    def list(self, name: str) -> None:
        self.listed = [*self.listed, name]
        temporary = self.path(f"temp-{MANIFEST}")
        with open(temporary, "wb") as file:
            file.write(write_manifest(self.listed)[1])
        os.rename(temporary, self.path(MANIFEST))


def make_redis_log(folder: Path) -> RedisLog:
    """A log with an empty incremental file."""
    folder.mkdir()
    made = RedisLog(str(folder), RedisAofFormat())
    made.begin(1)
    return made
