"""litelog recovers the error that a Spark task raised from the text of Spark's error."""

from __future__ import annotations

import pytest

from litelog.errors import ExitCode
from litelog_cli.task_errors import find_task_error

TRACE = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "litelog/objects/wal_segment.py", line 119, in pieces
    raise ValueError(text)
ValueError: litelog is no such thing

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "litelog/spark/scan/decoding.py", line 50, in read_partition
    yield from _read_part(part, builder)
{raised}
log bad, generation 00000001c36dbe1f
 SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1097)
"""


@pytest.mark.parametrize(
    ("raised", "message", "code"),
    [
        ("litelog.errors.CorruptObjectError: wal/0: bad: frame", "wal/0: bad: frame", ExitCode.CORRUPTION),
        ("litelog.errors.WrongFormatError: a: not a log", "a: not a log", ExitCode.FAILURE),
        ("litelog.spark.sink.plan.OvertakenError: r: begun", "r: begun", ExitCode.FENCED),
        ("pyspark.X: cannot call: litelog.errors.NothingToRestoreError: none", "none", ExitCode.NOTHING_TO_RESTORE),
    ],
)
def test_a_litelog_error_is_found_in_a_trace(raised: str, message: str, code: ExitCode) -> None:
    found = find_task_error(TRACE.format(raised=raised))
    assert found is not None
    assert (str(found), found.exit_code) == (message, code)


@pytest.mark.parametrize("raised", ["KeyError: 5", "litelog.errors.NoSuchError: a", "litelog.nowhere.SomeError: a"])
def test_other_errors_are_not_found(raised: str) -> None:
    assert find_task_error(TRACE.format(raised=raised)) is None
