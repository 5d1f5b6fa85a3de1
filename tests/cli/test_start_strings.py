"""Start strings: the accepted forms and their meanings."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litelog.errors import ConfigError
from litelog.units import StartKind, StartPoint
from litelog_cli.arguments import parse_start

NOW = datetime(2026, 3, 31, 12, 0, 0, 250_000, tzinfo=UTC)


def microseconds(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("beginning", "first", "oldest", "start", " Beginning "), StartKind.BEGINNING),
        (("last", "latest"), StartKind.LAST),
        (("end", "now"), StartKind.END),
    ],
)
def test_keywords_name_start_points(words: tuple[str, ...], kind: StartKind) -> None:
    assert {parse_start(word, NOW) for word in words} == {StartPoint(kind)}


@pytest.mark.parametrize(("text", "sequence"), [("0", 0), ("42", 42), ("18446744073709551615", (1 << 64) - 1)])
def test_a_number_is_a_sequence(text: str, sequence: int) -> None:
    assert parse_start(text, NOW) == StartPoint(StartKind.SEQUENCE, sequence)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("10s", datetime(2026, 3, 31, 11, 59, 50, 250_000, tzinfo=UTC)),
        ("1m30s", datetime(2026, 3, 31, 11, 58, 30, 250_000, tzinfo=UTC)),
        ("1day", datetime(2026, 3, 30, 12, 0, 0, 250_000, tzinfo=UTC)),
        ("1month", datetime(2026, 2, 28, 12, 0, 0, 250_000, tzinfo=UTC)),
        ("2month3days", datetime(2026, 1, 28, 12, 0, 0, 250_000, tzinfo=UTC)),
        ("1y 2w 1h", datetime(2025, 3, 17, 11, 0, 0, 250_000, tzinfo=UTC)),
        ("1h1h", datetime(2026, 3, 31, 10, 0, 0, 250_000, tzinfo=UTC)),
    ],
)
def test_a_duration_is_subtracted_from_now_by_the_calendar(text: str, moment: datetime) -> None:
    assert parse_start(text, NOW) == StartPoint(StartKind.TIME, microseconds(moment))


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-21T10:00:00Z",
        "2026-11-21T10:00:00",
        "2026-11-21 10:00",
        "2026-11-21T12:00:00+02:00",
        "20261121T100000Z",
    ],
)
def test_an_iso_time_without_a_zone_is_in_utc(text: str) -> None:
    assert parse_start(text, NOW) == StartPoint(StartKind.TIME, microseconds(datetime(2026, 11, 21, 10, tzinfo=UTC)))


@pytest.mark.parametrize("text", ["", "soon", "-1", "1.5", "5 parsecs", "s10", "9999999years", "1" * 21, "٣"])
def test_the_error_for_a_malformed_place_shows_valid_ones(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_start(text, NOW)


@given(st.text(max_size=30))
def test_any_text_is_a_place_or_a_config_error(text: str) -> None:
    try:
        start = parse_start(text, NOW)
    except ConfigError as error:
        assert str(error)  # noqa: PT017 - either outcome is right
    else:
        assert start.kind in StartKind


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_time_keeps_its_microseconds(moment: datetime) -> None:
    assert parse_start(moment.isoformat(), NOW) == StartPoint(StartKind.TIME, microseconds(moment))
