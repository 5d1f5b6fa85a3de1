"""LiveLog: what a reader in another process needs of a log that is replicated here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from litelog.log.source_position import SourcePosition
    from litelog.objects.position import Generation
    from litelog.shipping.context import LogSource


@dataclass(frozen=True, slots=True)
class LiveLog:
    """A log with an open replica."""

    source: LogSource
    pattern: str | None
    replicas: tuple[tuple[str, Mapping[str, object]], ...]
    """Their URLs and options, in the configuration's order."""
    state_dir: str
    find_start: Callable[[], tuple[Generation, SourcePosition] | None]
    """Returns the generation of the first open replica, and the position up to which it has acknowledged the log; None
    before its first sync. Any thread may call it."""
