"""Sizes and durations as people write and read them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litelog.units import format_count, format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0B", 0),
        ("512B", 512),
        ("64KiB", 64 << 10),
        ("16MiB", 16 << 20),
        ("16 MiB", 16 << 20),
        ("16mib", 16 << 20),
        ("1.5GiB", 3 << 29),
        ("2TiB", 2 << 40),
        ("10kB", 10_000),
        ("16", 16),
        ("64k", 64 << 10),
        ("16M", 16 << 20),
        ("10G", 10 << 30),
        ("10MB", 10_000_000),
    ],
)
def test_a_size_is_read_with_its_unit(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MiB", "-1MiB", "1.5B", "1e3B", "1 2MiB", "16MiBs", "16 iB", "٣MiB", "inf B"])
def test_an_invalid_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10s", 10),
        ("1m30s", 90),
        ("500ms", 0.5),
        ("1.5s", 1.5),
        ("2h", 7200),
        ("1d2h", 93600),
        ("0s", 0),
        ("10", 10),
        ("1.5", 1.5),
    ],
)
def test_a_duration_is_the_sum_of_its_parts(text: str, seconds: float) -> None:
    assert math.isclose(parse_duration(text), seconds)


@pytest.mark.parametrize("text", ["", "s", "-1s", "10 s x", "1e3s", "10sec", "1s,2s", "nan"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a duration"):
        parse_duration(text)


@pytest.mark.slow
@given(st.text(max_size=40))
def test_any_text_is_a_quantity_or_a_value_error_that_does_not_repeat_it(text: str) -> None:
    for parse in (parse_size, parse_duration):
        try:
            assert parse(text) >= 0
        except ValueError as error:
            assert str(error).startswith("must be")  # noqa: PT017 - either outcome is right


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 19, "1.5 MiB"), (5 << 40, "5.0 TiB")]
)
def test_sizes_are_written_for_people(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.012, "12ms"), (1.5, "1.5s"), (125, "2m05s"), (12000, "3h20m"), (367200, "4d06h")]
)
def test_durations_are_written_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 records"), (1, "1 record"), (2, "2 records"), (12345, "12,345 records")]
)
def test_a_count_is_written_with_its_plural_and_with_separators(number: int, said: str) -> None:
    assert format_count(number, "record") == said
    assert format_count(number, "anomaly", "anomalies").endswith("anomaly" if number == 1 else "anomalies")
