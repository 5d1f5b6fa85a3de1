"""The snapshot stream of InfluxDB's broker: the broker's own is read, and ours is the same, byte for byte."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from litelog.errors import CorruptCommitError, CorruptionError, LogError, OutputExistsError, SourceMissingError
from litelog.log.broker_snapshot import BrokerTotals, SnapshotStreamError, read_broker_snapshot, write_broker_snapshot
from tests.builders.old_logs import influx_message
from tests.builders.recorded_logs import recorded_segments, unpack
from tests.sampling import sampled

if TYPE_CHECKING:
    from pathlib import Path

TOPICS = (1, 20)
((_, RECORDED),) = recorded_segments("influxdb", "snapshot", ".snapshot")
TOTALS = BrokerTotals(topics=2, segments=11, bytes=2266, index=577)


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    """The broker's folder when it wrote the recorded snapshot."""
    folder = tmp_path / "broker"
    folder.mkdir()
    for topic in TOPICS:
        unpack("influxdb", f"topic_{topic}", folder)
    (folder / "meta").write_bytes(b"the broker's own")
    (folder / "raft").mkdir()
    return folder


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(stream: bytes, tmp_path: Path) -> str:
    """What the import of a damaged stream says. It must leave nothing."""
    (tmp_path / "stream").write_bytes(stream)
    with pytest.raises((SnapshotStreamError, CorruptCommitError)) as raised:
        read_broker_snapshot(str(tmp_path / "stream"), str(tmp_path / "out"))
    assert [path.name for path in tmp_path.iterdir()] == ["stream"]
    return str(raised.value)


def test_the_stream_is_the_one_that_the_broker_wrote(broker: Path, tmp_path: Path) -> None:
    assert write_broker_snapshot(str(broker), str(tmp_path / "stream")) == TOTALS
    assert (tmp_path / "stream").read_bytes() == RECORDED
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broker", "stream"]


def test_the_brokers_stream_becomes_its_topics(broker: Path, tmp_path: Path) -> None:
    (tmp_path / "stream").write_bytes(RECORDED)
    assert read_broker_snapshot(str(tmp_path / "stream"), str(tmp_path / "out")) == TOTALS
    (broker / "meta").unlink()
    assert files_below(tmp_path / "out") == files_below(broker)


def test_a_message_that_is_being_written_is_left_out(broker: Path, tmp_path: Path) -> None:
    with (broker / "20" / "563").open("ab") as file:
        file.write(influx_message(578, b"more", topic=20)[:-1])
    assert write_broker_snapshot(str(broker), str(tmp_path / "stream")) == TOTALS
    assert (tmp_path / "stream").read_bytes() == RECORDED


def test_damage_in_a_stream_names_the_stream(tmp_path: Path) -> None:
    at = RECORDED.index((238).to_bytes(8, "big"), int.from_bytes(RECORDED[:4], "big")) + 30
    found = refused(RECORDED[:at] + bytes([RECORDED[at] ^ 1]) + RECORDED[at + 1 :], tmp_path)
    assert found.startswith(f"{tmp_path}/stream: 1/238: ")


def test_damage_is_an_error_and_leaves_nothing(broker: Path, tmp_path: Path) -> None:
    whole = (broker / "1" / "238").read_bytes()
    (broker / "1" / "238").write_bytes(whole[:50] + bytes([whole[50] ^ 1]) + whole[51:])
    with pytest.raises(CorruptCommitError, match="1/238"):
        write_broker_snapshot(str(broker), str(tmp_path / "stream"))
    (broker / "1" / "238").write_bytes(whole[:-1])
    with pytest.raises(LogError, match="1/238: its last message is not whole"):
        write_broker_snapshot(str(broker), str(tmp_path / "stream"))
    assert [path.name for path in tmp_path.iterdir()] == ["broker"]


def test_nothing_is_overwritten(broker: Path, tmp_path: Path) -> None:
    (tmp_path / "stream").write_bytes(RECORDED)
    with pytest.raises(OutputExistsError):
        write_broker_snapshot(str(broker), str(tmp_path / "stream"))
    with pytest.raises(OutputExistsError):
        read_broker_snapshot(str(tmp_path / "stream"), str(broker))
    assert (tmp_path / "stream").read_bytes() == RECORDED


def test_a_folder_that_cannot_be_made_is_named(broker: Path, tmp_path: Path) -> None:
    stream = str(tmp_path / "broker.snapshot")
    write_broker_snapshot(str(broker), stream)
    with pytest.raises(LogError, match=f"{tmp_path}/no/restored: cannot be made in {tmp_path}/no: No such file"):
        read_broker_snapshot(stream, str(tmp_path / "no" / "restored"))


def test_a_folder_without_topics_is_named(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(SourceMissingError):
            write_broker_snapshot(str(folder), str(tmp_path / "stream"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_stream_that_is_cut_anywhere_is_refused(tmp_path: Path) -> None:
    for cut in sampled(range(len(RECORDED)), 40, "cuts of a broker's snapshot"):
        assert "early" in refused(RECORDED[:cut], tmp_path)
    assert "bytes follow" in refused(RECORDED + b"x", tmp_path)


@pytest.mark.slow
def test_a_flipped_bit_of_a_stream_is_refused_or_only_raises_the_brokers_index(broker: Path, tmp_path: Path) -> None:
    (broker / "meta").unlink()
    for bit in sampled(range(0, 8 * len(RECORDED), 13), 12, "bits of a broker's snapshot"):
        flipped = bytearray(RECORDED)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        (tmp_path / "stream").write_bytes(flipped)
        try:
            totals = read_broker_snapshot(str(tmp_path / "stream"), str(tmp_path / "out"))
        except CorruptionError:
            assert not (tmp_path / "out").exists()
            continue
        assert (totals.bytes, totals.segments) == (TOTALS.bytes, TOTALS.segments)
        assert files_below(tmp_path / "out") == files_below(broker)
        shutil.rmtree(tmp_path / "out")


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"\xff\xff\xff\xff", "more than"),
        (b"\0\0\0\2[]", "not understood"),
        (b"\0\0\0\4null", "not understood"),
        (b'\0\0\0\x24{"topics":[{"id":"../a"}],"index":1} ', "not understood"),
        (b'\0\0\0\x45{"topics":[{"id":1,"segments":[{"index":1,"size":-5}]}],"index":1}    ', "not a number"),
        (b'\0\0\0\x52{"topics":[{"id":1,"segments":[{"index":1,"size":9007199254740991}]}],"index":1} ', "early"),
    ],
)
def test_a_header_that_no_broker_writes_is_refused(tmp_path: Path, header: bytes, reason: str) -> None:
    length = len(header) - 4
    fitting = header if header[0] else length.to_bytes(4, "big") + header[4:]
    assert reason in refused(fitting, tmp_path)


def test_a_stream_without_topics_is_an_empty_broker(tmp_path: Path) -> None:
    header = b'{"topics":null,"index":5}'
    (tmp_path / "stream").write_bytes(len(header).to_bytes(4, "big") + header)
    totals = read_broker_snapshot(str(tmp_path / "stream"), str(tmp_path / "out"))
    assert totals == BrokerTotals(0, 0, 0, 5)
    assert list((tmp_path / "out").iterdir()) == []
