"""A restore writes the index files without which the log's writer does not open the log, and a follower removes the one
that no longer fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from litelog.formats import Expectation
from litelog.formats.netlog import NetlogFormat
from litelog.formats.netlog.index_file import ROW
from litelog.restore.follow import CopyFollower
from litelog.restore.history_plan import Target, find_plan
from tests.builders.recorded_logs import recorded_segments
from tests.builders.replica_builder import ReplicaBuilder
from tests.builders.restoring import files_in, restore_to

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = NetlogFormat()
SEGMENTS = recorded_segments("netlog", "sets", ".data")
NAMES = [name for name, _ in SEGMENTS]


def ends(name: str, data: bytes) -> list[int]:
    return [commit.end for commit in FORMAT.commits(name, memoryview(data), 0, Expectation())]


def rows(folder: Path, name: str) -> list[tuple[int, int]]:
    """Number and place of the rows in the index of a log segment."""
    found = np.fromfile(folder / name.replace(".data", ".index"), ROW)
    used = found[found["number"] > 0]
    return list(zip(used["number"].tolist(), used["place"].tolist(), strict=True))


@pytest.mark.slow
def test_a_restore_writes_an_index_for_each_log_segment(tmp_path: Path) -> None:
    builder = ReplicaBuilder(FORMAT)
    built = builder.add()
    for name, data in SEGMENTS:
        built.ship(data, name, final=True)
    restore_to(builder.client, tmp_path / "out", log_format=FORMAT)
    files = files_in(tmp_path / "out")
    assert {name: files[name] for name in NAMES} == dict(SEGMENTS)
    assert files.keys() == {*NAMES, *(name.replace(".data", ".index") for name in NAMES)}
    for name, data in SEGMENTS:
        assert [place for _, place in rows(tmp_path / "out", name)] == [16, *ends(name, data)]


@pytest.mark.slow
def test_the_index_of_a_restore_to_a_sequence_ends_with_it(tmp_path: Path) -> None:
    builder = ReplicaBuilder(FORMAT)
    built = builder.add()
    for name, data in SEGMENTS:
        built.ship(data, name, final=True)
    restore_to(builder.client, tmp_path / "out", Target(sequence=16), log_format=FORMAT)
    name, data = SEGMENTS[1]
    assert rows(tmp_path / "out", name) == [(1, 16), (4, ends(name, data)[0])]  # the next set ends after it
    assert not (tmp_path / "out" / NAMES[2]).exists()


@pytest.mark.slow
def test_a_copy_that_follows_has_no_index_for_what_was_appended(tmp_path: Path) -> None:
    builder = ReplicaBuilder(FORMAT)
    built, (name, data) = builder.add(), SEGMENTS[0]
    cut = ends(name, data)[1]
    built.ship(data[:cut], name)
    out = tmp_path / "out"
    restore_to(builder.client, out, log_format=FORMAT)
    plan = find_plan(builder.client, Target(), FORMAT)
    with CopyFollower(builder.client, str(out), plan, FORMAT) as follower:
        assert rows(out, name)
        built.ship(data[cut:], name, final=True)
        for later, more in SEGMENTS[1:]:
            built.ship(more, later, final=True)
        while follower.step():
            pass
    assert files_in(out) == dict(SEGMENTS)
    restore_to(builder.client, out, log_format=FORMAT, delta=True)
    assert [place for _, place in rows(out, name)] == [16, *ends(name, data)]
