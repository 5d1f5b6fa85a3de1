"""Logs of SpacetimeDB's commitlog: what a crash, a compression and a reset leave is shipped, and restored for its own
reader."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from litelog.errors import CorruptCommitError, CorruptionError, DivergedError
from litelog.formats import Expectation
from litelog.formats.spacetimedb import SpacetimeDBFormat
from litelog.objects.claim import Relation
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon, restored
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.manual_clock import ManualClock
from tests.builders.recorded_logs import recorded_segments, unpack, what_was_read
from tests.builders.stdb_log import HEADERS, encode_commit, logical_bytes, segment_name
from tests.builders.stdb_recorder import (
    CommitlogWriter,
    CrateError,
    mirror,
    needs_recorder,
    read_commitlog,
    write_version_0,
)
from tests.builders.verify_helper import found, verified
from tests.sampling import SEED, times

FORMAT = SpacetimeDBFormat()
VALID = {"torn": 150, "torn_header": 150}
"""How many bytes of the first log segment are valid, where a crash left garbage after them."""

SCENES = ("version_0", "epochs", "torn", "torn_header", "empty", "compressed")


def follow(folder: Path, tmp_path: Path, *, backlog_sealer: bool = False) -> Daemon:
    daemon = Daemon(
        LogBuilder(str(folder), FORMAT),
        MemoryStore("test"),
        str(tmp_path / "state"),
        clock=ManualClock(),
        backlog_sealer=backlog_sealer,
    )
    daemon.sync()
    return daemon


def write_segment(folder: Path, first: int, *commits: bytes) -> None:
    folder.mkdir(exist_ok=True)
    (folder / segment_name(first)).write_bytes(HEADERS[1] + b"".join(commits))


def values(daemon: Daemon) -> list[tuple[int, bytes]]:
    """The records of a restored log."""
    expect, records = Expectation(), []
    for name, data in sorted(restored(daemon.store, Path(daemon.state + "-out"), FORMAT).items()):
        records += FORMAT.decode(name, memoryview(data), 0, expect).records()
        expect = FORMAT.scan(name, memoryview(data), 0, expect).expectation
    return [(record.sequence, record.value) for record in records]


@pytest.mark.parametrize("backlog_sealer", [False, True])
@pytest.mark.parametrize("scene", SCENES)
def test_a_recorded_log_is_restored(scene: str, tmp_path: Path, backlog_sealer: bool) -> None:
    folder = unpack("spacetimedb", scene, tmp_path)
    daemon = follow(folder, tmp_path, backlog_sealer=backlog_sealer)
    expected = {name: logical_bytes(data) for name, data in recorded_segments("spacetimedb", scene)}
    expected[segment_name(0)] = expected[segment_name(0)][: VALID.get(scene)]
    assert restored(daemon.store, tmp_path / "out", FORMAT) == expected
    report = verified(daemon.store, FORMAT, against=str(folder))
    assert found(report) == []
    assert report.against is not None
    assert report.against.files == len(expected)


@needs_recorder
@pytest.mark.process
@pytest.mark.parametrize("scene", SCENES)
def test_the_crate_reads_a_restored_log_as_it_read_the_original(scene: str, tmp_path: Path) -> None:
    daemon = follow(unpack("spacetimedb", scene, tmp_path), tmp_path)
    restored(daemon.store, tmp_path / "out", FORMAT)
    read = what_was_read("spacetimedb", scene)
    assert {"crate": read["crate"], **read_commitlog(tmp_path / "out")} == read


def test_garbage_with_a_newer_log_segment_that_does_not_continue_is_damage(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    one, two, three = (encode_commit(first, b"%d" % first) for first in (0, 1, 2))
    write_segment(folder, 0, one, two[:-2])
    write_segment(folder, 2, three)
    daemon = Daemon(LogBuilder(str(folder), FORMAT), MemoryStore("test"), str(tmp_path / "state"))
    with pytest.raises(CorruptCommitError, match=f"{segment_name(0)}: corrupt commit at offset {10 + len(one)}"):
        daemon.sync()
    write_segment(folder, 0, one, two)
    daemon.sync()
    assert values(daemon) == [(0, b"0"), (1, b"1"), (2, b"2")]
    assert len(daemon.claims) == 1


def test_damage_before_good_commits_is_damage_until_a_newer_log_segment_continues(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    one, two, three = (encode_commit(first, b"%d" % first) for first in (0, 1, 2))
    write_segment(folder, 0, one, b"garbage", two, three)
    daemon = Daemon(LogBuilder(str(folder), FORMAT), MemoryStore("test"), str(tmp_path / "state"))
    with pytest.raises(CorruptCommitError, match=f"corrupt commit at offset {10 + len(one)}"):
        daemon.sync()
    write_segment(folder, 1, encode_commit(1, b"another"))
    daemon.sync()
    assert values(daemon) == [(0, b"0"), (1, b"another")]
    assert len(daemon.claims) == 1


def test_a_commit_after_garbage_shows_that_the_garbage_hides_it(tmp_path: Path) -> None:
    """The writer appended after the garbage, and went on to the next log segment as if its commit could be read."""
    folder = tmp_path / "log"
    one, two, three = (encode_commit(first, b"%d" % first) for first in (0, 1, 2))
    write_segment(folder, 0, one, b"garbage", two)
    write_segment(folder, 2, three)
    daemon = Daemon(LogBuilder(str(folder), FORMAT), MemoryStore("test"), str(tmp_path / "state"))
    for _ in range(2):
        with pytest.raises(CorruptCommitError, match=f"corrupt commit at offset {10 + len(one)}"):
            daemon.sync()
    assert restored(daemon.store, tmp_path / "out", FORMAT) == {segment_name(0): HEADERS[1] + one}


@pytest.mark.parametrize("backlog_sealer", [False, True])
@pytest.mark.parametrize("garbage", [[b"garbage"], [b"garbage", encode_commit(0, b"0")]])
def test_a_first_log_segment_without_a_valid_commit_is_damage(
    tmp_path: Path, garbage: list[bytes], backlog_sealer: bool
) -> None:
    folder = tmp_path / "log"
    write_segment(folder, 0, *garbage)
    write_segment(folder, 1, encode_commit(1, b"1"))
    log, state = LogBuilder(str(folder), FORMAT), str(tmp_path / "state")
    daemon = Daemon(log, MemoryStore("test"), state, backlog_sealer=backlog_sealer)
    for _ in range(3):
        with pytest.raises(CorruptCommitError, match=f"{segment_name(0)}: corrupt commit at offset"):
            daemon.sync()
        daemon.restart()
    assert daemon.acknowledged == []


def test_sealed_log_segments_with_garbage_are_adopted_with_an_older_state(tmp_path: Path) -> None:
    folder, state = tmp_path / "log", tmp_path / "state"
    commits = [encode_commit(first, b"%d" % first) for first in range(4)]
    write_segment(folder, 0, commits[0])
    daemon = follow(folder, tmp_path, backlog_sealer=True)
    generation = daemon.generation
    daemon.close()
    shutil.copytree(state, tmp_path / "older")
    for first, commit in enumerate(commits):
        write_segment(folder, first, commit, *([b"garbage"] if first < 3 else []))
    for older in (False, True):
        if older:
            shutil.rmtree(state)
            (tmp_path / "older").rename(state)
        log = LogBuilder(str(folder), FORMAT)
        daemon = Daemon(log, daemon.store, str(state), clock=daemon.clock, backlog_sealer=True)
        daemon.sync()
        assert daemon.generation == generation
        daemon.close()
    assert values(daemon) == [(first, b"%d" % first) for first in range(4)]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_commit_that_a_log_segment_repeats_is_shipped_and_is_no_record(tmp_path: Path, restarts: bool) -> None:
    folder = tmp_path / "log"
    one, two, three = (encode_commit(first, b"%d" % first, 2) for first in (0, 2, 4))
    write_segment(folder, 0, one, two)
    daemon = follow(folder, tmp_path)
    if restarts:
        daemon.restart()
    write_segment(folder, 2, two)
    daemon.sync()
    write_segment(folder, 2, two, two, three)
    daemon.sync()
    assert values(daemon) == [(0, b"0"), (2, b"2"), (4, b"4")]
    whole = {segment_name(0): HEADERS[1] + one + two, segment_name(2): HEADERS[1] + two + two + three}
    assert restored(daemon.store, tmp_path / "out", FORMAT) == whole
    assert found(verified(daemon.store, FORMAT, against=str(folder))) == []
    assert {claim.generation for claim in daemon.claims} == {daemon.generation}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("second", [encode_commit(2, b"other", 2), encode_commit(2, b"more", 3)])
def test_a_fork_stops_the_daemon_with_both_checksums(tmp_path: Path, restarts: bool, second: bytes) -> None:
    folder = tmp_path / "log"
    one, two = (encode_commit(first, b"%d" % first, 2) for first in (0, 2))
    write_segment(folder, 0, one, two)
    daemon = follow(folder, tmp_path)
    if restarts:
        daemon.restart()
    write_segment(folder, 2, second)
    shown = [f"{int.from_bytes(commit[-4:], 'little'):08x}" for commit in (second, two)]
    with pytest.raises(CorruptCommitError, match=f"forked log: .* is {shown[0]}, expected {shown[1]}"):
        daemon.sync()
    assert restored(daemon.store, tmp_path / "out", FORMAT) == {segment_name(0): HEADERS[1] + one + two}


@pytest.mark.parametrize("head", [b"", HEADERS[1][:4], HEADERS[1]])
def test_a_log_segment_without_a_commit_is_not_shipped(tmp_path: Path, head: bytes) -> None:
    log = make_log(tmp_path / "log", "spacetimedb")
    log.roll(2)
    (tmp_path / "log" / segment_name(2)).write_bytes(head)
    daemon = follow(tmp_path / "log", tmp_path)
    assert restored(daemon.store, tmp_path / "out", FORMAT) == log.texts
    (tmp_path / "log" / segment_name(2)).unlink()
    log.append(1)
    daemon.sync()
    assert restored(daemon.store, tmp_path / "out", FORMAT) == log.texts
    assert len(daemon.claims) == 1


@needs_recorder
@pytest.mark.process
def test_a_log_that_the_crate_writes_and_compresses_is_shipped_once(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    with CommitlogWriter(folder, 20_000) as log:
        log.append(1)
        daemon = follow(folder, tmp_path)
        generation = daemon.generation
        for epoch in range(4):
            log.set_epoch(epoch)
            log.append(30, records=3, size=200)
            daemon.sync()
            shipped = len(daemon.acknowledged)
            log.compress()
            daemon.sync()
            if epoch == 2:
                daemon.restart()
                daemon.sync()
            assert (len(daemon.acknowledged), daemon.generation) == (shipped, generation)
    daemon.sync()
    assert len(list(folder.glob("*.log"))) >= 4
    restored(daemon.store, tmp_path / "out", FORMAT)
    original, copy = (read_commitlog(place) for place in (folder, tmp_path / "out"))
    assert copy == original
    assert found(verified(daemon.store, FORMAT, against=str(folder))) == []
    stream = tmp_path / "stream"
    stream.write_bytes(b"".join(path.read_bytes() for path in sorted((tmp_path / "out").glob("*.log"))))
    assert mirror(stream, tmp_path / "mirror")["next"] == original["fold"]["transactions"]
    assert read_commitlog(tmp_path / "mirror")["fold"] == original["fold"]


@needs_recorder
@pytest.mark.process
@pytest.mark.parametrize("kept", [0, 7, 20, 32])
def test_a_reset_begins_a_generation_with_a_reason(tmp_path: Path, kept: int, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "log"
    with CommitlogWriter(folder, 1000) as log:
        log.append(34)
        daemon = follow(folder, tmp_path)
        log.reset(kept)
        log.append(3, size=70)
        daemon.sync()
    assert [claim.relation for claim in daemon.claims] == [Relation.FIRST, Relation.DIVERGED]
    assert daemon.claims[-1].reason
    assert "a new generation begins" in caplog.text
    restored(daemon.store, tmp_path / "out", FORMAT)
    assert read_commitlog(tmp_path / "out")["fold"] == read_commitlog(folder)["fold"]
    assert read_commitlog(folder)["fold"]["transactions"] == kept + 4


@needs_recorder
@pytest.mark.process
def test_a_reset_that_destroys_a_compressed_log_segment_leaves_the_replica(tmp_path: Path) -> None:
    """The crate cuts the compressed file where the uncompressed one would be cut, and cannot read it after that."""
    folder = tmp_path / "log"
    log = CommitlogWriter(folder, 5000)
    log.append(150)
    log.compress()
    daemon = follow(folder, tmp_path)
    before = read_commitlog(folder)["fold"]
    with pytest.raises(CrateError, match="ended with"):
        log.reset(25)
    with pytest.raises(CorruptCommitError, match="end of a file of zstd frames"):
        daemon.sync()
    restored(daemon.store, tmp_path / "out", FORMAT)
    assert read_commitlog(tmp_path / "out")["fold"] == before


@needs_recorder
@pytest.mark.process
def test_a_log_of_version_0_is_followed_as_it_grows(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    write_version_0(folder, 500, 1, 2, 40)
    daemon = follow(folder, tmp_path)
    for _ in range(4):
        write_version_0(folder, 500, 3, 2, 40)
        daemon.sync()
    restored(daemon.store, tmp_path / "out", FORMAT)
    assert read_commitlog(tmp_path / "out")["fold"] == read_commitlog(folder)["fold"]
    assert len(daemon.claims) == 1


class Writer:
    """The crate's writer, which is killed at times, and what a crash leaves of its log."""

    def __init__(self, folder: Path, random: Random) -> None:
        self._folder, self._random = folder, random
        self._segment_bytes = random.choice([400, 3000, 20_000])
        self.open = CommitlogWriter(folder, self._segment_bytes)

    def append(self) -> None:
        choose = self._random
        self.open.append(choose.randrange(1, 8), choose.randrange(1, 4), choose.choice([10, 50, 300, 5000]))

    def compress(self) -> None:
        self.open.compress()

    def reset(self) -> None:
        """Reset within the newest log segment: further back may destroy a compressed one."""
        newest, last = max(self._folder.glob("*.log")), self.open.last
        first = int(newest.name[:20])
        if last is not None and last > first and newest.stat().st_size > len(HEADERS[1]):
            self.open.reset(self._random.randrange(first, last + 1))

    def crash(self) -> None:
        choose = self._random
        self.open.kill()
        newest = max(self._folder.glob("*.log"))
        size = newest.stat().st_size
        if choose.random() < 0.5:
            with newest.open("ab") as file:
                file.write(choose.randbytes(choose.randrange(1, 90)))
        elif size > 80:
            os.truncate(newest, size - choose.randrange(60))
        self.open = CommitlogWriter(self._folder, self._segment_bytes)


@needs_recorder
@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("number", range(times(8, at_night=200)))
def test_what_a_writer_does_and_leaves_is_restored_as_the_crate_reads_it(tmp_path: Path, number: int) -> None:
    random = Random(f"{SEED} {number}")
    folder = tmp_path / "log"
    writer = Writer(folder, random)
    writer.open.append(1)
    daemon = follow(folder, tmp_path, backlog_sealer=random.random() < 0.5)
    steps = [writer.append] * 5 + [
        writer.compress,
        writer.reset,
        writer.crash,
        daemon.sync,
        daemon.sync,
        daemon.restart,
    ]
    try:
        for step in random.choices(steps, k=random.randrange(5, 25)):
            with suppress(CorruptionError, DivergedError):  # it is tried again
                step()
        writer.open.append(2)
        writer.open.kill()
    except CrateError:
        return  # it cannot open its own log
    original = read_commitlog(folder)
    lost = original["commits"][0][0] > min(int(path.name[:20]) for path in folder.glob("*.log"))
    if original["errors"] or lost:
        with pytest.raises(CorruptionError):
            daemon.sync()
        return
    daemon.sync()
    restored(daemon.store, tmp_path / "out", FORMAT)
    assert read_commitlog(tmp_path / "out")["fold"] == original["fold"]
    assert found(verified(daemon.store, FORMAT, against=str(folder))) == []
