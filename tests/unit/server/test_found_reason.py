"""Reasons that the daemon finds have the fields of the document, and can be written as UTF-8."""

from __future__ import annotations

from litelog.server.found_reason import FoundReason, escape, format_time
from litelog.server.make_report import describe_reasons
from litelog.server.report import Reason


def test_a_found_reason_has_the_fields_of_the_document() -> None:
    assert set(FoundReason._fields) == set(Reason.model_fields)
    assert {
        name: Reason.model_fields[name].default for name in FoundReason._field_defaults
    } == FoundReason._field_defaults


def test_it_becomes_a_part_of_the_document() -> None:
    found = FoundReason("lag", "lags", log="/log", command="litelog check")
    (described,) = describe_reasons([found])
    assert described.model_dump() == found._asdict()


def test_what_utf_8_cannot_hold_is_escaped_in_every_text() -> None:
    found = FoundReason("lag", "lags \udcff", log="/\udcff").escaped()
    assert (found.message, found.log, found.replica) == ("lags \\udcff", "/\\udcff", None)
    assert escape("é") == "é"


def test_times_are_iso_8601_to_the_millisecond() -> None:
    assert format_time(1_500) == "1970-01-01T00:00:00.001Z"
