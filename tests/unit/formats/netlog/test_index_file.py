"""NetLog's index files are made again as its server wrote them, except for the times."""

from __future__ import annotations

import numpy as np
import pytest

from litelog.formats import Expectation
from litelog.formats.capabilities import index_name, write_index
from litelog.formats.litelog import LitelogFormat
from litelog.formats.netlog import NetlogFormat
from litelog.formats.netlog.index_file import ROW, ROWS
from tests.builders.recorded_logs import recorded_segments

FORMAT = NetlogFormat()


@pytest.mark.parametrize("topic", ["plain", "sets", "gzip", "snappy"])
def test_an_index_has_the_rows_that_the_server_wrote(topic: str) -> None:
    written = dict(recorded_segments("netlog", topic, ".index"))
    for name, data in recorded_segments("netlog", topic, ".data"):
        index = index_name(FORMAT, name)
        assert index is not None
        commits = FORMAT.commits(name, memoryview(data), 0, Expectation())
        made = np.frombuffer(write_index(FORMAT, name, data[:64], commits), ROW)
        theirs = np.frombuffer(written.pop(index), ROW)
        assert np.array_equal(made["number"], theirs["number"])
        assert np.array_equal(made["place"], theirs["place"])
        assert np.array_equal(made["time"] > 0, theirs["time"] > 0)
        assert (theirs["time"].astype(int) - made["time"].astype(int)).max() < 60
    assert written == {}


def test_a_log_segment_without_room_in_the_usual_index_gets_a_larger_one() -> None:
    header = bytes.fromhex("0110 00000009") + bytes(10)
    message = bytes.fromhex("00 e8b7be43 00000001 61")
    name, data = f"{5:020d}.data", memoryview(header + message * ROWS)
    rows = np.frombuffer(write_index(FORMAT, name, header, FORMAT.commits(name, data, 0, Expectation())), ROW)
    assert len(rows) == ROWS + 1
    assert rows[-1].tolist() == (ROWS + 1, 0, len(data))
    assert rows[-2].tolist() == (ROWS, 9, len(data) - 10)


def test_only_log_segments_of_a_format_that_needs_them_have_an_index() -> None:
    assert index_name(FORMAT, f"{7:020d}.data") == f"{7:020d}.index"
    assert index_name(FORMAT, "settings.json") is None
    assert index_name(LitelogFormat(), f"{7:020d}.log") is None
