"""A daemon's configuration, read again while it runs."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import click

from litelog.errors import LitelogError
from litelog.events import fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.config import Config
    from litelog.replicator import Replicator

FIXED = (
    "state_dir",
    "addr",
    "token_file",
    "allowed_hosts",
    "max_lag",
    "heartbeat_url",
    "heartbeat_interval",
)
"""The keys that are looked at once, when the daemon starts."""

_logger = logging.getLogger(__name__)


class Reloader:
    """Reads a configuration again, as often as it is asked, each time in a thread of its own: files may hang."""

    def __init__(self, replicator: Replicator, read: Callable[[], Config]) -> None:
        self._replicator = replicator
        self._started_with = replicator.config
        self._read = read
        self._one_at_a_time = threading.Lock()

    def start(self) -> None:
        """Begin to read it again. What becomes of that is logged."""
        threading.Thread(target=self.reload, name="reload", daemon=True).start()

    def reload(self) -> None:
        """Read it again, and have it in force unless it is wrong."""
        with self._one_at_a_time:
            try:
                config = self._read()
                if not self._replicator.reload(config):
                    return
            except (LitelogError, OSError, click.ClickException) as error:
                said = "the configuration was not read again; what was in force stays so: %s"
                _logger.error(said, error, extra=fields("reload-failed"))
                return
            start = self._started_with  # an earlier reload put nothing of these in force
            late = [name.replace("_", "-") for name in FIXED if getattr(start, name) != getattr(config, name)]
            if late:
                said = "the configuration's %s: what changed there is in force from the next start on"
                _logger.warning(said, ", ".join(late), extra=fields("reload-partial", keys=",".join(late)))
            _logger.info("the configuration was read again, and is in force", extra=fields("reloaded"))
