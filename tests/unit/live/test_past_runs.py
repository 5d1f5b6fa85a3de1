"""Bytes that the buffer no longer holds, from any commit on: from the log's folder, and from sealed segments."""

from __future__ import annotations

import asyncio
import http.client
import io
import os
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from litelog.codec.checksum import crc32c
from litelog.errors import PrunedError
from litelog.live import live_buffer, past_runs
from litelog.live.buffer_news import ForkedError
from litelog.live.wal_feed import WalFeed
from litelog.log.source import OpenSegment
from litelog.objects.position import Position, generation
from litelog.objects.wal_stream import read_stream
from litelog.shipping.context import LogSource
from tests.builders.log_builder import make_log
from tests.builders.log_following import drain, follow
from tests.builders.manual_clock import ManualClock
from tests.builders.server_builder import Watched
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.restore.generation_bytes import GenerationBytes
    from tests.builders.log_builder import LogBuilder

pytestmark = pytest.mark.slow


@contextmanager
def serving(tmp_path: Path, log: LogBuilder) -> Iterator[Watched]:
    with Watched(tmp_path, [(log, [f"file://{tmp_path}/replica"])], {"serve": "all"}) as watched:
        watched.wait_until_ready()
        yield watched


def read_from(watched: Watched, position: Position) -> dict[str, bytes]:
    """The bytes of each log segment from a position on."""
    answer = watched.ask(f"/logs/log/wal?from={position}")
    assert answer.status == 200, answer.body
    made: dict[str, bytes] = {}
    for segment in read_stream("test", io.BytesIO(answer.body)):
        header = segment.header  # type: ignore[union-attr]
        assert header.position == position
        made[header.file] = made.get(header.file, b"") + segment.data()  # type: ignore[union-attr]
        position = header.next_slot
    return made


def make_commits(log: LogBuilder, count: int) -> list[int]:
    """Append commits. Returns the ends of all."""
    ends = []
    for _ in range(count):
        log.append(1)
        ends.append(len(log.texts[log.name]))
    return ends


@pytest.mark.parametrize("is_in_folder", [True, False])
def test_every_commit_of_a_finished_log_segment_is_a_place_to_begin(tmp_path: Path, is_in_folder: bool) -> None:
    """No WAL segment of the replica begins there. The folder has the log segment, or only a sealed segment has it."""
    log = make_log(tmp_path / "log")
    log.roll(1)
    ends = make_commits(log, 5)
    log.roll(1)
    log.roll(2)
    with serving(tmp_path, log) as watched:
        generation = Position.parse(watched.ask("/logs/log").json["acknowledged_position"]).generation
        first, *later = sorted(log.texts)
        if not is_in_folder:
            wait_until(lambda: any((tmp_path / "replica/generations").glob("*/snapshots/*")))
            log.delete(first)
        for end in [0, *ends]:
            found = read_from(watched, Position(generation, 0, end))
            assert found.get(first, b"") == log.texts[first][end:]
            assert {name: found[name] for name in later} == {name: log.texts[name] for name in later}


def test_a_reader_continues_within_what_the_buffer_dropped(
    tmp_path: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_buffer, "HELD_BYTES", 1)
    monkeypatch.setattr(live_buffer, "RUN_BYTES", 1)
    with serving(tmp_path, log) as watched:
        place = Position.parse(watched.ask("/logs/log").json["acknowledged_position"])
        read_from(watched, place)
        ends = make_commits(log, 6)
        wait_until(lambda: len(read_from(watched, place).get(log.name, b"")) == ends[-1] - place.offset)
        for end in ends:
            found = read_from(watched, Position(place.generation, 0, end))
            assert found.get(log.name, b"") == log.texts[log.name][end:]
        assert os.path.getsize(log.path()) == ends[-1]


def test_a_place_that_is_gone_everywhere_is_an_error_with_the_next_one(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log")
    log.roll(1)
    log.roll(2)
    log.roll(2)
    with serving(tmp_path, log) as watched:
        generation = Position.parse(watched.ask("/logs/log").json["acknowledged_position"]).generation
        folder = tmp_path / "replica/generations" / str(generation)
        wait_until(lambda: any(folder.glob("snapshots/*")))
        log.delete(min(log.texts))
        for each in (*folder.glob("wal/0000000000000000/*"), *folder.glob("segments/0000000000000000*")):
            each.unlink()
        answer = watched.ask(f"/logs/log/wal?from={Position(generation, 0, 0)}")
        error = answer.json["error"]
        assert (answer.status, error["next_position"]) == (410, str(Position(generation, 1, 0)))
        assert read_from(watched, Position.parse(error["next_position"]))


def test_a_place_after_the_end_of_a_finished_log_segment_is_refused(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log")
    log.roll(1)
    log.roll(2)
    with serving(tmp_path, log) as watched:
        generation = Position.parse(watched.ask("/logs/log").json["acknowledged_position"]).generation
        end = len(log.texts[min(log.texts)])
        assert read_from(watched, Position(generation, 0, end))
        answer = watched.ask(f"/logs/log/wal?from={Position(generation, 0, end + 1)}")
        assert answer.status == 409, answer.body
        assert f"the last one ends at {end}" in answer.json["error"]["message"]


@pytest.mark.parametrize("is_in_folder", [True, False])
def test_a_commit_far_larger_than_a_read_is_scanned_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_in_folder: bool
) -> None:
    monkeypatch.setattr(past_runs, "READ_BYTES", 64)
    reads, read = list[int](), past_runs.PastRuns._read
    monkeypatch.setattr(past_runs.PastRuns, "_read", lambda self, stop: reads.append(1) or read(self, stop))
    log = make_log(tmp_path / "log")
    log.roll(1)
    first = len(log.texts[log.name])
    log.append(1, size=1 << 18)
    log.roll(1)
    with serving(tmp_path, log) as watched:
        generation = Position.parse(watched.ask("/logs/log").json["acknowledged_position"]).generation
        name = min(log.texts)
        if not is_in_folder:
            wait_until(lambda: any((tmp_path / "replica/generations").glob("*/snapshots/*")))
            log.delete(name)
        found = read_from(watched, Position(generation, 0, first))
        assert found[name] == log.texts[name][first:]
        assert len(reads) <= 40, "the bytes are doubled, 12 times from 64 bytes to 256 KiB"
        assert not is_in_folder or len(reads) > 12


def test_a_file_that_is_opened_after_the_client_has_left_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make_log(tmp_path / "log")
    log.roll(1)
    log.roll(2)
    asked, may_answer, opened = threading.Event(), threading.Event(), list[OpenSegment]()
    read_object, leave, open_file = WalFeed._read_object, WalFeed._leave_past, past_runs._open
    left = threading.Event()

    def read_slowly(feed: WalFeed) -> bytes:
        if feed._place.index == 0:
            return read_object(feed)
        asked.set()
        assert may_answer.wait(WAIT_SECONDS)
        raise PrunedError(str(feed._place))

    def note_leave(feed: WalFeed) -> None:
        leave(feed)
        left.set()

    def note_open(source: LogSource, name: str) -> OpenSegment | None:
        file = open_file(source, name)
        if name == log.name and file is not None:
            opened.append(file)
        return file

    monkeypatch.setattr(WalFeed, "_read_object", read_slowly)
    monkeypatch.setattr(WalFeed, "_leave_past", note_leave)
    monkeypatch.setattr(past_runs, "_open", note_open)
    with serving(tmp_path, log) as watched:
        assert watched.service.address is not None
        generation = Position.parse(watched.ask("/logs/log").json["acknowledged_position"]).generation
        connection = http.client.HTTPConnection("127.0.0.1", watched.service.address.port, timeout=WAIT_SECONDS)
        connection.request("GET", f"/logs/log/wal?from={Position(generation, 0, 0)}")
        answer = connection.getresponse()
        assert asked.wait(WAIT_SECONDS)
        answer.close()
        connection.close()
        assert left.wait(WAIT_SECONDS)
        may_answer.set()
        wait_until(lambda: opened != [])
        wait_until(lambda: opened[0]._descriptor < 0)


@pytest.mark.parametrize("objects", [0, 1])
def test_a_reader_that_falls_behind_the_buffer_costs_what_it_lacks(
    tmp_path: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch, objects: int
) -> None:
    """The reader got a run of the buffer, or a WAL segment of the replica: what comes before is not read again."""
    monkeypatch.setattr(live_buffer, "HELD_BYTES", 1)
    monkeypatch.setattr(live_buffer, "RUN_BYTES", 1)
    may_continue, waits, read_objects, bytes_read = threading.Event(), list[int](), list[int](), list[int]()
    next_piece, read_object, read = WalFeed._next_piece, WalFeed._read_object, past_runs.PastRuns._read

    async def continue_later(feed: WalFeed) -> object:
        if feed._following is not None and not waits:
            waits.append(1)
            await asyncio.to_thread(may_continue.wait, WAIT_SECONDS)
        return await next_piece(feed)

    def read_some(feed: WalFeed) -> object:
        if len(read_objects) == objects:
            raise PrunedError("no object")
        read_objects.append(1)
        return read_object(feed)

    def count(runs: past_runs.PastRuns, stop: int | None) -> bytes:
        data = read(runs, stop)
        bytes_read.append(len(data))
        return data

    monkeypatch.setattr(WalFeed, "_next_piece", continue_later)
    monkeypatch.setattr(WalFeed, "_read_object", read_some)
    monkeypatch.setattr(past_runs.PastRuns, "_read", count)
    with serving(tmp_path, log) as watched:
        make_commits(log, 50)
        wait_until(lambda: watched.ask("/logs/log").json["acknowledged"] == log.next)
        place = Position.parse(watched.ask("/logs/log").json["acknowledged_position"])
        address = watched.service.address
        assert address is not None
        connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=WAIT_SECONDS)
        connection.request("GET", f"/logs/log/wal?from={place}&follow=true")
        segments = read_stream("test", connection.getresponse())
        log.append(1)
        got = next(segments).data()  # type: ignore[union-attr]
        wait_until(lambda: watched.ask("/logs/log").json["acknowledged"] == log.next)
        for _ in range(6):
            log.append(1)
            wait_until(lambda: watched.ask("/logs/log").json["acknowledged"] == log.next)
        may_continue.set()
        whole = log.texts[log.name][place.offset :]
        lacking = len(whole) - len(got)
        received = bytes(got)
        while len(received) < len(whole):
            received += next(segments).data()  # type: ignore[union-attr]
        connection.close()
        assert received == whole
        assert len(read_objects) == objects
        assert 0 < sum(bytes_read) < lacking, "the last run comes from the buffer"


def test_a_known_place_whose_bytes_the_folder_does_not_hold_is_a_fork(tmp_path: Path) -> None:
    """The bytes after it may have been written by another history."""
    log = make_log(tmp_path / "log")
    log.roll(3)
    source = LogSource(log.folder, log.format)
    follower = follow(log, ManualClock())
    (run,) = drain(follower)
    log.append(2)
    first = Position(generation("0" * 16), 0, run.end.offset)
    history = cast("GenerationBytes", None)
    past = past_runs.PastRuns(source, history, first, None, run.end)
    found = past.next_run(len(log.texts[log.name]))
    assert found is not None
    assert found.data == log.texts[log.name][run.end.offset :]
    assert found.end.crc_total == crc32c(log.texts[log.name])
    past.close()
    path = Path(log.path())
    body = bytearray(path.read_bytes())
    body[run.end.offset - 1] ^= 1
    path.write_bytes(body)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ForkedError, match="not those that were sent"):
        past_runs.PastRuns(source, history, first, None, run.end)
    assert len(os.listdir("/proc/self/fd")) == before
