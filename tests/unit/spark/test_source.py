"""A usage error of the data source begins with its message."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import BinaryType, StructField, StructType

from litelog.errors import ConfigError
from litelog.spark.source import LitelogSource
from litelog_cli.task_errors import find_task_error
from tests.builders.spark_reading import shown_by_spark

VALUE = StructType([StructField("value", BinaryType())])


@pytest.mark.parametrize("call", ["schema", "reader", "streamReader", "writer", "streamWriter"])
def test_a_usage_error_begins_with_its_message(call: str) -> None:
    source = LitelogSource({"path": "/nowhere", "mod": "x"})
    arguments = {"schema": (), "writer": (VALUE, False), "streamWriter": (VALUE, False)}.get(call, (VALUE,))
    text = shown_by_spark(lambda: getattr(source, call)(*arguments))
    first = text.splitlines()[0]
    assert first.startswith("litelog.errors.ConfigError: ")
    assert "has no option 'mod'" in first
    found = find_task_error(f"[PYTHON_DATA_SOURCE_ERROR] Failed: {text}")
    assert f"litelog.errors.ConfigError: {found}" == first


def test_a_wrong_path_is_a_usage_error() -> None:
    text = shown_by_spark(LitelogSource({"path": "/nowhere"}).schema)
    assert text.splitlines()[0] == "litelog.errors.NothingToRestoreError: /nowhere: no such folder"


def test_a_usage_error_of_a_running_stream_begins_with_its_message() -> None:
    reader = LitelogSource({"path": "memory://spark-messages/a*"}).streamReader(VALUE)
    text = shown_by_spark(lambda: reader.partitions({}, {"version": 1}))
    assert text.splitlines()[0].startswith("litelog.errors.ConfigError: the stream's checkpoint has no valid")


def test_java_is_asked_for_in_a_session_without_its_jar() -> None:
    options = {"path": "/nowhere", "engine": "java"}
    with pytest.raises(ConfigError, match=r"without the columnar reader.*litelog spark jar"):
        LitelogSource(options).reader(VALUE)
    LitelogSource({**options, "engine": "python"}).reader(VALUE)
    with pytest.raises(ConfigError, match="engine='scala' must be python or java"):
        LitelogSource({**options, "engine": "scala"}).reader(VALUE)
