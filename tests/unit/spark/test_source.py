"""A usage error of the data source begins with its message, in the text that Spark's workers make of it."""

from __future__ import annotations

from traceback import TracebackException

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import BinaryType, StructField, StructType

from litelog.errors import ConfigError, FencedError
from litelog.spark.source import LitelogSource, says_first
from litelog_cli.task_errors import find_task_error

VALUE = StructType([StructField("value", BinaryType())])


def shown(error: BaseException) -> str:
    """The text that a worker sends for an error (pyspark.util.handle_worker_exception)."""
    return "".join(TracebackException(type(error), error, error.__traceback__, compact=True).format())


@pytest.mark.parametrize("call", ["schema", "reader", "streamReader", "writer"])
def test_a_usage_error_begins_with_its_message(call: str) -> None:
    source = LitelogSource({"path": "/nowhere", "mod": "x"})
    arguments = {"schema": (), "writer": (VALUE, False)}.get(call, (VALUE,))
    with pytest.raises(ConfigError, match="no option 'mod'") as caught:
        getattr(source, call)(*arguments)
    text = shown(caught.value)
    assert text.splitlines()[0] == f"litelog.errors.ConfigError: {caught.value}"
    found = find_task_error(f"[PYTHON_DATA_SOURCE_ERROR] Failed: {text}")
    assert str(found) == str(caught.value)


def test_the_error_keeps_its_type_and_loses_its_frames() -> None:
    @says_first
    def fenced() -> None:
        raise FencedError("another owner has it")

    with pytest.raises(FencedError, match="another owner has it") as caught:
        fenced()
    assert "in fenced\n" not in shown(caught.value)


def test_another_error_keeps_its_traceback() -> None:
    @says_first
    def fails() -> None:
        raise KeyError("a")

    with pytest.raises(KeyError) as caught:
        fails()
    assert "in fails\n" in shown(caught.value)
