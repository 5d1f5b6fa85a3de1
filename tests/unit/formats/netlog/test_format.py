"""The format ``netlog``, over topics that NetLog's server wrote: each message is a record, also inside a set."""

from __future__ import annotations

import gzip
import struct
import sys
import tracemalloc
import zlib
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ConfigError, CorruptCommitError, SequenceGapError, WrongFormatError
from litelog.formats import MAX_COMMIT_BYTES, Expectation, FinishedTail, LogFormat, Tail
from litelog.formats.capabilities import first_sequence, ignores, removed_by_owner, side_files
from litelog.formats.columns import Record
from litelog.formats.conformance import LogFormatConformance
from litelog.formats.netlog import NetlogFormat
from tests.builders.child import runs_in_child
from tests.builders.old_logs import NETLOG_HEADER, netlog_message
from tests.builders.recorded_logs import recorded_segments, what_was_read
from tests.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPICS = ("plain", "sets", "gzip", "snappy")
FORMAT: LogFormat = NetlogFormat()
NAME = "00000000000000000007.data"
BEGINNING = Expectation()


def decode(data: bytes, offset: int = 0, expect: Expectation = BEGINNING, name: str = NAME) -> list[Record]:
    return list(FORMAT.decode(name, memoryview(data), offset, expect).records())


def unframe(stream: bytes) -> bytes:
    """The content of a stream of snappy, byte by byte as its description says."""
    at, content = 10, b""
    while at < len(stream):
        kind, end = stream[at], at + 4 + int.from_bytes(stream[at + 1 : at + 4], "little")
        body = stream[at + 8 : end]
        content += body if kind == 1 else unsnap(body)
        at = end
    return content


def unsnap(block: bytes) -> bytes:
    """The content of a block of snappy: literals and copies."""
    at, content = 0, bytearray()
    while block[at] & 0x80:
        at += 1
    at += 1
    while at < len(block):
        tag, kind = block[at], block[at] & 3
        at += 1
        if kind == 0:
            length = tag >> 2
            if length >= 60:
                width = length - 59
                length = int.from_bytes(block[at : at + width], "little")
                at += width
            content += block[at : at + length + 1]
            at += length + 1
            continue
        width = (0, 1, 2, 4)[kind]
        back = int.from_bytes(block[at : at + width], "little")
        at += width
        length = (tag >> 2 & 7) + 4 if kind == 1 else (tag >> 2) + 1
        back += (tag >> 5 << 8) if kind == 1 else 0
        for _ in range(length):
            content.append(content[-back])
    return bytes(content)


def decode_messages(data: bytes) -> list[bytes]:
    payloads, at = [], 0
    while at < len(data):
        codec, checksum, length = struct.unpack_from(">BII", data, at)
        payload = data[at + 9 : at + 9 + length]
        assert zlib.crc32(payload) == checksum
        if codec == 0:
            payloads.append(payload)
        else:
            unpack = {1: bytes, 2: gzip.decompress, 3: unframe}[codec]
            payloads += decode_messages(unpack(payload))
        at += 9 + length
    return payloads


class Recorded(LogFormatConformance):
    topic = ""
    other_names = ("7.data", "00000000000000000007.index", f"{1 << 63:020d}.data", "settings.json", "readers")

    @pytest.fixture
    def log_format(self) -> LogFormat:
        return NetlogFormat()

    @pytest.fixture
    def segments(self) -> list[tuple[str, bytes]]:
        return recorded_segments("netlog", self.topic, ".data")[2:4]

    def decode_slowly(self, name: str, data: bytes, first: int) -> list[Record]:
        payloads = decode_messages(data[16:])
        return [Record(number, None, None, payload) for number, payload in enumerate(payloads, int(name[:20]))]

    def is_unchecked(self, name: str, data: bytes, place: int) -> bool:
        return 2 <= place < 6  # when the log segment was created

    def choose(self, places: Sequence[int]) -> Sequence[int]:
        return sampled(places, 3, f"netlog {self.topic} {len(places)}")


@pytest.mark.slow
class TestPlain(Recorded):
    topic = "plain"


@pytest.mark.slow
class TestSets(Recorded):
    topic = "sets"


@pytest.mark.slow
class TestGzip(Recorded):
    topic = "gzip"


@pytest.mark.slow
class TestSnappy(Recorded):
    topic = "snappy"


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_is_read_as_its_server_read_it(topic: str) -> None:
    records: list[Record] = []
    expect = Expectation()
    for name, data in recorded_segments("netlog", topic, ".data"):
        scan = FORMAT.scan(name, memoryview(data), 0, expect)
        records += decode(data, expect=expect, name=name)
        expect = scan.expectation
    read = what_was_read("netlog", topic)
    assert [record.value.hex() for record in records] == read["payloads"]
    assert [record.sequence for record in records] == list(range(len(records)))


def test_messages_and_sets_are_laid_out_as_described() -> None:
    assert netlog_message(b"hello").hex() == "003610a6860000000568656c6c6f"
    packed = netlog_message(netlog_message(b"a") + netlog_message(b"bc"), 1)
    assert packed.hex() == "0152f4f8080000001500e8b7be43000000016100c2a92b38000000026263"
    records = decode(NETLOG_HEADER + netlog_message(b"hello") + packed)
    assert [(record.sequence, record.value) for record in records] == [(7, b"hello"), (8, b"a"), (9, b"bc")]


def test_a_start_inside_a_set_is_exact() -> None:
    data = memoryview(
        NETLOG_HEADER
        + netlog_message(netlog_message(b"a") + netlog_message(b"bc") + netlog_message(b"d"), 1)
        + netlog_message(b"e")
    )
    columns = FORMAT.decode(NAME, data, 0, BEGINNING)
    part = columns.slice(columns.find(8), len(columns))
    assert [record.value for record in part.records()] == [b"bc", b"d", b"e"]
    commits = FORMAT.commits(NAME, data, 0, BEGINNING)
    assert [(commit.first, commit.next) for commit in commits] == [(7, 10), (10, 11)]


@pytest.mark.parametrize("topic", TOPICS)
def test_records_know_where_their_messages_lie(topic: str) -> None:
    name, data = recorded_segments("netlog", topic, ".data")[1]
    columns = FORMAT.decode(name, memoryview(data), 0, BEGINNING)
    commits = FORMAT.commits(name, memoryview(data), 0, BEGINNING)
    owners = [next(each for each in commits if each.first <= n < each.next) for n in columns.sequences.tolist()]
    places = zip(columns.places.tolist(), owners, strict=True)
    assert all(owner.start <= place < owner.end for place, owner in places)


def test_a_torn_set_is_not_yet_though_it_holds_whole_messages() -> None:
    whole = (
        NETLOG_HEADER
        + netlog_message(b"first")
        + netlog_message(netlog_message(b"a" * 30) + netlog_message(b"b" * 30), 1)
    )
    for cut in range(len(NETLOG_HEADER) + 14 + 1, len(whole)):
        scan = FORMAT.scan(NAME, memoryview(whole[:cut]), 0, BEGINNING)
        assert (scan.commits, scan.tail) == (1, Tail.INCOMPLETE)


def test_a_torn_message_that_holds_messages_is_not_yet() -> None:
    torn = NETLOG_HEADER + netlog_message(netlog_message(b"inner" * 9) * 3 + b"rest")[:-4]
    assert FORMAT.scan(NAME, memoryview(torn), 0, BEGINNING).tail is Tail.INCOMPLETE


@pytest.mark.parametrize("length", [3, 60, 1 << 20, MAX_COMMIT_BYTES, 0xFFFF_FFFF])
def test_a_damaged_length_is_named_with_the_one_that_the_checksum_shows(length: int) -> None:
    data = bytearray(
        NETLOG_HEADER + netlog_message(b"first") + netlog_message(b"second") + netlog_message(b"third") * 9
    )
    struct.pack_into(">I", data, 16 + 14 + 5, length)
    with pytest.raises(CorruptCommitError) as raised:
        FORMAT.scan(f"/logs/{NAME}", memoryview(data), 0, BEGINNING)
    found = raised.value
    assert (found.path, found.offset, found.what) == (f"/logs/{NAME}", 30, "length")
    assert (found.expected, found.actual) == (6, length)


def test_a_set_that_its_codec_calls_a_message_is_damage() -> None:
    inner = netlog_message(b"one") + netlog_message(b"two")
    for payload in (inner, gzip.compress(inner)):
        with pytest.raises(CorruptCommitError, match="codec"):
            decode(NETLOG_HEADER + netlog_message(payload) + netlog_message(b"next"))
    others = (netlog_message(b"one"), gzip.compress(b"text"), gzip.compress(inner)[:-1], inner + b"x", bytes(18))
    for payload in others:
        assert decode(NETLOG_HEADER + netlog_message(payload))[0].value == payload


def test_a_codec_that_does_not_exist_is_damage() -> None:
    for codec in (4, 15, 16, 0xF1):
        with pytest.raises(CorruptCommitError, match="codec"):
            decode(NETLOG_HEADER + netlog_message(b"one", codec))


@pytest.mark.parametrize(
    ("codec", "payload", "fault"),
    [
        (1, b"no message", "in the last"),
        (1, netlog_message(b"a") + bytes(8), "after the last message"),
        (2, b"text", "not a gzip"),
        (2, gzip.compress(netlog_message(b"a"), mtime=0)[:-1], "does not end"),
        (2, gzip.compress(netlog_message(b"a"), mtime=0) + b"x", "does not end"),
        (2, gzip.compress(b"", mtime=0), "without messages"),
        (3, b"text", "stream identifier"),
        (3, bytes.fromhex("ff060000734e61507059"), "without messages"),
        (3, bytes.fromhex("ff060000734e61507059 00100000"), "ends at"),
    ],
)
def test_a_set_that_does_not_hold_messages_is_corrupt(codec: int, payload: bytes, fault: str) -> None:
    with pytest.raises(CorruptCommitError, match=fault) as raised:
        decode(NETLOG_HEADER + netlog_message(b"first") + netlog_message(payload, codec))
    assert raised.value.offset == 30


@pytest.mark.slow
@runs_in_child
def test_a_set_that_would_take_too_much_memory_is_refused() -> None:
    bomb = NETLOG_HEADER + netlog_message(gzip.compress(bytes(3 * MAX_COMMIT_BYTES)), 2)
    tracemalloc.start()
    with pytest.raises(CorruptCommitError, match="more than"):
        decode(bomb)
    assert tracemalloc.get_traced_memory()[1] < 3 * MAX_COMMIT_BYTES
    tracemalloc.stop()


def test_an_empty_message_is_never_a_commit_as_zeros_look_like_it() -> None:
    scan = FORMAT.scan(NAME, memoryview(NETLOG_HEADER + netlog_message(b"a") + bytes(900)), 0, BEGINNING)
    assert (scan.commits, scan.end, scan.tail) == (1, 26, Tail.ZEROS)
    with pytest.raises(CorruptCommitError, match="length"):
        decode(NETLOG_HEADER + netlog_message(b"a") + bytes(18) + netlog_message(b"b"))


def test_a_damaged_header_is_not_yet_alone_and_corrupt_before_a_message() -> None:
    for place in (0, 1, 6, 15):
        head = bytearray(NETLOG_HEADER)
        head[place] ^= 4
        assert FORMAT.scan(NAME, memoryview(head), 0, BEGINNING).tail is Tail.DAMAGED
        with pytest.raises(CorruptCommitError, match="segment header"):
            decode(bytes(head) + netlog_message(b"a"))
    assert FORMAT.scan(NAME, memoryview(NETLOG_HEADER[:9]), 0, BEGINNING).tail is Tail.INCOMPLETE


def test_a_log_segment_that_does_not_continue_is_a_gap() -> None:
    with pytest.raises(SequenceGapError):
        decode(NETLOG_HEADER + netlog_message(b"a"), expect=Expectation(6))
    with pytest.raises(WrongFormatError):
        decode(NETLOG_HEADER + netlog_message(b"a"), name="7.data")
    with pytest.raises(CorruptCommitError, match="sequence"):
        decode(NETLOG_HEADER + netlog_message(b"a") * 2, name=f"{(1 << 63) - 2:020d}.data")


def test_snappy_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    name, data = recorded_segments("netlog", "snappy", ".data")[0]
    with pytest.raises(ConfigError, match="netlog"):
        FORMAT.scan(name, memoryview(data), 0, BEGINNING)


def test_the_server_owns_its_files() -> None:
    assert FORMAT.finished_tail is FinishedTail.ERROR
    assert removed_by_owner(FORMAT)
    assert first_sequence(FORMAT, NAME) == 7
    names = [NAME, "00000000000000000007.index", "settings.json", "other"]
    assert side_files(FORMAT, names) == ["settings.json"]
    assert [name for name in names if ignores(FORMAT, name)] == ["00000000000000000007.index"]
