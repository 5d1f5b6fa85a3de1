"""A log of three log segments, replicas of it, and what a repair made of the log's folder, for tests of repair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litelog.formats.litelog import LitelogFormat
from litelog.log.unfinished_repair import BACKUPS
from litelog.objects.claim import Relation
from litelog.repair.execution import repair
from tests.builders.replica_builder import ReplicaBuilder, client_of, make_log

if TYPE_CHECKING:
    from pathlib import Path

    from litelog.repair.plan import RepairResult
    from litelog.stores.replica_client import ReplicaClient
    from tests.builders.replica_builder import GenerationBuilder, LogSegment

LOG = make_log([[2, 1, 3], [1, 1, 2, 1], [2, 2, 1]])
FIRST, MIDDLE, LAST = LOG
FORMAT = LitelogFormat()


def whole(log: list[LogSegment] = LOG) -> dict[str, bytes]:
    return {segment.name: segment.data for segment in log}


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def held(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != ".lock"}


def backups(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / BACKUPS).rglob("*") if path.is_file()}


def ship(built: GenerationBuilder, log: list[LogSegment] = LOG) -> GenerationBuilder:
    *finished, last = log
    for segment in finished:
        built.ship_segment(segment, cuts=[0])
    built.ship_segment(last, cuts=[0], final=None)
    return built


def replica(kind: str = "wal", log: list[LogSegment] = LOG) -> ReplicaClient:
    """A replica of the log: of WAL segments, or with sealed segments for the finished log segments."""
    builder = ReplicaBuilder()
    built = ship(builder.add(), log)
    if kind == "sealed":
        built.snapshot(len(log) - 1)
        built.prune(len(log) - 1)
    return client_of(builder.objects())


def run(folder: Path, *clients: ReplicaClient, **options: Any) -> RepairResult:
    return repair(str(folder), FORMAT, clients, **{"confirm": True, **options})


def done(result: RepairResult) -> list[tuple[str, str, int, int | None]]:
    return [(str(each.method), each.file, each.offset, each.end) for each in result.plan.places]


def diverged(log: list[LogSegment], then: list[LogSegment]) -> ReplicaClient:
    """A replica whose latest generation left the history of the one before it."""
    builder = ReplicaBuilder()
    ship(builder.add(), log)
    ship(builder.add(builder.claim(Relation.DIVERGED)), then)
    return client_of(builder.objects())
