"""Each option of Spark's Kafka source and sink is accepted, or says what to use, and the documentation lists it."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("pyarrow")

from litelog.errors import ConfigError
from litelog.spark.kafka_hints import KAFKA_NAMES, kafka_hint
from litelog.spark.options import READ_OPTIONS
from litelog.spark.stream.options import STREAM_OPTIONS, parse_any_options
from tests.builders.documents import section

OF_KAFKA = (
    *("assign", "subscribe", "subscribePattern", "kafka.bootstrap.servers", "kafka.security.protocol", "topic"),
    *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
    *("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "failOnDataLoss", "includeHeaders"),
    *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition"),
    *("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
    *("groupIdPrefix", "kafka.group.id"),
)
ACCEPTED = {"earliest", "latest", "true", "1", "2026-11-21T10:00:00Z", '{"log": 17}', '{"log": 1700000000000}'}


def test_the_page_lists_each_option_once() -> None:
    rows = re.findall(r"^\| (.*?) \|", section("etc/docs/spark.md", "Coming from Kafka"), re.MULTILINE)
    cells = [cell for cell in rows if not cell.startswith("column") and "JSON" not in cell]
    listed = [name for cell in cells for name in re.findall(r"`([\w.*]+)`", cell)]
    assert len(listed) == len(set(listed))
    assert {*listed} == {*OF_KAFKA, "kafka.security.*"} - {"kafka.security.protocol"}


@pytest.mark.parametrize("name", OF_KAFKA)
def test_an_option_is_accepted_or_says_what_to_use(name: str) -> None:
    if name in {*KAFKA_NAMES, *READ_OPTIONS, *STREAM_OPTIONS}:
        assert kafka_hint(name.lower()) is None
        taken = [value for value in sorted(ACCEPTED) if _takes(name, value)]
        assert taken, name
        if ("Offsets" in name and "Trigger" not in name) or "Timestamp" in name:
            assert any(value.startswith("{") for value in taken), name
    else:
        with pytest.raises(ConfigError, match="which is Kafka's: "):
            parse_any_options({"path": "/a", name.lower(): "x"})


def _takes(name: str, value: str) -> bool:
    try:
        parse_any_options({"path": "/a", name: value})
    except ConfigError:
        return False
    return True
