"""Named consumers of a log: each has a durable position, from which it continues after a restart."""

from litelog.consumers.consumer import Consumer

__all__ = ["Consumer"]
