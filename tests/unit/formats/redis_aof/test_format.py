"""The format ``redis-aof``, over append-only files that Redis wrote: a command is a record."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from litelog.errors import ConfigError, CorruptCommitError, WrongFormatError
from litelog.formats import Expectation, LogFormat, Tail
from litelog.formats.capabilities import find_commit, ignores, removed_by_owner
from litelog.formats.columns import NAMES, Record
from litelog.formats.conformance import LogFormatConformance
from litelog.formats.record_json import record_fields
from litelog.formats.redis_aof import RedisAofFormat
from litelog.formats.redis_aof.command_columns import EXTRA_COLUMNS
from litelog.formats.redis_aof.command_walk import MAX_COMMAND_BYTES
from litelog.formats.redis_aof.format import BLOCK_BYTES
from tests.builders.recorded_logs import recorded_segments
from tests.builders.redis_server import encode
from tests.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Sequence

FORMAT: LogFormat = RedisAofFormat()
NAME = "appendonly.aof.7.incr.aof"
BASE = "appendonly.aof.7.base.rdb"
SET = encode(("SET", "k", "v"))
WITHOUT_KEY = (b"SELECT", b"MULTI", b"EXEC", b"FLUSHALL")


def read_commands(data: bytes, notes: dict[int, int] | None = None) -> list[list[bytes]]:
    """The words of each command, line by line. ``notes`` gets the seconds noted at a command, by its number."""
    found, at = list[list[bytes]](), 0
    while at < len(data):
        end = data.index(b"\r\n", at)
        line, at = data[at:end], end + 2
        if line[:1] == b"#":
            if notes is not None and line.startswith(b"#TS:"):
                notes[len(found)] = int(line[4:])
            continue
        words = []
        for _ in range(int(line[1:])):
            end = data.index(b"\r\n", at)
            length = int(data[at + 1 : end])
            words.append(data[end + 2 : end + 2 + length])
            at = end + 4 + length
        found.append(words)
    return found


def key_of(words: list[bytes]) -> bytes | None:
    place = 2 if words[0] == b"XGROUP" else 1
    return None if words[0].upper() in WITHOUT_KEY or len(words) <= place else words[place]


def scan(data: bytes, name: str = NAME, offset: int = 0, sequence: int | None = None) -> tuple[int, int, int, Tail]:
    found = FORMAT.scan(name, memoryview(data), offset, Expectation(sequence))
    return found.end, found.commits, found.records, found.tail


class Recorded(LogFormatConformance):
    has_checksums = False
    scene = ""
    other_names = (
        "appendonly.aof.manifest",
        "temp-appendonly.aof.1.incr.aof",
        "appendonly.aof.0.incr.aof",
        "appendonly.aof",
        "dump.rdb",
        f"appendonly.aof.{10**19}.incr.aof",
    )

    @pytest.fixture
    def log_format(self) -> LogFormat:
        return RedisAofFormat()

    @pytest.fixture
    def segments(self) -> list[tuple[str, bytes]]:
        return recorded_segments("redis_aof", self.scene, ".aof")

    def decode_slowly(self, name: str, data: bytes, first: int) -> list[Record]:
        found, notes = [], dict[int, int]()
        for number, words in enumerate(read_commands(data, notes)):
            extra = {"command": words[0].decode().upper(), "arguments": words[1:], "ts": notes.get(number)}
            found.append(Record(first + number, None, key_of(words), encode(tuple(words)), extra))
        return found

    def choose(self, places: Sequence[int]) -> Sequence[int]:
        return sampled(places, 8, f"redis-aof {self.scene} {len(places)}")


@pytest.mark.slow
class TestIncrements(Recorded):
    scene = "commands"


@pytest.mark.slow
class TestBaseOfCommands(Recorded):
    scene = "rewritten"


def test_a_transaction_is_one_commit_with_its_annotation() -> None:
    whole = b"#TS:1700000000\r\n" + encode(("MULTI",)) + SET + SET + encode(("EXEC",))
    (commit,) = FORMAT.commits(NAME, memoryview(whole), 0, Expectation(5))
    assert (commit.start, commit.end, commit.first, commit.next) == (0, len(whole), 5, 9)
    found = FORMAT.scan(NAME, memoryview(whole[:-1]), 0, Expectation(5))
    assert (found.end, found.commits, found.tail, found.wanted) == (0, 0, Tail.INCOMPLETE, len(whole))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_any_commands_are_found_in_windows_and_one_by_one(seed: int) -> None:
    """Words with line ends, transactions, annotations and names in any case, in more bytes than a window."""
    random = Random(seed)
    data, ends, commands = b"", [], 0

    def make_command() -> bytes:
        name = random.choice([b"SET", b"set", b"XGROUP", b"select", b"FLUSHALL", b"A-LONG-NAME", b"$3", b"*1"])
        odd = (
            [b"", b"\r\n", b"$1\r\nx", b"*2\r\n$1\r\nx\r\n", b"\n", b"\r", SET]
            if random.random() < seed / 20
            else [b"v"]
        )
        words = [random.choice(odd) + bytes(random.randrange(120)) for _ in range(random.randrange(4))]
        note = b"#TS:%d\r\n" % random.randrange(10**10) if random.random() < 0.1 else b""
        return note + encode((name, *words))

    while len(data) < 300_000:
        many = random.randrange(5) if random.random() < 0.1 else None
        if many is None:
            data += make_command()
        else:
            data += encode((b"Multi",)) + b"".join(make_command() for _ in range(many)) + encode((b"EXEC",))
        commands += 1 if many is None else many + 2
        ends.append(len(data))
    found = FORMAT.scan(NAME, memoryview(data), 0, Expectation(0))
    assert (found.end, found.commits, found.records, found.tail) == (len(data), len(ends), commands, Tail.NOTHING)
    assert [commit.end for commit in FORMAT.commits(NAME, memoryview(data), 0, Expectation(0))] == ends
    records = list(FORMAT.decode(NAME, memoryview(data), 0, Expectation(0)).records())
    assert [record.value for record in records] == [encode(tuple(words)) for words in read_commands(data)]
    assert [record.key for record in records] == [key_of(words) for words in read_commands(data)]
    for cut in random.sample(range(len(data)), 8):
        found = FORMAT.scan(NAME, memoryview(data)[:cut], 0, Expectation(0))
        assert found.end == max(end for end in (0, *ends) if end <= cut)
        assert found.tail in (Tail.INCOMPLETE, Tail.NOTHING)


NOTED = b"#TS:1700000000\r\n" + encode(("SELECT", 0)) + encode(("set", b"k", b"\r\n$3")) + encode(("MULTI",))
NOTED += b"#TS:1700000007\r\n" + encode(("INCR", b"\xff")) + encode(("EXEC",)) + encode((b"\xc3\xa9x", "last"))


def test_a_command_has_its_name_its_arguments_and_the_time_noted_at_it() -> None:
    columns = FORMAT.decode(NAME, memoryview(NOTED), 0, Expectation(0))
    expected = [
        {"command": "SELECT", "arguments": [b"0"], "ts": 1700000000},
        {"command": "SET", "arguments": [b"k", b"\r\n$3"], "ts": None},
        {"command": "MULTI", "arguments": [], "ts": None},
        {"command": "INCR", "arguments": [b"\xff"], "ts": 1700000007},
        {"command": "EXEC", "arguments": [], "ts": None},
        {"command": "??X", "arguments": [b"last"], "ts": None},
    ]
    assert [record.extra for record in columns.records()] == expected
    taken = columns.take(np.array([1, 3]))
    assert [record.extra for record in taken.records()] == [expected[1], expected[3]]
    assert record_fields(next(taken.slice(1, 2).records()))["arguments"] == [{"base64": "/w=="}]


@pytest.mark.parametrize("start", range(7))
def test_arrow_has_the_same_from_any_command_on(start: int) -> None:
    """The first one may have no key, and so may later ones."""
    pytest.importorskip("pyarrow")
    columns = FORMAT.decode(NAME, memoryview(NOTED), 0, Expectation(0))
    rows = columns.slice(start, len(columns)).to_arrow([*NAMES, *EXTRA_COLUMNS]).to_pylist()
    records = list(columns.records())[start:]
    assert [(row["key"], row["value"]) for row in rows] == [(record.key, record.value) for record in records]
    assert [{name: row[name] for name in EXTRA_COLUMNS} for row in rows] == [record.extra for record in records]


def test_a_commit_has_the_latest_time_noted_in_it() -> None:
    commits = FORMAT.commits(NAME, memoryview(NOTED), 0, Expectation(0))
    assert [commit.noted for commit in commits] == [1_700_000_000_000_000, None, 1_700_000_007_000_000, None]
    assert FORMAT.commits(NAME, memoryview(b"#TS:x\r\n#other\r\n" + SET), 0, Expectation(0))[0].noted is None


def test_the_value_is_the_command_without_its_annotation() -> None:
    data = SET + b"#TS:1700000000\r\n" + SET
    values = [record.value for record in FORMAT.decode(NAME, memoryview(data), 0, Expectation(0)).records()]
    assert values == [SET, SET]
    assert scan(SET + b"#TS:17") == (len(SET), 1, 1, Tail.INCOMPLETE)


@pytest.mark.parametrize(
    "damaged",
    [b"*x\r\n", b"*0\r\n", b"*1\r\n*1\r\nX\r\n", b"*1\r\n$1\r\nXYZ", b"+OK\r\n", b"*1\r\n$-1\r\n", b"#a\nb\r\n"],
)
def test_damage_is_a_tail_until_a_command_follows(damaged: bytes) -> None:
    assert scan(SET + damaged) == (len(SET), 1, 1, Tail.DAMAGED)
    with pytest.raises(CorruptCommitError) as raised:
        scan(SET + damaged + b"\r\n" + SET)
    assert raised.value.offset == len(SET)
    data = memoryview(SET + damaged + b"\r\n" + SET)
    assert find_commit(FORMAT, data, 0, len(SET)) == len(data) - len(SET)


def test_a_command_inside_a_value_that_is_not_whole_is_no_proof_of_damage() -> None:
    held = b"\r\n" + SET
    begun = encode(("SET", "k", held + held))[:-8]
    assert scan(SET + begun) == (len(SET), 1, 1, Tail.INCOMPLETE)


def test_a_command_that_cannot_be_shipped_is_refused_before_its_bytes_are_there() -> None:
    begun = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n" % MAX_COMMAND_BYTES
    with pytest.raises(CorruptCommitError, match=r"size of the command .*run BGREWRITEAOF .*set proto-max-bulk-len"):
        scan(SET + begun)


@pytest.mark.parametrize("size", [1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES + 88])
def test_a_base_file_in_rdb_form_counts_its_blocks_however_it_is_read(size: int) -> None:
    data = bytes(size)
    blocks = -(-size // BLOCK_BYTES)
    assert scan(data, BASE) == (size, blocks, blocks, Tail.NOTHING)
    for cut in {1, 100, BLOCK_BYTES, BLOCK_BYTES + 5} & set(range(1, size)):
        head = FORMAT.scan(BASE, memoryview(data)[:cut], 0, Expectation())
        rest = FORMAT.scan(BASE, memoryview(data)[cut:], cut, head.expectation)
        assert (rest.end, rest.next, head.records + rest.records) == (size, blocks, blocks)
        commits = FORMAT.commits(BASE, memoryview(data)[cut:], cut, head.expectation)
        assert (commits[0].start, commits[-1].end, commits[-1].next, len(commits)) == (cut, size, blocks, rest.commits)
    assert len(FORMAT.decode(BASE, memoryview(data), 0, Expectation())) == 0


def test_the_file_of_an_older_redis_and_a_folder_of_two_logs_are_refused() -> None:
    with pytest.raises(ConfigError, match="before 7"):
        FORMAT.check_names(["appendonly.aof", "dump.rdb"])
    with pytest.raises(ConfigError, match="holds one append-only file"):
        FORMAT.check_names(["a.manifest", "b.manifest"])
    FORMAT.check_names(["appendonly.aof.manifest", NAME, BASE, "temp-rewriteaof-1.aof"])


def test_other_files_of_the_writer_are_known() -> None:
    assert ignores(FORMAT, "temp-rewriteaof-bg-77.aof")
    assert not ignores(FORMAT, "notes.txt")
    assert removed_by_owner(FORMAT)
    with pytest.raises(WrongFormatError, match="not that of a base or incremental file"):
        FORMAT.scan("appendonly.aof", memoryview(SET), 0, Expectation())
