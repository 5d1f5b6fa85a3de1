from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ConfigError
from litelog.log.writer import LogWriter
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from pathlib import Path


class Away:
    """A mirror that acknowledges nothing until a test lets it."""

    def __init__(self) -> None:
        self.back = threading.Event()

    def wait(self, sequence: int) -> bool:
        return self.back.wait(WAIT_SECONDS)


def test_no_write_and_no_sync_waits_for_a_mirror(tmp_path: Path) -> None:
    away = Away()
    resolved: list[int] = []
    with LogWriter(tmp_path / "log", fsync="interval", fsync_interval=0.02, acknowledge=away) as writer:
        futures = [writer.append_async(b"one")]
        wait_until(lambda: writer.durable_sequence == 1)
        futures += [writer.append_async(b"two"), writer.append_async(b"three")]
        wait_until(lambda: writer.durable_sequence == 3)
        assert not any(future.done() for future in futures)
        for future in futures:
            future.add_done_callback(lambda done: resolved.append(done.result().first))
        futures[0].add_done_callback(lambda _: futures.append(writer.append_async(b"of a callback")))
        away.back.set()
        assert [future.result(WAIT_SECONDS).mirrored for future in futures[:3]] == [True] * 3
        wait_until(lambda: len(futures) == 4)
        assert futures[3].result(WAIT_SECONDS).first == 3
    assert resolved == [0, 1, 2]


def test_a_word_is_no_acknowledgement_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="acknowledge is MirrorAcknowledgement"):
        LogWriter(tmp_path / "log", acknowledge="mirror")  # type: ignore[arg-type]
    assert not (tmp_path / "log").exists()


def test_closing_resolves_what_a_mirror_has_not_acknowledged(tmp_path: Path) -> None:
    away = Away()
    writer = LogWriter(tmp_path / "log", acknowledge=away)
    futures = [writer.append_async(b"%d" % number) for number in range(3)]
    closing = threading.Thread(target=writer.close)
    closing.start()
    away.back.set()
    closing.join(WAIT_SECONDS)
    assert [future.result(0).next for future in futures] == [1, 2, 3]
