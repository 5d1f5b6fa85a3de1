"""The bytes of a log over HTTP, as a stream of WAL segments: the past, the live end, cuts, forks and many readers."""

from __future__ import annotations

import http.client
import io
import json
import os
import socket
import subprocess
import threading
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from litelog.codec.lz4_frames import decompress_frame, walk_frames
from litelog.errors import CorruptObjectError
from litelog.live import live_buffer, wal_feed
from litelog.live.reader_limits import ReaderLimits
from litelog.live.replica_objects import ReplicaObjects
from litelog.log.writer import LogWriter
from litelog.objects.layout import wal_key
from litelog.objects.position import Position
from litelog.objects.wal_segment import WalSegment
from litelog.objects.wal_stream import StreamError, read_stream
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.server_builder import Watched
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow


@contextmanager
def serving(tmp_path: Path, log: LogBuilder, **settings: Any) -> Iterator[Watched]:
    with Watched(tmp_path, [(log, [f"file://{tmp_path}/replica"])], {"serve": "all", **settings}) as watched:
        watched.wait_until_ready()
        yield watched


def path_of(position: Position, query: str = "") -> str:
    return f"/logs/log/wal?from={position}{query}"


def segments(body: bytes) -> list[WalSegment]:
    found = list(read_stream("test", io.BytesIO(body)))
    assert all(isinstance(each, WalSegment) for each in found), found
    return [each for each in found if isinstance(each, WalSegment)]


def ask(watched: Watched, position: Position, query: str = "") -> list[WalSegment]:
    answer = watched.ask(path_of(position, query))
    assert answer.status == 200, answer.body
    return segments(answer.body)


def acknowledged(watched: Watched) -> Position:
    return Position.parse(watched.ask("/logs/log").json["acknowledged_position"])


def beginning(watched: Watched) -> Position:
    return Position(acknowledged(watched).generation, 0, 0)


def files_of(found: list[WalSegment]) -> dict[str, bytes]:
    """The log segments that some WAL segments make. AssertionError if one does not continue the one before it."""
    made: dict[str, bytes] = {}
    following = found[0].header.position
    for segment in found:
        assert segment.header.position == following
        made[segment.header.file] = made.get(segment.header.file, b"") + segment.data()
        following = segment.header.next_slot
    return made


def test_the_bytes_of_the_past_and_of_the_live_end_are_those_of_the_log(tmp_path: Path, log: LogBuilder) -> None:
    with serving(tmp_path, log) as watched:
        assert ask(watched, beginning(watched)) != []
        log.append(3)
        log.roll(2)
        wait_until(lambda: files_of(ask(watched, beginning(watched))) == log.texts)
        body = watched.ask(path_of(beginning(watched))).body
        frames = [decompress_frame(memoryview(body), each) for each in walk_frames(body) if not each.skippable]
        assert b"".join(frames) == b"".join(log.texts.values()), "to a reader of LZ4, it is the log"


def test_a_follower_gets_each_commit_as_it_is_durable(tmp_path: Path, log: LogBuilder) -> None:
    with serving(tmp_path, log) as watched:
        address = watched.service.address
        assert address is not None
        connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=WAIT_SECONDS)
        connection.request("GET", path_of(acknowledged(watched), "&follow=true"))
        stream = read_stream("test", connection.getresponse())
        before = os.path.getsize(log.path())
        for _ in range(3):
            log.append(1)
            segment = next(stream)
            assert isinstance(segment, WalSegment)
            assert (segment.header.offset, segment.header.end) == (before, len(log.texts[log.name]))
            assert segment.data() == log.texts[log.name][before:]
            before = segment.header.end
        connection.close()


def test_a_stream_that_does_not_follow_waits_for_the_first_wal_segment(tmp_path: Path, log: LogBuilder) -> None:
    with serving(tmp_path, log) as watched:
        place, found = acknowledged(watched), list[WalSegment]()
        assert ask(watched, place, "&wait=50ms") == []
        waiter = threading.Thread(target=lambda: found.extend(ask(watched, place, f"&wait={WAIT_SECONDS}s")))
        waiter.start()
        wait_until(lambda: len(watched.ask("/logs/log").json["readers"]) == 1)
        log.append(2)
        waiter.join(WAIT_SECONDS)
        assert found[0].header.position == place


def test_head_of_an_answer_that_waits_is_sent_before_there_is_a_wal_segment(tmp_path: Path, log: LogBuilder) -> None:
    with serving(tmp_path, log) as watched:
        address = watched.service.address
        assert address is not None
        connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=WAIT_SECONDS)
        connection.request("GET", path_of(acknowledged(watched), f"&wait={WAIT_SECONDS}s"))
        answer = connection.getresponse()
        assert answer.status == 200
        log.append(1)
        found = segments(answer.read())
        assert files_of(found)[log.name] == log.texts[log.name][found[0].header.offset :]
        connection.close()


def test_a_stream_from_the_middle_of_a_run_begins_at_that_commit(tmp_path: Path, log: LogBuilder) -> None:
    with serving(tmp_path, log) as watched:
        place = acknowledged(watched)
        ask(watched, place)  # the buffer runs from now on, and holds all runs that follow
        ends = []
        for _ in range(4):
            log.append(1)
            ends.append(len(log.texts[log.name]))
        log.roll(1)
        wait_until(lambda: acknowledged(watched).index == 1)
        (first, whole), (second, newest) = log.texts.items()
        for end in [place.offset, *ends]:
            found = ask(watched, Position(place.generation, 0, end))
            assert found[0].header.offset == end
            assert found[0].header.crc_total is not None
            assert (files_of(found).get(first, b""), files_of(found)[second]) == (whole[end:], newest)


def test_all_readers_share_each_compressed_run(
    tmp_path: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[Position] = []
    encode = wal_feed.wal_segment.encode
    monkeypatch.setattr(
        wal_feed.wal_segment, "encode", lambda header, data: encoded.append(header.position) or encode(header, data)
    )
    monkeypatch.setattr(wal_feed, "UNSENT_BYTES", -1)  # no reader is fast enough to get the bytes as they are
    with serving(tmp_path, log) as watched:
        place, bodies = acknowledged(watched), list[bytes]()
        readers = [
            threading.Thread(target=lambda: bodies.append(watched.ask(path_of(place, f"&wait={WAIT_SECONDS}s")).body))
            for _ in range(12)
        ]
        for reader in readers:
            reader.start()
        wait_until(lambda: len(watched.ask("/logs/log").json["readers"]) == 12)
        log.append(5)
        for reader in readers:
            reader.join(WAIT_SECONDS)
        assert len(bodies) == 12
        assert all(segments(body)[0].header.position == place for body in bodies)
        assert encoded.count(place) == 1


def is_stored(segment: WalSegment) -> bool:
    """Whether a WAL segment holds its bytes as they are."""
    return bytes(segment.data()) in bytes(segment.body)


def test_reader_that_takes_all_gets_bytes_as_they_are_and_lz4_reads_them(tmp_path: Path, log: LogBuilder) -> None:
    with serving(tmp_path, log) as watched:
        place = acknowledged(watched)
        ask(watched, place)  # the buffer runs from now on, and holds all runs that follow
        for _ in range(3):
            log.append(2)
        wait_until(lambda: files_of(ask(watched, place) or ask(watched, beginning(watched))) != {})
        end = place.offset
        wait_until(lambda: sum(each.header.length for each in ask(watched, place)) == len(log.texts[log.name]) - end)
        body = watched.ask(path_of(place)).body
    assert all(map(is_stored, segments(body)))
    text = subprocess.run(["lz4", "-dc"], input=body, capture_output=True, check=True).stdout
    assert text == log.texts[log.name][end:]


def test_reader_with_a_rate_gets_compressed_bytes(tmp_path: Path, log: LogBuilder) -> None:
    """Its connection is never full, but each byte costs it time."""
    with serving(tmp_path, log, reader_limits=ReaderLimits(rate=1 << 30)) as watched:
        place = acknowledged(watched)
        ask(watched, place)  # the buffer runs from now on
        log.append(20)
        wait_until(lambda: bool(ask(watched, place)))
        found = ask(watched, place)
    assert not any(map(is_stored, found))


def read_late(watched: Watched, log: LogBuilder, values: list[bytes], count: int, header: str) -> list[WalSegment]:
    """Append commits of ``values``, and only then read what was sent meanwhile, through a small buffer."""
    place, address = acknowledged(watched), watched.service.address
    assert address is not None
    with LogWriter(log.folder) as writer, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", address.port))
        client.sendall(f"GET {path_of(place, '&follow=true')} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n".encode())
        wait_until(lambda: len(watched.ask("/logs/log").json["readers"]) == 1)
        for _ in range(count):
            writer.append(values)
        answer = http.client.HTTPResponse(client)
        answer.begin()
        stream, found = read_stream("test", answer), list[WalSegment]()
        while sum(each.header.records for each in found) < count * len(values):
            segment = next(stream)
            assert isinstance(segment, WalSegment)
            found.append(segment)
    assert [each.header.position for each in found[1:]] == [each.header.next_slot for each in found[:-1]]
    return found


@pytest.mark.parametrize("header", ["Via: 1.1 proxy\r\n", "X-Forwarded-For: 192.0.2.1\r\n"])
def test_reader_behind_a_network_that_takes_little_gets_compressed_bytes(
    tmp_path: Path, log: LogBuilder, header: str
) -> None:
    """What is sent before the client reads anything does not fit into the buffers of its connection."""
    with serving(tmp_path, log) as watched:
        found = read_late(watched, log, [b"compressible " * 80] * 1000, 24, header)
    kinds = [is_stored(each) for each in found]
    assert kinds[0], "nothing was unsent before the first one"
    assert kinds.count(False) > kinds.count(True), kinds


def test_reader_on_the_same_machine_that_takes_little_gets_bytes_as_they_are(tmp_path: Path, log: LogBuilder) -> None:
    """It waits for its own disk. To compress would take the processor that both of them share."""
    with serving(tmp_path, log) as watched:
        found = read_late(watched, log, [b"compressible " * 80] * 1000, 10, "")
    assert all(map(is_stored, found))


def test_what_the_buffer_dropped_comes_from_the_replica(
    tmp_path: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_buffer, "HELD_BYTES", 1)
    with serving(tmp_path, log) as watched:
        place = acknowledged(watched)
        for _ in range(6):
            ask(watched, acknowledged(watched))
            before = acknowledged(watched)
            log.append(1)
            wait_until(lambda before=before: acknowledged(watched) != before)  # type: ignore[misc]
        wait_until(lambda: files_of(ask(watched, place))[log.name] == log.texts[log.name][place.offset :])


def refusal(watched: Watched, path: str) -> tuple[int, str]:
    answer = watched.ask(path)
    if answer.status == 200:
        (error,) = read_stream("test", io.BytesIO(answer.body))
        assert isinstance(error, StreamError)
        return error.http_status, error.message
    return answer.status, answer.json["error"]["message"]


def test_a_position_may_be_given_as_the_status_prints_it(tmp_path: Path, log: LogBuilder) -> None:
    """Without the leading zeros of index and offset."""
    with serving(tmp_path, log) as watched:
        place = acknowledged(watched)
        log.append(2)
        wait_until(lambda: ask(watched, place) != [])
        short = f"{place.generation}/{place.index:x}/{place.offset:x}"
        answer = watched.ask(f"/logs/log/wal?from={short}")
        assert [each.data() for each in segments(answer.body)] == [each.data() for each in ask(watched, place)]


def test_a_place_that_the_log_does_not_have_is_refused_with_the_reason(
    tmp_path: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal_feed, "PLACE_SECONDS", 0.05)
    with serving(tmp_path, log) as watched:
        place = acknowledged(watched)
        ask(watched, place)
        log.append(2)
        wait_until(lambda: ask(watched, place) != [])
        after = Position(place.generation, 0, 1 << 40)
        expected = {
            "/logs/log/wal": (400, "from: is needed"),
            "/logs/log/wal?from=x": (400, "from: not a position"),
            f"/logs/log/wal?from={'0' * 16}/0": (400, "from: not a position (generation/index/offset in hex)"),
            f"/logs/log/wal?from={'0' * 16}/0/{'0' * 17}": (400, "from: not a position"),
            f"/logs/log/wal?from={'0' * 16}/0/G": (400, "from: not a position"),
            f"{path_of(place)}&mirror=%0a": (400, "mirror: write up to 200 letters"),
            f"{path_of(place)}&to=3": (400, "to: no such parameter"),
            f"/logs/other/wal?from={place}": (404, "other: no such log is served here"),
            path_of(Position(place.generation, 0, 1)): (409, "no commit begins at"),
            path_of(Position(place.generation, 0, place.offset + 1)): (409, "no commit begins at"),
            path_of(after): (409, "before"),
            path_of(Position(after.generation[::-1], 0, 0)): (409, "is in another generation"),  # type: ignore[arg-type]
        }
        for path, (status, said) in expected.items():
            found = refusal(watched, path)
            assert (found[0], said in found[1]) == (status, True), (path, found)


def test_a_fork_ends_a_stream_with_an_error(tmp_path: Path, log: LogBuilder) -> None:
    with serving(tmp_path, log) as watched:
        place, bodies = acknowledged(watched), list[bytes]()
        follower = threading.Thread(target=lambda: bodies.append(watched.ask(path_of(place, "&follow=true")).body))
        follower.start()
        wait_until(lambda: len(watched.ask("/logs/log").json["readers"]) == 1)
        log.truncate(len(log.header()) + (len(log.texts[log.name]) - len(log.header())) // 3)
        log.next = 1
        log.append(3, size=30)
        follower.join(WAIT_SECONDS)
        if bodies[0].startswith(b"{"):
            error = json.loads(bodies[0])["error"]
            assert (error["http_status"], "forked" in error["message"]) == (409, True)
        else:
            *_, last = read_stream("test", io.BytesIO(bodies[0]))
            assert isinstance(last, StreamError)
            assert (last.http_status, "forked" in last.message) == (409, True)


@pytest.mark.parametrize("name", ["lines", "raw"])
def test_a_log_without_numbers_is_streamed_byte_for_byte(tmp_path: Path, name: str) -> None:
    log = make_log(tmp_path / "log", name)
    log.roll(3)
    with serving(tmp_path, log) as watched:
        log.append(2)
        log.roll(2)
        wait_until(lambda: files_of(ask(watched, beginning(watched))) == log.texts)


def test_a_wal_segment_that_is_damaged_in_the_replica_is_announced_as_it_was(
    tmp_path: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next WAL segment states its digest, so that the daemon does not vouch for the damage."""
    monkeypatch.setattr(wal_feed, "STATED_BYTES", 1)
    monkeypatch.setattr(live_buffer, "HELD_BYTES", 1)
    with serving(tmp_path, log) as watched:
        place = acknowledged(watched)
        for _ in range(3):
            before = acknowledged(watched)
            log.append(1)
            wait_until(lambda before=before: acknowledged(watched) != before)  # type: ignore[misc]
        path = tmp_path / "replica" / wal_key(place)
        body = bytearray(path.read_bytes())
        body[-10] ^= 1
        path.write_bytes(body)
        with pytest.raises(CorruptObjectError, match="digest"):
            segments(watched.ask(path_of(place)).body)


def test_many_readers_of_the_past_share_large_wal_segments_which_are_read_ahead(
    tmp_path: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_buffer, "HELD_BYTES", 1)
    read, keys = ReplicaObjects._read, list[str]()
    monkeypatch.setattr(ReplicaObjects, "_read", lambda self, key: keys.append(key) or read(self, key))
    with serving(tmp_path, log) as watched:
        place = acknowledged(watched)
        with LogWriter(log.folder) as writer:
            for size in (5 << 20, 1, 1):
                before = acknowledged(watched)
                writer.append(Random(size).randbytes(size))
                wait_until(lambda before=before: acknowledged(watched) != before)  # type: ignore[misc]
        for _ in range(3):
            found = files_of(ask(watched, place))[log.name]
            assert found == (tmp_path / "log" / log.name).read_bytes()[place.offset :]
        assert wal_key(place) in keys
        assert len(keys) == len(set(keys)), "each was read once"
        served = watched.service._logs.get("log")  # type: ignore[union-attr]
        bodies = [served.objects.open(wal_key(place), None).read() for _ in range(2)]
        assert bodies[0] is bodies[1]
        assert len(bodies[0]) > 5 << 20
