"""Which logs a daemon serves: before it has opened them, afterwards, and at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litelog.errors import NotYetAvailableError
from litelog.live.reader_limits import ReaderLimits
from litelog.live.served_logs import ServedLogs, UnknownLogError
from litelog.system.inotify import Watcher
from tests.builders.manual_clock import ManualClock

if TYPE_CHECKING:
    from litelog.replicator.live_log import LiveLog


class NoLogs:
    """A replicator that has opened no log."""

    opened = False

    def live_logs(self) -> dict[str, LiveLog]:
        return {}


def test_a_log_that_is_missing_is_unknown_only_once_all_are_open() -> None:
    logs, watcher = NoLogs(), Watcher()
    served = ServedLogs(logs, "all", watcher, ManualClock(), ReaderLimits(1))
    with pytest.raises(NotYetAvailableError, match="orders: the daemon is still opening its logs"):
        served.get("orders")
    logs.opened = True
    with pytest.raises(UnknownLogError, match="orders: no such log is served here"):
        served.get("orders")
    served.close()
    with pytest.raises(NotYetAvailableError, match="orders: the daemon is ending"):
        served.get("orders")
    watcher.close()
