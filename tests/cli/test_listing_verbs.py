"""``litelog generations``, ``snapshots``, ``segments`` and ``wal``: their output for replicas and logs."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ExitCode
from litelog.objects.layout import sealed_key, snapshot_key
from tests.builders.replica_builder import ReplicaBuilder, make_log, make_segment

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

LOG = make_log([[2, 3, 1], [4, 2], [1], [2, 2, 2]])


@pytest.fixture
def built(litelog: Command) -> ReplicaBuilder:
    """A replica in ``replica``: two sealed log segments in a snapshot, a sealed one above it, and a growing one.

    Its WAL segments are pruned."""
    builder = ReplicaBuilder()
    generation = builder.add()
    for segment in LOG[:3]:
        generation.ship_segment(segment, cuts=[0, 1])
    generation.snapshot(2)
    generation.seal(2)
    generation.ship_segment(LOG[3], cuts=[0], final=None)
    generation.prune(2)
    write_objects(builder, litelog.folder / "replica")
    return builder


def write_objects(builder: ReplicaBuilder, folder: Path) -> None:
    for key, body in builder.objects().items():
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)


def seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def columns(table: str) -> list[dict[str, str]]:
    """The rows of a table by their titles; cells and titles of one word."""
    title, *rows = (line.split() for line in table.splitlines())
    return [dict(zip(title, row, strict=False)) for row in rows]


def test_segments_shows_each_log_segment_of_a_replica(litelog: Command, built: ReplicaBuilder) -> None:
    done = litelog("segments", "--json", "replica")
    assert done.code == ExitCode.DONE, done.err
    lines = done.lines
    assert [line["file"] for line in lines] == [segment.name for segment in LOG]
    assert [line["log_bytes"] for line in lines] == [len(segment.data) for segment in LOG]
    assert [(line["first"], line["next"]) for line in lines] == [(0, 6), (6, 12), (12, 13), (13, 19)]
    assert [line["records"] for line in lines] == [6, 6, 1, 6]
    assert [line["stored"] for line in lines] == ["sealed", "sealed", "sealed+wal", "wal"]
    assert [line["finished"] for line in lines] == [True, True, True, False]
    assert [line["objects"] for line in lines] == [1, 1, 2, 2]
    assert [seconds(line["lowest_timestamp"]) for line in lines] == [0, 6, 12, 13]
    assert [seconds(line["highest_timestamp"]) for line in lines] == [5, 10, 12, 17]
    assert all(line["stored_bytes"] > 0 and line["ratio"] > 0 for line in lines)
    table = columns(litelog("segments", "replica").out)
    assert [row["file"] for row in table] == [segment.name for segment in LOG]


def test_segments_ignores_sealed_segments_that_no_object_names(litelog: Command) -> None:
    builder = ReplicaBuilder()
    generation = builder.add()
    generation.ship_segment(LOG[0], cuts=[0])
    generation.stand_for_sealed(LOG[1])
    generation.ship_segment(LOG[2])
    generation.ship_segment(LOG[3], cuts=[0], final=None)
    for index, first in ((0, 0), (2, 12)):
        generation.seal_unshipped(index, make_segment(first, [1, 1], tag=b"other"))
    generation.seal(3)  # of the same bytes; more of them will be shipped
    write_objects(builder, litelog.folder / "replica")
    done = litelog("segments", "--json", "replica")
    assert done.code == ExitCode.DONE, done.err
    assert [line["stored"] for line in done.lines] == ["wal", "sealed+wal", "wal", "wal"]
    assert [line["finished"] for line in done.lines] == [True, True, True, False]
    assert [line["log_bytes"] for line in done.lines] == [len(segment.data) for segment in LOG]
    assert [(line["first"], line["next"]) for line in done.lines] == [(0, 6), (6, 12), (12, 13), (13, 19)]


def test_segments_shows_existing_segments_before_it_reports_missing_ones(
    litelog: Command, built: ReplicaBuilder
) -> None:
    (place,) = [at for at in built.generations[0].positions if (at.index, at.offset) == (2, 0)]
    (litelog.folder / "replica" / "generations" / place.generation / "wal" / f"{2:016x}" / f"{0:016x}.wal.lz4").unlink()
    done = litelog("segments", "--json", "replica")
    assert done.code == ExitCode.CORRUPTION
    assert str(place) in done.err
    *listed, failed = done.lines
    assert [line["file"] for line in listed][:2] == [segment.name for segment in LOG[:2]]
    assert failed["error"]["exit_code"] == ExitCode.CORRUPTION


def test_snapshots_shows_the_segments_that_each_one_names(litelog: Command, built: ReplicaBuilder) -> None:
    done = litelog("snapshots", "--json", "replica")
    assert done.code == ExitCode.DONE, done.err
    first, second = done.lines
    assert (first["index"], first["sealed_segments"], first["sealed_log_bytes"]) == (0, 0, 0)
    assert (second["index"], second["sealed_segments"], second["first"], second["next"]) == (2, 2, 0, 12)
    assert second["sealed_log_bytes"] == len(LOG[0].data) + len(LOG[1].data)
    objects = built.objects()
    name = built.generations[0].name
    assert second["sealed_stored_bytes"] == sum(len(objects[sealed_key(name, index)]) for index in range(2))
    assert second["first_shipped"] < second["last_shipped"]
    assert [row["index"] for row in columns(litelog("snapshots", "replica").out)] == ["0", "2"]


def test_a_damaged_snapshot_is_named_and_the_others_are_listed(litelog: Command, built: ReplicaBuilder) -> None:
    key = snapshot_key(built.generations[0].name, 2)
    path = litelog.folder / "replica" / key
    path.write_bytes(path.read_bytes()[:-3])
    done = litelog("snapshots", "--json", "replica")
    assert done.code == ExitCode.DONE
    assert [("damage" in line and line["damage"] is not None) for line in done.lines] == [False, True]
    assert key in done.lines[1]["damage"]
    (facts,) = litelog("generations", "--json", "replica").lines
    assert key in facts["damage"]


def test_generations_tell_ranges_sizes_ratios_and_lag(litelog: Command) -> None:
    builder = ReplicaBuilder()
    old = builder.add()
    old.ship_segment(LOG[0], cuts=[0, 1])
    old.snapshot(1)
    old.ship_segment(LOG[1], upto=1, final=None)
    new = builder.add()
    for segment in LOG:
        new.ship_segment(segment)
    new.snapshot(3)
    new.prune(3)
    write_objects(builder, litelog.folder / "replica")
    done = litelog("generations", "--json", "replica")
    assert done.code == ExitCode.DONE, done.err
    first, second = done.lines
    assert (first["first"], first["next"], first["ended"]) == (0, 10, True)
    assert (second["first"], second["next"], second["ended"]) == (0, 19, False)
    assert (first["sealed_segments"], second["sealed_segments"]) == (1, 3)
    assert second["sealed_log_bytes"] == sum(len(segment.data) for segment in LOG[:3])
    assert second["ratio"] == round(second["sealed_log_bytes"] / second["sealed_stored_bytes"], 2)
    assert (first["snapshots"], second["snapshots"], second["snapshot_index"]) == (2, 2, 3)
    assert second["lag_seconds"] == 0
    assert first["lag_seconds"] == pytest.approx(seconds(second["last_shipped"]) - seconds(first["last_shipped"]))
    assert first["lag_seconds"] > 0
    rows = columns(litelog("generations", "replica").out)
    assert [row["generation"] for row in rows] == [old.name, new.name]


def test_segments_of_a_log_folder(litelog: Command) -> None:
    folder = litelog.folder / "log"
    folder.mkdir()
    for segment in LOG:
        (folder / segment.name).write_bytes(segment.data)
    done = litelog("segments", "--json", "log")
    assert done.code == ExitCode.DONE, done.err
    assert [line["file"] for line in done.lines] == [segment.name for segment in LOG]
    assert [line["log_bytes"] for line in done.lines] == [len(segment.data) for segment in LOG]
    assert [(line["first"], line["next"]) for line in done.lines] == [(0, 6), (6, 12), (12, 13), (13, 19)]
    assert [line["finished"] for line in done.lines] == [True, True, True, False]
    assert [row["file"] for row in columns(litelog("segments", "log").out)] == [segment.name for segment in LOG]


def test_segments_of_lines_have_sizes_and_no_sequences(litelog: Command) -> None:
    folder = litelog.folder / "app"
    folder.mkdir()
    (folder / "app-1.log").write_text("one\ntwo\n")
    (folder / "app-2.log").write_text("three\n")
    lines = litelog("segments", "--json", "--format", "lines", "--pattern", "app-*.log", "app").lines
    assert [(line["file"], line["log_bytes"], line["first"]) for line in lines] == [
        ("app-1.log", 8, None),
        ("app-2.log", 6, None),
    ]
    configured = "{path: app, format: lines, pattern: 'app-*.log', replicas: [{url: app-backup}]}"
    (litelog.folder / "litelog.yml").write_text(f"logs: [{configured}]")
    assert litelog("segments", "--json", "--config", "litelog.yml", "app").lines == lines


@pytest.mark.parametrize("verb", ["generations", "snapshots", "wal"])
def test_a_configured_logs_folder_stands_for_its_replicas(litelog: Command, verb: str) -> None:
    litelog.lines(10)
    for replica in ("one", "two"):
        assert litelog("replicate", "--once", "--state-dir", f"state-{replica}", "log", replica).code == 0
    (litelog.folder / "litelog.yml").write_text(
        f"logs:\n  - path: {litelog.folder}/log\n    replicas:\n"
        f"      - url: {litelog.folder}/one\n      - url: {litelog.folder}/two\n"
    )
    done = litelog(verb, "--config", "litelog.yml", "--json", "log")
    assert done.code == ExitCode.DONE, done.err
    assert {line["replica"].rpartition("/")[2] for line in done.lines} == {"one", "two"}
    table = litelog(verb, "--config", "litelog.yml", "log").out
    assert table.count("/one:") == table.count("/two:") == 1


def configure(litelog: Command, *replicas: str) -> None:
    """Write ``litelog.yml`` with ``log`` and these replicas."""
    urls = "".join(f"      - url: {litelog.folder}/{replica}\n" for replica in replicas)
    (litelog.folder / "litelog.yml").write_text(f"logs:\n  - path: {litelog.folder}/log\n    replicas:\n{urls}")


@pytest.mark.parametrize("verb", ["generations", "snapshots", "wal"])
def test_a_replica_that_holds_nothing_does_not_hide_the_others(litelog: Command, verb: str) -> None:
    litelog.lines(10)
    assert litelog("replicate", "--once", "--state-dir", "kept", "log", "good").code == 0
    configure(litelog, "empty", "good", "bare")
    done = litelog(verb, "--config", "litelog.yml", "--json", "log")
    assert done.code == ExitCode.DONE, done.err
    assert {line["replica"].rpartition("/")[2] for line in done.lines} == {"good"}
    for empty in ("empty", "bare"):
        assert f"skipped {litelog.folder}/{empty}: " in done.err
    configure(litelog, "empty", "bare")
    done = litelog(verb, "--config", "litelog.yml", "--json", "log")
    assert done.code == ExitCode.NOTHING_TO_RESTORE
    assert [list(line) for line in done.lines] == [["version", "error"]]


def test_a_generation_is_listed_of_the_replica_that_has_it(litelog: Command) -> None:
    litelog.lines(10)
    for replica in ("one", "two"):
        assert litelog("replicate", "--once", "--state-dir", f"state-{replica}", "log", replica).code == 0
    configure(litelog, "one", "two")
    (facts,) = litelog("generations", "--json", "two").lines
    done = litelog("wal", "--config", "litelog.yml", "--json", "--generation", facts["generation"], "log")
    assert done.code == ExitCode.DONE, done.err
    assert {line["replica"].rpartition("/")[2] for line in done.lines} == {"two"}


@pytest.mark.parametrize("verb", ["generations", "snapshots", "wal"])
def test_a_log_without_its_configuration_is_an_error_that_says_so(litelog: Command, verb: str) -> None:
    litelog.lines(1)
    done = litelog(verb, "log")
    assert done.code == ExitCode.NOTHING_TO_RESTORE
    assert "a log of litelog, not a replica; give its replica, or its configuration (--config)" in done.err
    assert "--config" not in litelog(verb, "nowhere").err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["segments", "nowhere"], ExitCode.FAILURE, "no such folder"),
        (["snapshots", "nowhere"], ExitCode.NOTHING_TO_RESTORE, "no such folder"),
        (["segments", "--format", "lines", "replica"], ExitCode.USAGE, "a replica has its own format"),
        (["segments", "--generation", "0" * 16, "replica"], ExitCode.NOTHING_TO_RESTORE, "no generation"),
    ],
)
def test_invalid_places_and_generations_are_reported(
    litelog: Command, built: ReplicaBuilder, arguments: list[str], code: int, message: str
) -> None:
    done = litelog(*arguments)
    assert (done.code, message in done.err) == (code, True), done.err


@pytest.mark.parametrize("start", ["0", "1", "7", "12", "18", "1970-01-01T00:00:07Z", "beginning", "latest", "end"])
def test_cat_reads_all_of_it_from_anywhere(litelog: Command, built: ReplicaBuilder, start: str) -> None:
    first = {"1970-01-01T00:00:07Z": 10, "beginning": 0, "latest": 18, "end": 19}.get(start)
    first = int(start) if first is None else first
    done = litelog("cat", "--from", start, "--json", "replica")
    assert done.code == ExitCode.DONE, done.err
    assert [line["sequence"] for line in done.lines] == list(range(first, 19))


def test_cat_between_two_places_in_sealed_segments(litelog: Command, built: ReplicaBuilder) -> None:
    done = litelog("cat", "--from", "3", "--to", "9", "--json", "replica")
    assert [line["sequence"] for line in done.lines] == list(range(3, 9))
