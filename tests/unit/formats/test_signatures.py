"""A log segment of another format is recognised by its name and first bytes, and refused with the format's name."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from litelog.errors import WrongFormatError
from litelog.formats.capabilities import check_head
from litelog.formats.litelog import SegmentHeader
from litelog.formats.log_format import HEAD_BYTES
from litelog.formats.registry import open_format
from litelog.formats.signatures import SIGNATURES, recognise
from tests.builders.recorded_logs import recorded_segments

HEADS = {
    "litelog": [("00000000000000000007.log", SegmentHeader(UUID(int=1), 7, 0).encode())],
    "netlog": recorded_segments("netlog", "gzip", ".data"),
    "influxdb": recorded_segments("influxdb", "table", ""),
    "kafka": [
        segment
        for scene in ("plain_none", "plain_zstd", "transactions", "rolled")
        for segment in recorded_segments("kafka", scene, ".log")
    ],
    "redis-aof": [
        segment
        for scene in ("commands", "rewritten")
        for ending in (".aof", ".rdb")
        for segment in recorded_segments("redis_aof", scene, ending)
    ],
    "spacetimedb": [
        segment
        for scene in ("version_0", "epochs", "compressed")
        for segment in recorded_segments("spacetimedb", scene, ".stdb.log")
    ],
}  # fmt: skip


def test_each_format_of_the_table_has_log_segments_here() -> None:
    assert {signature.format for signature in SIGNATURES} == HEADS.keys()


@pytest.mark.parametrize("written", list(HEADS))
def test_a_log_segment_is_recognised(written: str) -> None:
    for name, data in HEADS[written]:
        found = recognise(name, data[:HEAD_BYTES])
        assert found is not None
        assert found.format == written


@pytest.mark.parametrize("opened", [*HEADS, "lines"])
@pytest.mark.parametrize("written", list(HEADS))
def test_a_format_refuses_what_another_ones_writer_began(written: str, opened: str) -> None:
    log_format = open_format(opened, "*" if opened == "lines" else None)
    for name, data in HEADS[written]:
        if opened == written:
            check_head(log_format, f"/logs/{name}", data[:HEAD_BYTES])
            continue
        with pytest.raises(WrongFormatError, match=f"use --format {written}"):
            check_head(log_format, f"/logs/{name}", data[:HEAD_BYTES])


def test_raw_takes_all_bytes() -> None:
    for segments in HEADS.values():
        for name, data in segments:
            check_head(open_format("raw", "*"), name, data[:HEAD_BYTES])


@pytest.mark.parametrize("name", ["app.log", "00000000000000000000.log", "00000000000000000000.data", "7", "0"])
def test_text_zeros_and_short_files_are_recognised_as_nothing(name: str) -> None:
    text = b"2026-11-21T10:00:00Z INFO a line of a log that is long enough, and more\n"
    for head in (
        text,
        bytes(HEAD_BYTES),
        b"litelog\nis a text",
        b"(ds)^2 is a text, too",
        *(text[:n] for n in range(9)),
    ):
        assert recognise(name, head[:HEAD_BYTES]) is None
    random = Random(name)
    assert [recognise(name, random.randbytes(HEAD_BYTES)) for _ in range(200)] == [None] * 200
