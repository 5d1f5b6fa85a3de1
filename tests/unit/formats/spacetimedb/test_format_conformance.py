"""The contract of log formats, for recorded logs of both versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litelog.formats.columns import Record
from litelog.formats.conformance import LogFormatConformance
from litelog.formats.spacetimedb import SpacetimeDBFormat
from tests.builders.recorded_logs import recorded_segments
from tests.builders.stdb_log import read_slowly
from tests.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.formats import LogFormat


@pytest.mark.slow
class TestVersion1(LogFormatConformance):
    scene = "epochs"
    other_names = ("00000000000000000007.stdb.ofs", "00000000000000000007.log", "7.stdb.log", "clog.lock")

    @pytest.fixture
    def log_format(self) -> LogFormat:
        return SpacetimeDBFormat()

    @pytest.fixture
    def segments(self) -> list[tuple[str, bytes]]:
        return recorded_segments("spacetimedb", self.scene)[:2]

    def choose(self, places: Sequence[int]) -> Sequence[int]:
        return sampled(places, 8, f"damaged places of {self.scene}")

    def decode_slowly(self, name: str, data: bytes, first: int) -> list[Record]:
        return [
            Record(first, None, None, body, {"epoch": epoch, "transactions": count})
            for first, epoch, count, body, _ in read_slowly(data)
        ]


class TestVersion0(TestVersion1):
    scene = "version_0"
