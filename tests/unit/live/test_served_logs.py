"""Which logs a daemon serves: before it has opened them, afterwards, and at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from litelog.errors import NotYetAvailableError
from litelog.live import served_logs
from litelog.live.reader_limits import ReaderLimits
from litelog.live.served_log import LiveReader, ServedLog
from litelog.live.served_logs import ServedLogs, UnknownLogError
from litelog.system.change_signal import ChangeSignal
from litelog.system.inotify import Watcher
from tests.builders.manual_clock import ManualClock
from tests.builders.server_builder import Watched
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from litelog.replicator.live_log import LiveLog
    from tests.builders.log_builder import LogBuilder


class NoLogs:
    """A replicator that has opened no log."""

    opened = False

    log_changes = ChangeSignal()

    def live_logs(self) -> dict[str, LiveLog]:
        return {}


def test_a_log_that_is_missing_is_unknown_only_once_all_are_open() -> None:
    logs, watcher = NoLogs(), Watcher()
    served = ServedLogs(logs, "all", watcher, ManualClock(), ReaderLimits(1))
    with pytest.raises(NotYetAvailableError, match="orders: the daemon is still opening its logs"):
        served.get("orders")
    with pytest.raises(NotYetAvailableError, match="the daemon is still opening its logs"):
        served.names()  # a part of the list
    logs.opened = True
    assert served.names() == []
    with pytest.raises(UnknownLogError, match="orders: no such log is served here; /logs lists the served logs"):
        served.get("orders")
    served.close()
    with pytest.raises(NotYetAvailableError, match="orders: the daemon is ending"):
        served.get("orders")
    watcher.close()


@pytest.mark.slow
def test_a_log_that_is_read_again_while_it_is_stopped_is_live(
    tmp_path: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader finds the running log, which another thread stops for idleness before the reader enters."""
    monkeypatch.setattr(served_logs, "IDLE_SECONDS", 0.0)
    with Watched(tmp_path, [(log, [f"file://{tmp_path}/replica"])], {"serve": "all"}) as watched:
        watched.wait_until_ready()
        logs = watched.service._logs
        assert logs is not None
        first, second = LiveReader("first", 0.0), LiveReader("second", 0.0)
        logs.leave(logs.enter("log", first), first)
        get, found = ServedLogs.get, list[ServedLog]()

        def get_slowly(self: ServedLogs, name: str) -> ServedLog:
            found.append(get(self, name))
            if len(found) == 1:
                self.stop_idle()
            return found[-1]

        monkeypatch.setattr(ServedLogs, "get", get_slowly)
        served = logs.enter("log", second)
        log.append(2)
        wait_until(lambda: served.buffer.view.next == 5)
        assert [each is served for each in found] == [False, True]
        logs.leave(served, second)
