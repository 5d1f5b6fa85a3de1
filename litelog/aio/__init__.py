"""Records for services on asyncio: a reader of a log, a replica or a consumer as an asynchronous iterator."""

from litelog.aio.async_records import AsyncRecords, follow

__all__ = ["AsyncRecords", "follow"]
