"""What a buffer holds of a log, and how its readers find their place in it."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from litelog.live import live_buffer
from litelog.live.served_log import LiveReader
from litelog.log.early_sync import EarlySync
from litelog.objects.position import Position
from litelog.system import folder_signal
from litelog.system.folder_signal import FolderSignal
from tests.builders.held_syncs import HeldSyncs
from tests.builders.server_builder import Watched
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from tests.builders.log_builder import LogBuilder

pytestmark = pytest.mark.slow


def test_a_buffer_of_small_commits_is_bounded_and_each_place_in_it_is_found(
    tmp_path: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each commit is a run, which takes far more memory than its bytes."""
    monkeypatch.setattr(live_buffer, "RUN_BYTES", 1)
    monkeypatch.setattr(live_buffer, "HELD_BYTES", 1 << 16)
    with Watched(tmp_path, [(log, [f"file://{tmp_path}/replica"])], {"serve": "all"}) as watched:
        watched.wait_until_ready()
        logs = watched.service._logs
        assert logs is not None
        reader = LiveReader("test", 0.0)
        served = logs.enter("log", reader)
        for _ in range(60):
            log.append(1)
        log.roll(3)
        wait_until(lambda: served.buffer.view.next == log.next)
        view, runs = served.buffer.look()
        assert 10 <= len(runs) <= (1 << 16) // live_buffer.RUN_OVERHEAD_BYTES
        assert view.first == runs[0].first
        for sequence in range(log.next + 2):
            held = [run for run in runs if run.next is not None and sequence < run.next]
            assert served.buffer.look_at(sequence) == (view, held if sequence >= runs[0].first else None)  # type: ignore[operator]
        for run in runs:
            for place in (run.position, run.after):
                following = next((each for each in runs if place < each.after), None)
                assert served.buffer.look_from(place) == (view, runs[0], following)
        before = Position(runs[0].position.generation, 0, 0)
        assert served.buffer.look_from(before) == (view, runs[0], runs[0])
        logs.leave(served, reader)


def test_a_log_is_served_once_its_thread_can_start(
    tmp_path: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Watched(tmp_path, [(log, [f"file://{tmp_path}/replica"])], {"serve": "all"}) as watched:
        watched.wait_until_ready()
        logs = watched.service._logs
        assert logs is not None
        reader, signals = LiveReader("test", 0.0), list[FolderSignal]()

        class Refusing(threading.Thread):
            def start(self) -> None:
                signals.extend(self._args)  # type: ignore[attr-defined]
                raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patch:
            patch.setattr(threading, "Thread", Refusing)
            with pytest.raises(RuntimeError, match="can't start"):
                logs.enter("log", reader)
        assert [signal._woken for signal in signals] == [-1], "its descriptors are open"
        assert list(logs.running()) == []
        served = logs.enter("log", reader)
        wait_until(lambda: served.buffer.view.next == log.next)
        logs.leave(served, reader)


def test_commits_are_published_once_they_are_durable_and_encoded_before(
    tmp_path: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs, encoded = HeldSyncs(), list[int | None]()
    monkeypatch.setattr(live_buffer, "EarlySync", lambda wake: EarlySync(wake, syncs))

    def encode(run: live_buffer.LiveRun) -> bytes:
        encoded.append(run.next)
        return b"encoded"

    with Watched(tmp_path, [(log, [f"file://{tmp_path}/replica"])], {"serve": "all"}) as watched:
        watched.wait_until_ready()
        logs = watched.service._logs
        assert logs is not None
        reader = LiveReader("test", 0.0)
        buffer = logs.enter("log", reader).buffer
        log.append(1)
        syncs.may_end.release(100)
        wait_until(lambda: buffer.view.next == log.next)
        while syncs.may_end.acquire(blocking=False):
            """The next one is held."""
        before = buffer.view.next
        buffer.wanted.add("kind", encode)
        log.append(1)
        wait_until(lambda: encoded == [log.next])
        assert buffer.view.next == before
        syncs.may_end.release()
        wait_until(lambda: buffer.view.next == log.next)
        assert buffer.look()[1][-1].encoded("kind", bytes) == b"encoded"
        buffer.wanted.remove("kind")
        syncs.number = 5
        log.append(1)
        syncs.may_end.release(100)
        wait_until(lambda: "frozen" in buffer.view.error)
        assert buffer.view.next == log.next - 1
        assert encoded == [log.next - 1]
        copy = tmp_path / "copy"
        path = next(Path(log.folder).glob("*.log"))
        copy.write_bytes(path.read_bytes())
        syncs.number = 0
        copy.replace(path)  # ends the freeze
        wait_until(lambda: buffer.view.next == log.next)
        runs = buffer.look()[1]
        assert [run.first for run in runs[1:]] == [run.next for run in runs[:-1]], "none is missing"


def test_what_is_appended_while_the_buffer_arms_is_read_without_a_further_change(
    tmp_path: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile = list[int]()

    class Slow(FolderSignal):
        def arm(self) -> bool:
            for commits in [*meanwhile]:
                meanwhile.clear()
                log.append(commits)
            return super().arm()

    monkeypatch.setattr(live_buffer, "FolderSignal", Slow)
    monkeypatch.setattr(folder_signal, "_open_inotify", lambda _: -1)
    with Watched(tmp_path, [(log, [f"file://{tmp_path}/replica"])], {"serve": "all"}) as watched:
        watched.wait_until_ready()
        logs = watched.service._logs
        assert logs is not None
        buffer = logs.enter("log", LiveReader("test", 0.0)).buffer
        log.append(1)
        wait_until(lambda: buffer.view.next == log.next)
        monkeypatch.setattr(live_buffer, "WATCHED_SECONDS", 10 * WAIT_SECONDS)
        for _ in range(2):  # the wait that is under way may end by itself
            meanwhile.append(1)
            log.append(1)
            wait_until(lambda: not meanwhile and buffer.view.next == log.next)


def test_the_error_after_a_run_is_shown_although_the_run_is_published_later(
    tmp_path: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = HeldSyncs()
    monkeypatch.setattr(live_buffer, "EarlySync", lambda wake: EarlySync(wake, syncs))
    with Watched(tmp_path, [(log, [f"file://{tmp_path}/replica"])], {"serve": "all"}) as watched:
        watched.wait_until_ready()
        logs = watched.service._logs
        assert logs is not None
        buffer = logs.enter("log", LiveReader("test", 0.0)).buffer
        log.append(1)
        syncs.may_end.release(100)
        wait_until(lambda: buffer.view.next == log.next)
        while syncs.may_end.acquire(blocking=False):
            """The next one is held."""
        monkeypatch.setattr(live_buffer, "RETRY_SECONDS", 10 * WAIT_SECONDS)
        good, begun = log.commit(), syncs.begun
        last = log.next
        bad = bytearray(log.commit())
        bad[-1] ^= 1
        log.write(good + bad + log.commit())
        wait_until(lambda: syncs.begun > begun)
        syncs.may_end.release(100)
        wait_until(lambda: buffer.view.next == last and "checksum" in buffer.view.error)


def test_a_form_that_cannot_be_made_does_not_keep_a_run_from_other_readers(tmp_path: Path, log: LogBuilder) -> None:
    def encode(run: live_buffer.LiveRun) -> bytes:
        raise ValueError(f"{run.size} bytes are too many")

    with Watched(tmp_path, [(log, [f"file://{tmp_path}/replica"])], {"serve": "all"}) as watched:
        watched.wait_until_ready()
        logs = watched.service._logs
        assert logs is not None
        buffer = logs.enter("log", LiveReader("test", 0.0)).buffer
        buffer.wanted.add("kind", encode)
        for _ in range(2):
            log.append(1)
            wait_until(lambda: buffer.view.next == log.next)
        run = buffer.look()[1][-1]
        with pytest.raises(ValueError, match="too many"):
            run.encoded("kind", partial(encode, run))
