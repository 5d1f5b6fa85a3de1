"""A program that restores over an older copy or follows a replica, with the replica and the copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica_clients.file import FileStore
from tests.builders.replica_builder import ReplicaBuilder, make_log

if TYPE_CHECKING:
    from pathlib import Path


SCRIPT = """
import sys
from litelog.errors import LitelogError
from litelog.formats.litelog import LitelogFormat
from litelog.stores.object_store import ObjectReplicaClient
from litelog.restore.execution import restore
from litelog.restore.follow import CopyFollower
from litelog.restore.history_plan import Target, find_plan
from replica_clients.file import FileStore

def follow(client, output, plan, end):
    with CopyFollower(client, output, plan, format) as follower:
        follower.catch_up()
        print("following", flush=True)
        while str(follower.position) != end:
            follower.step()

mode, first, then, end, output = sys.argv[1:]
client, format = ObjectReplicaClient(FileStore(first)), LitelogFormat()
plan = find_plan(client, Target(), format)
try:
    if mode != "follow":
        restore(client, plan, output, log_format=format, parallelism=1, delta=True)
        print("restored", flush=True)
    if mode != "delta":
        follow(ObjectReplicaClient(FileStore(then)), output, plan, end)
except LitelogError as error:
    sys.exit(f"refused: {error}")
"""
"""``first`` is the replica at the restore, ``then`` is the same replica after it has grown."""


LOG = make_log([[1, 2], [2, 1], [3, 1], [1, 1], [2]])


OTHER = {"notes.txt": b"mine", ".lock": b""}
"""Files of an older copy that are not log segments. A restore keeps them."""


def whole(count: int) -> dict[str, bytes]:
    return {segment.name: segment.data for segment in LOG[:count]}


OLDER = {**whole(1), LOG[1].name: LOG[1].data[: LOG[1].ends[0]], LOG[4].name: LOG[4].data, **OTHER}
"""An older copy: a whole log segment, one that has grown since, and one that the replica lacks."""


DURING = {**whole(2), LOG[2].name: LOG[2].data[: LOG[2].ends[0]], **OTHER}


AFTER = {**whole(5), **OTHER}


class Replicas:
    """A replica at the time of the restore, the same replica later, and its end then."""

    def __init__(self, folder: Path) -> None:
        builder = ReplicaBuilder()
        built = builder.add(builder.claim(first=2), start=False)
        built.start([built.seal_unshipped(0, LOG[0]), built.seal_unshipped(1, LOG[1])])
        built.ship(LOG[2].data[: LOG[2].ends[0]], LOG[2].name)
        self.first = store_objects(builder, folder / "first")
        built.ship(LOG[2].data[LOG[2].ends[0] :], LOG[2].name, final=True)
        built.ship_segment(LOG[3], cuts=[0])
        built.ship_segment(LOG[4], final=None)
        self.then = store_objects(builder, folder / "then")
        self.end = str(built.slot)

    def arguments(self, mode: str) -> tuple[str, str, str, str]:
        return mode, str(self.first), str(self.then), self.end


def store_objects(builder: ReplicaBuilder, folder: Path) -> Path:
    store = FileStore(str(folder))
    builder.put_into(store)
    return folder


def place_with(folder: Path, files: dict[str, bytes]) -> Path:
    (folder / "out").mkdir(parents=True)
    for name, data in files.items():
        (folder / "out" / name).write_bytes(data)
    return folder


def held(output: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in output.iterdir()}
