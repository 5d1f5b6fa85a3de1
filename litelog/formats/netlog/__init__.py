"""The format of NetLog's topics."""

from litelog.formats.netlog.format import NetlogFormat

__all__ = ["NetlogFormat"]
