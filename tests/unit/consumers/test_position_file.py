"""The durable position of a consumer: it is moved by who knows it, and damage never makes it a later one."""

from __future__ import annotations

import logging
import os
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from litelog.consumers.position_file import ConsumerPosition, Evidence, PositionFile, consumer_names
from litelog.errors import ConsumerMovedError, ConsumerStateError
from litelog.log.replica_registry import ReplicaSet
from tests.waiting import WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = 10**15
EVIDENCE = Evidence(4, 1, 7)
LOST = (b"", b"{}", b"\xff")


@pytest.fixture
def file(tmp_path: Path) -> PositionFile:
    return PositionFile(str(tmp_path / "state"), "billing")


def test_it_is_moved_from_one_revision_to_the_next(file: PositionFile) -> None:
    assert file.read() is None
    first = file.move(None, None, None, NOW)
    second = file.move(first, 5, EVIDENCE, NOW + 1)
    assert file.read() == second
    assert (second.revision, second.next, second.evidence, second.updated) == (2, 5, EVIDENCE, NOW + 1)
    with pytest.raises(ConsumerMovedError):
        file.move(first, 6, None, NOW)
    with pytest.raises(ConsumerMovedError):
        file.move(None, 6, None, NOW)
    assert file.read() == second


def test_a_position_that_is_moved_back_and_forth_is_another_one(file: PositionFile) -> None:
    held = file.move(None, 5, None, NOW)
    file.force(9, NOW)
    file.force(5, NOW)
    with pytest.raises(ConsumerMovedError):
        file.move(held, 6, None, NOW)


@pytest.mark.parametrize("damage", [Path.unlink, *(partial(Path.write_bytes, data=lost) for lost in LOST)])
def test_a_damaged_file_is_replaced_by_the_position_before(
    file: PositionFile, damage: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    first = file.move(None, 5, EVIDENCE, NOW)
    file.move(first, 9, None, NOW)
    damage(Path(file.path))
    with caplog.at_level(logging.WARNING):
        assert file.read() == first
    assert "consumer billing continues at its previous position" in caplog.text
    assert file.move(first, 8, None, NOW).revision == 2


def test_each_flipped_bit_is_noticed(file: PositionFile) -> None:
    first = file.move(None, 5, EVIDENCE, NOW)
    file.move(first, 9, None, NOW)
    with open(file.path, "rb") as opened:
        whole = opened.read()
    for bit in range(8 * len(whole)):
        with open(file.path, "wb") as opened:
            opened.write(whole[: bit // 8] + bytes([whole[bit // 8] ^ 1 << bit % 8]) + whole[bit // 8 + 1 :])
        found = file.read()
        assert found is not None
        assert found.next == 5


def test_without_any_usable_position_a_person_says_where_it_continues(file: PositionFile) -> None:
    held = file.move(None, 5, None, NOW)
    with open(file.path, "wb") as opened:
        opened.write(b"{")
    with pytest.raises(
        ConsumerStateError, match="run litelog consumers move to state where consumer billing continues"
    ):
        file.read()
    with pytest.raises(ConsumerStateError):
        file.move(held, 6, None, NOW)
    assert file.force(3, NOW).next == 3
    with pytest.raises(ConsumerMovedError):
        file.move(held, 6, None, NOW)


def test_a_deleted_position_does_not_come_back(file: PositionFile, tmp_path: Path) -> None:
    first = file.move(None, 5, None, NOW)
    file.move(first, 6, None, NOW)
    assert consumer_names(str(tmp_path / "state")) == ["billing"]
    assert file.delete()
    assert file.read() is None
    assert not file.delete()
    assert consumer_names(str(tmp_path / "state")) == []
    assert not PositionFile(str(tmp_path / "none"), "billing").delete()
    assert not (tmp_path / "none").exists()


def test_positions_are_private_and_no_replica(file: PositionFile, tmp_path: Path) -> None:
    file.move(None, 5, None, NOW)
    assert os.stat(file.path).st_mode & 0o077 == os.stat(os.path.dirname(file.path)).st_mode & 0o077 == 0
    replicas = ReplicaSet(str(tmp_path / "state"))
    replicas.add("r", "memory://r")
    assert list(replicas.names() or ()) == ["r"]


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    blocked = PositionFile(str(tmp_path / "file"), "billing")
    with pytest.raises(ConsumerStateError, match="cannot be kept"):
        blocked.move(None, 5, None, NOW)


def test_of_many_that_hold_one_position_one_moves_it(file: PositionFile) -> None:
    held = file.move(None, 0, None, NOW)
    for step in range(1, 6):
        moved = race(file, held, step)
        assert (len(moved), file.read()) == (1, moved[0])
        (held,) = moved


def race(file: PositionFile, held: ConsumerPosition, following: int) -> list[ConsumerPosition]:
    """Move one position from four threads at once. Returns the positions of those that could."""
    ready, moved, refused = threading.Barrier(4), [], []

    def move() -> None:
        ready.wait(WAIT_SECONDS)
        try:
            moved.append(file.move(held, following, None, NOW))
        except ConsumerMovedError as error:
            refused.append(error.next)

    threads = [threading.Thread(target=move) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert refused == [following] * (4 - len(moved))
    return moved
