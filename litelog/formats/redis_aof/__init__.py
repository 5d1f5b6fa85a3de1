"""The format of the append-only files of Redis and Valkey."""

from litelog.formats.redis_aof.format import RedisAofFormat

__all__ = ["RedisAofFormat"]
