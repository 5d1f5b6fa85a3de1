"""Rows of Kafka's partitions as a broker's own consumer read them."""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING, Any

from litelog.formats.kafka import KafkaFormat
from litelog.stores.registry import open_store
from tests.builders.daemon_builder import Daemon
from tests.builders.log_builder import LogBuilder
from tests.builders.recorded_logs import what_was_read

if TYPE_CHECKING:
    from pathlib import Path


def consumer_rows(scene: str, topic: str, partition: int, isolation: str = "read_uncommitted") -> list[dict[str, Any]]:
    """The records of a recorded partition with the columns of Spark's Kafka source; times in milliseconds."""
    *records, _bounds = what_was_read("kafka", scene)[isolation]
    return [
        {
            "key": _decode(record["key"]),
            "value": _decode(record["value"]),
            "topic": topic,
            "partition": partition,
            "offset": record["offset"],
            "timestamp": record["timestamp"],
            "timestampType": record["timestampType"],
            "headers": [{"key": b64decode(key).decode(), "value": _decode(value)} for key, value in record["headers"]]
            or None,
        }
        for record in records
    ]


def ship_partition(folder: Path, replicas: Path) -> str:
    """Replicate a partition's folder below ``replicas``; return the replica's URL."""
    url = f"file://{replicas}/{folder.name}"
    log = LogBuilder(str(folder), KafkaFormat())
    Daemon(log, open_store(url), str(replicas.parent / f"state-{folder.name}")).sync()
    return url


def _decode(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)
