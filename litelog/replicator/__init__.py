"""Replicates logs while they grow: all logs of a configuration, in one process, with a bounded number of threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from litelog.replicator.replicator import Replicator

__all__ = ["Replicator"]


def __getattr__(name: str) -> object:
    """Import the daemon on first use: most verbs only need to find logs, or to open one."""
    if name == "Replicator":
        from litelog.replicator.replicator import Replicator  # noqa: PLC0415

        return Replicator
    raise AttributeError(name)
