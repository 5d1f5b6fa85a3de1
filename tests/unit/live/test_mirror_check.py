"""What a mirror states about the bytes before its position: others are a fork, and what the folder dropped is not."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from litelog.objects.position import Position
from litelog.objects.wal_stream import BEFORE_BYTES, SEGMENT_HEADER, SegmentBefore
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.server_builder import Answer, Watched
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow


@contextmanager
def serving(tmp_path: Path, log: LogBuilder) -> Iterator[Watched]:
    """The daemon of an empty log that gets two log segments, of which the first is longer than what is compared."""
    log.roll(20, size=2 * BEFORE_BYTES // 20)
    log.roll(2)
    with Watched(tmp_path, [(log, [f"file://{tmp_path}/replica"])], {"serve": "all"}) as watched:
        watched.wait_until_ready()
        wait_until(lambda: (watched.ask("/logs/log").json["acknowledged_position"] or "").count("/0000000000000001/"))
        yield watched


def held(file: str, data: bytes) -> SegmentBefore:
    return SegmentBefore(file, len(data), hashlib.sha256(data[-BEFORE_BYTES:]).hexdigest())


def ask(watched: Watched, headers: dict[str, str]) -> Answer:
    generation = Position.parse(watched.ask("/logs/log").json["acknowledged_position"]).generation
    return watched.ask(f"/logs/log/wal?from={Position(generation, 1, 0)}", headers=headers)


@pytest.mark.parametrize("name", ["litelog", "lines", "spacetimedb"])
def test_a_mirror_at_the_end_of_a_log_segment_states_that_end(tmp_path: Path, name: str) -> None:
    log = make_log(tmp_path / "log", name)
    with serving(tmp_path, log) as watched:
        first, second = log.names()
        data = log.texts[first]
        assert ask(watched, {SEGMENT_HEADER: str(held(first, data))}).status == 200
        refused = ask(watched, {SEGMENT_HEADER: str(held(first, data[:-1] + b"\0"))})
        assert (refused.status, refused.json["error"]["kind"]) == (409, "conflict")
        assert "are not those of the mirror" in refused.json["error"]["message"]
        newer = {"litelog": f"{1:020}.log", "spacetimedb": f"{1:020}.stdb.log"}.get(name, first + "1")
        assert first < newer < second, "the log has only earlier ones"
        assert ask(watched, {SEGMENT_HEADER: str(held(newer, data))}).status == 409


def test_a_log_segment_that_goes_on_after_the_mirrors_end_is_another_one(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log")
    with serving(tmp_path, log) as watched:
        first = log.names()[0]
        longer, end = log.texts[first], len(log.texts[first]) - 100
        assert ask(watched, {SEGMENT_HEADER: str(held(first, longer[:end]))}).status == 409
        log.write(bytes(4096), first)
        assert ask(watched, {SEGMENT_HEADER: str(held(first, longer))}).status == 200, "zeros are preallocation"


def test_a_log_segment_that_the_folder_dropped_is_not_compared(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log")
    with serving(tmp_path, log) as watched:
        first = log.names()[0]
        log.delete(first)
        assert ask(watched, {SEGMENT_HEADER: str(held(first, b"others"))}).status == 200


@pytest.mark.parametrize(
    "text", ["", "D", "D 5", "D -5 a", f"{'0' * 63} 5 a", "D 5 a b", f"D 5 {'a' * 766}", f"D {'9' * 19} a"]
)
def test_a_header_of_another_form_is_refused(tmp_path: Path, text: str) -> None:
    log = make_log(tmp_path / "log")
    with serving(tmp_path, log) as watched:
        answer = ask(watched, {SEGMENT_HEADER: text.replace("D", "0" * 64)})
        assert (answer.status, SEGMENT_HEADER in answer.json["error"]["message"]) == (400, True)


@pytest.mark.parametrize("file", ["../secret", "/etc/passwd", "log/../x", "todo.txt"])
def test_a_name_that_is_no_log_segments_is_opened_nowhere(tmp_path: Path, file: str) -> None:
    log = make_log(tmp_path / "log")
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "log" / "todo.txt").write_bytes(b"secret")
    with serving(tmp_path, log) as watched:
        assert ask(watched, {SEGMENT_HEADER: str(held(file, b"secret"))}).status == 409
