"""Names of log segments that state a sequence, in all formats that have such names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litelog.errors import WrongFormatError
from litelog.formats.influxdb import InfluxdbFormat
from litelog.formats.kafka import KafkaFormat
from litelog.formats.litelog import LitelogFormat
from litelog.formats.log_format import MAX_SEQUENCE, Expectation
from litelog.formats.netlog import NetlogFormat
from litelog.formats.spacetimedb import SpacetimeDBFormat

if TYPE_CHECKING:
    from litelog.formats.numbered import NumberedFormat

FORMATS = [
    (InfluxdbFormat(), "{}"),
    (KafkaFormat(), "{:020d}.log"),
    (LitelogFormat(), "{:020d}.log"),
    (NetlogFormat(), "{:020d}.data"),
    (SpacetimeDBFormat(), "{:020d}.stdb.log"),
]


@pytest.mark.parametrize(("log_format", "name"), FORMATS)
def test_names_state_the_first_sequence_and_sort_by_it(log_format: NumberedFormat, name: str) -> None:
    sequences = [9, 0, MAX_SEQUENCE, 10]
    names = [name.format(sequence) for sequence in sequences]
    assert [log_format.first_sequence(each) for each in names] == sequences
    ordered = [name.format(sequence) for sequence in sorted(sequences)]
    assert sorted(names, key=lambda each: log_format.segment_order(each) or ()) == ordered
    log_format.check_names(names)


@pytest.mark.parametrize(("log_format", "name"), FORMATS)
def test_other_names_are_no_log_segments(log_format: NumberedFormat, name: str) -> None:
    for other in (name.format(MAX_SEQUENCE + 1), "x" + name.format(7), name.format(7) + ".tmp", "", "-1", "٣"):
        assert (other, log_format.first_sequence(other)) == (other, None)
        assert log_format.segment_order(other) is None


@pytest.mark.parametrize(("log_format", "name"), FORMATS)
def test_a_log_segment_with_another_name_is_an_error_with_its_path(log_format: NumberedFormat, name: str) -> None:
    with pytest.raises(WrongFormatError, match=f"/logs/x: .*{log_format.names.format}.*its name is not an? "):
        log_format.scan("/logs/x", memoryview(b""), 0, Expectation())  # type: ignore[attr-defined]
    assert log_format.scan(f"/logs/{name.format(7)}", memoryview(b""), 0, Expectation()).commits == 0  # type: ignore[attr-defined]
