"""A takeover flag authorises one claim, above the claims that were the newest when its daemon first looked.

Specified in litelog/shipping/README.md#takeover.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.objects.position import ClaimName


class Takeover:
    """One process's authority to take over one replica of one log. It lasts as long as the process.

    It is spent once the process has owned the replica. Without that bound, a daemon that was taken over in turn would
    take the replica back, and readers would not choose the generation in which the other owner acknowledged data.
    """

    def __init__(self, *, requested: bool = False) -> None:
        self.requested = self._open = requested
        self._met: frozenset[ClaimName] | None = None

    @property
    def is_open(self) -> bool:
        """Whether a takeover was requested and is not spent."""
        return self._open

    @property
    def needs_look(self) -> bool:
        """Whether the first look has not been made yet."""
        return self._open and self._met is None

    def look(self, names: Sequence[ClaimName]) -> None:
        """Record the newest claims of a listing. Only the first look counts."""
        if self._met is None:
            self._met = frozenset(name for name in names if name.epoch == names[-1].epoch)

    def allows(self, name: ClaimName) -> bool:
        """Whether the daemon may end another owner's claim of that name."""
        return self._open and self._met is not None and name in self._met

    def spend(self) -> None:
        """Spend the flag: the process owns the replica, and from now on it is fenced like any other."""
        self._open = False
