"""A usage error begins with its message, in the text that Spark's workers make of it."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from litelog.errors import ConfigError, FencedError
from litelog.spark.messages import says_first
from tests.builders.spark_reading import shown_by_spark


@says_first
def fenced() -> None:
    raise FencedError("another owner has it")


@pytest.mark.parametrize("simplified", [True, False])
def test_the_first_line_is_the_message(simplified: bool) -> None:
    text = shown_by_spark(fenced, simplified=simplified)
    assert text.splitlines()[0] == "litelog.errors.FencedError: another owner has it"
    assert text.splitlines()[-1] == "litelog.errors.FencedError: another owner has it"
    assert "in fenced\n" not in text


def test_the_error_keeps_its_type_and_its_fields() -> None:
    @says_first
    def fails() -> None:
        error = ConfigError("no such option")
        error.add_note("a note")
        raise error

    with pytest.raises(ConfigError, match="no such option") as caught:
        fails()
    assert caught.value.__notes__ == ["a note"]
    assert type(caught.value).__qualname__ == "ConfigError"


def test_another_error_keeps_its_traceback() -> None:
    @says_first
    def fails() -> None:
        raise KeyError("a")

    assert "in fails\n" in shown_by_spark(fails)
