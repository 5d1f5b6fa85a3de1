"""``litelog cat --follow`` waits for a replica that does not exist yet, with any options."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from litelog_cli.arguments import PLACE_POLL_SECONDS, StartKind, StartPoint, wait_for_place
from litelog_cli.configured import ConfiguredReplica
from litelog_cli.inputs import GenerationSource, replica_batches
from litelog_cli.verbs.cat import wait_for_start
from replica_clients.file import FileStore
from tests.builders.replica_builder import ReplicaBuilder, make_segment

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command


@pytest.mark.parametrize("name", ["epochs/1.json", "generations/g/wal", "00.log"])
def test_a_folder_is_waited_for_until_it_is_a_replica_or_holds_a_log(tmp_path: Path, name: str) -> None:
    place = tmp_path / "place"
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 1:
            place.mkdir()
            (place / ".hidden").touch()
            (place / "lost+found").mkdir()
        elif len(waits) == 2:
            os.makedirs((place / name).parent, exist_ok=True)
            (place / name).touch()

    assert wait_for_place(str(place), wait)
    assert waits == [PLACE_POLL_SECONDS] * 2
    assert not wait_for_place(str(place), wait)


@pytest.mark.parametrize(
    ("kind", "expected"), [(StartKind.LAST, StartKind.BEGINNING), (StartKind.END, StartKind.BEGINNING)]
)
def test_the_end_of_a_place_that_did_not_exist_is_its_beginning(
    tmp_path: Path, kind: StartKind, expected: StartKind
) -> None:
    place = tmp_path / "place"
    assert wait_for_start(str(place), StartPoint(kind), lambda _: os.makedirs(place / "epochs")).kind is expected
    assert wait_for_start(str(place), StartPoint(kind), pytest.fail).kind is kind


@pytest.mark.parametrize("kind", [StartKind.BEGINNING, StartKind.LAST, StartKind.END])
def test_the_end_of_a_replica_that_holds_nothing_yet_is_its_beginning(tmp_path: Path, kind: StartKind) -> None:
    replica = ConfiguredReplica(f"file://{tmp_path}/replica")
    with ExitStack() as stack:
        batches = replica_batches(stack, GenerationSource(replica, None, None), StartPoint(kind), None, True)
        builder = ReplicaBuilder()
        builder.add().ship_segment(make_segment(0, [3]))
        store = FileStore(str(tmp_path / "replica"))
        builder.put_into(store)
        assert next(batches).sequences.tolist() == [0, 1, 2]


@pytest.mark.parametrize("place", ["replica", "file://{folder}/replica"])
def test_following_by_a_pattern_before_there_is_a_replica_waits_for_it(litelog: Command, place: str) -> None:
    source = litelog.folder / "app"
    source.mkdir()
    place = place.format(folder=litelog.folder)
    process = litelog.start("cat", "--follow", "--pattern", "app-*.log", "--to", "2", place)
    (source / "app-1.log").write_text("one\ntwo\n")
    litelog("replicate", "--once", "--format", "lines", "--pattern", "app-*.log", "app", "replica")
    out, err = process.communicate(timeout=240)
    assert (process.returncode, out, err) == (0, "one\ntwo\n", "")
