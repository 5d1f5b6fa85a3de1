"""A log's identity, and where a log holds what another generation shipped."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from litelog.codec.checksum import crc32c
from litelog.errors import SourceMissingError
from litelog.formats.litelog import segment_name
from litelog.shipping.log_identity import ShippedEnd, find_shift, read_log_id
from tests.builders.log_builder import LOG_ID, LogBuilder, make_log
from tests.builders.log_following import WITHOUT_GARBAGE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.builders.manual_clock import ManualClock


@pytest.fixture
def log(request: pytest.FixtureRequest, tmp_path: Path) -> LogBuilder:
    """A log without log segments."""
    return make_log(tmp_path / "log", getattr(request, "param", "litelog"))


@WITHOUT_GARBAGE
def test_a_shift_is_found_if_the_log_holds_the_shipped_bytes(log: LogBuilder, clock: ManualClock) -> None:
    names = [log.roll(2) for _ in range(3)]
    end, crc = len(log.texts[names[2]]), crc32c(log.texts[names[2]])

    shipped = ShippedEnd(names[2], 2, end, crc, 0, hashlib.sha256(log.texts[names[2]]).hexdigest(), final=False)

    def shift(index: int, **other: Any) -> int | None:
        return find_shift(log.folder, log.format, clock, replace(shipped, index=index, **other))

    assert (shift(2), shift(7), shift(0)) == (0, -5, 2)
    assert shift(2, final=True) == 0
    log.append(1)
    assert (shift(2), shift(2, final=True)) == (0, None)
    assert shift(2, crc_total=crc ^ 1) is None
    assert shift(2, check_digest="0" * 64) is None
    assert shift(2, check_start=None, check_digest=None) == 0
    assert shift(2, end=1 << 30) is None
    log.delete(names[0])
    assert shift(2) == -1
    log.delete(names[2])
    assert shift(2) is None


@pytest.mark.slow
def test_a_log_id_comes_from_the_first_log_segment_that_has_a_header(log: LogBuilder, clock: ManualClock) -> None:
    with pytest.raises(SourceMissingError):
        read_log_id(log.folder, log.format, clock)
    log.name = segment_name(0)
    log.write(log.header()[:20])
    assert read_log_id(log.folder, log.format, clock) is None
    log.next = 5
    log.roll(1)
    assert read_log_id(log.folder, log.format, clock) == LOG_ID
