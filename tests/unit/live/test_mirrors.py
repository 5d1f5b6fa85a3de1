"""The places of a served log's mirrors: what waits for them, and what truncation reads."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("urllib3")

from litelog.errors import ConfigError
from litelog.live.served_log import LiveReader
from litelog.log.mirror_registry import MirrorRegistry
from litelog.log.replica_registry import log_state_folder
from litelog.log.writer import LogWriter
from litelog.objects.position import Position
from litelog.restore.opened_mirror import opened_mirror
from litelog.stores import mirror_acknowledgement
from litelog.stores.mirror_acknowledgement import MirrorAcknowledgement
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.restoring import files_in
from tests.builders.server_builder import Watched
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.restore.mirror import Mirror

pytestmark = pytest.mark.slow


@contextmanager
def serving(tmp_path: Path, log: LogBuilder) -> Iterator[tuple[Watched, str]]:
    with Watched(tmp_path, [(log, [f"file://{tmp_path}/replica"])], {"serve": "all"}) as watched:
        watched.wait_until_ready()
        assert watched.service.address is not None
        yield watched, f"http://127.0.0.1:{watched.service.address.port}/logs/log"


@contextmanager
def mirroring(url: str, folder: Path) -> Iterator[Mirror]:
    """A mirror that runs in its own thread."""
    stop = threading.Event()
    with opened_mirror(url, {}, str(folder)) as mirror:
        thread = threading.Thread(target=mirror.run, args=(stop, 0.05))
        thread.start()
        try:
            yield mirror
        finally:
            stop.set()
            thread.join()


def held(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in files_in(folder).items() if name.endswith(".log")}


def test_the_source_knows_the_sequence_of_a_mirror_and_records_its_log_segment(tmp_path: Path, log: LogBuilder) -> None:
    log.roll(3)
    with serving(tmp_path, log) as (watched, url), mirroring(url, tmp_path / "out"):
        log.append(2)
        answer = watched.ask(f"/logs/log/mirrors?sequence={log.next}&wait=30s").json
        assert answer["next"] == log.next == answer["mirrors"][0]["next"]
        registry = MirrorRegistry(log_state_folder(str(tmp_path / "state"), log.folder))
        name = answer["mirrors"][0]["mirror"]
        wait_until(lambda: [(each.name, each.file) for each in registry.read()] == [(name, log.name)])
        log.roll(2)
        wait_until(lambda: [(each.name, each.file) for each in registry.read()] == [(name, log.name)])


def test_a_mirror_that_cannot_be_recorded_is_served_and_reported_once(
    tmp_path: Path, log: LogBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    def failures() -> int:
        return sum(getattr(record, "event", None) == "mirror-not-recorded" for record in caplog.records)

    registry = Path(log_state_folder(str(tmp_path / "state"), log.folder), "mirrors.json")
    (registry / "in the way").mkdir(parents=True)
    with serving(tmp_path, log) as (watched, _):
        position = watched.ask("/logs/log").json["acknowledged_position"]
        first = f"{position.rpartition('/')[0]}/{0:016x}"
        for _ in range(3):
            for name in ("a", "b"):
                assert watched.ask(f"/logs/log/wal?from={first}&mirror={name}&wait=5s").status == 200
        assert failures() == 2
        (registry / "in the way").rmdir()
        registry.rmdir()
        assert watched.ask(f"/logs/log/wal?from={first}&mirror=a").status == 200
        assert registry.is_file()
        assert watched.service._logs is not None
        mirrors = watched.service._logs.get("log").mirrors
        assert [mirrors.fail_to_record("a", cause) for cause in ("full", "full", "gone")] == [True, False, True]
    assert failures() == 2


def test_a_mirror_that_is_ahead_of_its_source_is_nowhere(tmp_path: Path, log: LogBuilder) -> None:
    """The source lost its end, and has other records there now, or none: what the mirror has is not known."""
    log.roll(2)
    with serving(tmp_path, log) as (watched, _):
        logs, reader = watched.service._logs, LiveReader("test", 0.0)
        assert logs is not None
        served = logs.enter("log", reader)
        wait_until(lambda: served.buffer.view.next == log.next)
        log.append(1)
        wait_until(lambda: served.buffer.view.next == log.next)
        end = served.durable_end()
        assert end is not None
        assert served.locate_mirror(end).next == log.next
        assert served.find_file(end) == log.name
        for ahead in (replace(end, offset=end.offset + 1), replace(end, index=end.index + 1, offset=0)):
            assert served.locate_mirror(ahead).next is None
            assert served.find_file(ahead) is None
        logs.leave(served, reader)


def test_the_log_segment_of_a_mirror_is_not_known_until_that_exists(
    tmp_path: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The buffer stands after the last byte of a finished log segment, and the mirror there, too."""
    log.append(1)
    with serving(tmp_path, log) as (watched, _):
        logs, reader = watched.service._logs, LiveReader("test", 0.0)
        assert logs is not None
        served = logs.enter("log", reader)
        wait_until(lambda: served.buffer.view.next == log.next)
        logs.leave(served, reader)
        view = served.buffer.view
        assert view.end is not None
        between = replace(view.end, index=view.end.index + 1, file="", offset=0)
        assert view.generation is not None
        with monkeypatch.context() as patch:
            patch.setattr(served, "buffer", SimpleNamespace(view=replace(view, end=between)))
            assert served.find_file(Position(view.generation, between.index, 0)) is None


def test_a_wait_for_a_mirror_ends_after_its_time_and_states_where_mirrors_are(tmp_path: Path, log: LogBuilder) -> None:
    log.append(2)
    with serving(tmp_path, log) as (watched, url):
        assert watched.ask("/logs/log/mirrors?sequence=1&wait=10ms").json["next"] is None
        with mirroring(url, tmp_path / "out"):
            assert watched.ask(f"/logs/log/mirrors?sequence={log.next}&wait=30s").json["next"] == log.next
            late = watched.ask(f"/logs/log/mirrors?sequence={log.next + 1}&wait=10ms").json
            assert late["next"] == log.next
        assert watched.ask("/logs/log/mirrors?sequence=x").status == 400
        assert watched.ask("/logs/log/mirrors?from=1").status == 400
        assert watched.ask("/logs/other/mirrors").status == 404


def test_a_mirror_of_a_log_that_was_rewound_counts_for_nothing(tmp_path: Path, log: LogBuilder) -> None:
    log.append(2)
    log.append(3)
    first = log.next
    with serving(tmp_path, log) as (watched, url), opened_mirror(url, {}, str(tmp_path / "out")) as mirror:
        wait_until(lambda: [mirror.step(0.0), mirror.next == first][1])
        wait_until(lambda: [mirror.step(0.0), watched.ask("/logs/log/mirrors").json["next"] == first][1])
        log.truncate(len(log.header()))
        log.next = 0
        while log.next < first:
            log.append(1, size=70)
        wait_until(lambda: watched.ask("/logs/log").json["durable"] == log.next)
        wait_until(lambda: watched.ask("/logs/log/mirrors").json["next"] is None)


@pytest.mark.parametrize("is_asynchronous", [False, True])
def test_an_append_returns_once_a_mirror_has_it(tmp_path: Path, is_asynchronous: bool) -> None:
    log = make_log(tmp_path / "log")
    with serving(tmp_path, log) as (watched, url):
        acknowledge = MirrorAcknowledgement(url)
        with LogWriter(log.folder, acknowledge=acknowledge) as writer:
            first = writer.append_async(b"first")
            writer.roll()
            wait_until(lambda: watched.ask("/logs/log").json["acknowledged"] == 1)
            with mirroring(url, tmp_path / "out"):
                assert first.result().mirrored is True
                for number in range(20):
                    value = b"%d" % number
                    done = writer.append_async(value).result() if is_asynchronous else writer.append(value)
                    assert done.mirrored is True
                    assert held(tmp_path / "out") == held(tmp_path / "log")
        acknowledge.close()


def test_a_writer_goes_on_without_its_mirror_and_waits_again_once_it_is_back(tmp_path: Path, log: LogBuilder) -> None:
    log.append(1)
    with serving(tmp_path, log) as (_, url):
        acknowledge = MirrorAcknowledgement(url, timeout=0.3)
        with LogWriter(log.folder, acknowledge=acknowledge) as writer:
            assert writer.append(b"alone").mirrored is False
            assert [writer.append(b"alone").mirrored for _ in range(3)] == [False] * 3
            with mirroring(url, tmp_path / "out"):
                wait_until(lambda: writer.append(b"together").mirrored is True)
                assert held(tmp_path / "out") == held(tmp_path / "log")
            acknowledge.close()


def test_without_a_daemon_an_append_waits_or_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_acknowledgement, "RETRY_SECONDS", 0.01)
    acknowledge = MirrorAcknowledgement("http://127.0.0.1:9/logs/log", timeout=0.05)
    with LogWriter(tmp_path / "log", acknowledge=acknowledge) as writer:
        assert writer.append(b"1").mirrored is False
        assert writer.append_async(b"2").result().mirrored is False
        assert writer.durable_sequence == 2
    with pytest.raises(ConfigError):
        MirrorAcknowledgement(os.fspath(tmp_path))
    with pytest.raises(ConfigError):
        MirrorAcknowledgement("http://127.0.0.1:9/logs/log", timeout=0)
