"""What Java gets to know of a sealed segment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("pyarrow")

from litelog.codec.checksum import crc32c
from litelog.errors import CorruptObjectError, NotFoundError
from litelog.objects.position import epoch_of
from litelog.spark.jvm.conditions import LEAST, MOST, QueriedLog
from litelog.spark.jvm.opening import open_for_java
from litelog.spark.options import Range, parse_options
from litelog.spark.scan.partitions import SealedPiece
from litelog.spark.scan.planning import plan
from litelog.stores.registry import open_store
from tests.builders.replica_builder import SECOND, ReplicaBuilder, make_log

if TYPE_CHECKING:
    from litelog.spark.scan.partitions import PlannedLog

COUNTS = [3, 2, 4, 1]
"""The records of each commit. Record n has the time n seconds."""

Opening = tuple["PlannedLog", SealedPiece]


@pytest.fixture
def opening(tmp_path: Path) -> Opening:
    """A sealed segment with one commit in each frame, in a folder whose name a URL escapes."""
    builder, log = ReplicaBuilder(), make_log([COUNTS])
    generation = builder.add()
    generation.ship_segment(log[0])
    generation.seal(generation.claim.first, frame_commits=1)
    generation.snapshot(generation.claim.first + 1)
    store = open_store(str(tmp_path / "a b"))
    builder.put_into(store)
    (partition,) = plan(parse_options({"path": str(tmp_path / "a b"), "numPartitions": "1"})).partitions
    (part,) = partition.parts
    piece = part.pieces[0]
    assert isinstance(piece, SealedPiece)
    return part.log, piece


def _path(opened: dict[str, Any]) -> Path:
    return Path(unquote(urlsplit(opened["url"]).path))


def test_it_names_every_frame_with_its_bytes_and_checksums(opening: Opening) -> None:
    log, piece = opening
    opened = open_for_java(QueriedLog(log), piece)
    (group,) = opened["groups"]
    body = _path(opened).read_bytes()[group["at"] : group["at"] + group["size"]]
    assert group["body"] is None  # Java reads files by itself
    for run in group["runs"]:
        (frame,) = run["frames"]
        assert crc32c(body[run["at"] : run["at"] + frame["size"]]) == frame["stored"]
    assert [run["records"] for run in group["runs"]] == COUNTS
    assert [(run["first"], run["next"]) for run in group["runs"]] == [(0, 3), (3, 5), (5, 9), (9, 10)]
    assert opened["metrics"] == {"frames": 4, "skipped": 0, "bytes": piece.entry.size, "requests": 1}
    epoch = epoch_of(log.generation)
    held = {"log": log.name, "generation": log.generation, "epoch": epoch, "index": piece.entry.index, "count(*)": 1}
    assert opened["constants"] == held


def test_it_says_which_records_are_wanted(opening: Opening) -> None:
    log, piece = opening
    bounded = replace(log, range=Range(first=4, until=5 * SECOND))
    bounds = {"first": 4, "last": MOST, "since": LEAST, "until": 5 * SECOND - 1}
    for queried, keys in (
        (QueriedLog(bounded), {"needs_key": False, "keys": None}),
        (QueriedLog(bounded, needs_key=True), {"needs_key": True, "keys": None}),
        (QueriedLog(bounded, needs_key=True, keys=(b"", b"k")), {"needs_key": True, "keys": ["", "aw=="]}),
    ):
        assert open_for_java(queried, piece)["wanted"] == bounds | keys


@pytest.mark.parametrize(
    ("wanted", "firsts", "whole"),
    [
        (Range(first=4, stop=6), [3, 5], [False, False]),
        (Range(first=3, stop=5), [3], [True]),
        (Range(since=9 * SECOND), [9], [True]),
        (Range(first=4, until=5 * SECOND), [3], [False]),
        (Range(first=40), [], []),
    ],
)
def test_frames_without_wanted_records_are_skipped(
    opening: Opening, wanted: Range, firsts: list[int], whole: list[bool]
) -> None:
    log, piece = opening
    opened = open_for_java(QueriedLog(replace(log, range=wanted)), piece)
    runs = [run for group in opened["groups"] for run in group["runs"]]
    assert [(run["first"], run["whole"]) for run in runs] == list(zip(firsts, whole, strict=True))
    assert (opened["metrics"]["frames"], opened["metrics"]["skipped"]) == (len(runs), len(COUNTS) - len(runs))


def test_a_part_has_the_frames_that_start_in_it(opening: Opening) -> None:
    log, piece = opening
    runs = [run for group in open_for_java(QueriedLog(log), piece)["groups"] for run in group["runs"]]
    middle = runs[2]["offset"]
    for start, stop, firsts in ((0, middle, [0, 3]), (middle, piece.stop, [5, 9])):
        opened = open_for_java(QueriedLog(log), replace(piece, start=start, stop=stop))
        assert [run["first"] for group in opened["groups"] for run in group["runs"]] == firsts
        assert opened["metrics"]["skipped"] == 0


def test_damage_and_a_missing_object_are_errors(opening: Opening) -> None:
    log, piece = opening
    path = _path(open_for_java(QueriedLog(log), piece))
    body = bytearray(path.read_bytes())
    body[-20] ^= 1  # in the footer
    path.write_bytes(body)
    with pytest.raises(CorruptObjectError, match=piece.entry.key):
        open_for_java(QueriedLog(log), piece)
    path.unlink()
    with pytest.raises(NotFoundError):
        open_for_java(QueriedLog(log), piece)
