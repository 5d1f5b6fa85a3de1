"""Sealing: the object holds exactly the log segment, and bytes that break a promise never become an object."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
import weakref
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litelog.codec.checksum import crc32c
from litelog.codec.frame_codecs import Compression
from litelog.codec.joint_sha256 import WAITING_BYTES
from litelog.codec.lz4_frames import MAX_EXPANSION
from litelog.errors import CorruptCommitError, DivergedError, NotFoundError, SequenceGapError, SourceError
from litelog.formats import MAX_COMMIT_BYTES, Expectation, FinishedTail
from litelog.formats.litelog import LitelogFormat
from litelog.objects.frame_table import ShipTimes
from litelog.objects.layout import sealed_key
from litelog.objects.sealed_encoding import MOST_AHEAD, Sealing
from litelog.stores.object_store import ObjectReplicaClient
from litelog.system.buffers import AHEAD
from replica_clients.memory import MemoryStore
from tests.builders.child import in_child, runs_in_child
from tests.builders.log_builder import SECOND, make_log
from tests.builders.seal_builder import GENERATION, SHIPPED, finished, footer_of, sealing, unseal
from tests.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.builders.log_builder import LogBuilder

KEY = sealed_key(GENERATION, 3)
FRAME = 1024
"""Bytes of a frame in these tests."""

FORMATS = st.sampled_from(["litelog", "lines", "raw", "spacetimedb", "netlog", "influxdb"])
SIZES = st.lists(st.integers(1, 300) | st.integers(800, 3000) | st.integers(4000, 9000), max_size=25)


def built(folder: object, name: str, sizes: list[int]) -> LogBuilder:
    """A log of one log segment with commits of these sizes."""
    log = make_log(folder, name)
    log.roll(0)
    for size in sizes:
        log.append(1, size)
    return log


@pytest.mark.slow
@given(FORMATS, SIZES, st.booleans(), st.sampled_from(Compression))
def test_a_sealed_segment_holds_the_bytes_of_the_log_segment(
    name: str, sizes: list[int], promised: bool, compression: Compression
) -> None:
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        log = built(folder, name, sizes)
        data = log.texts[log.name] if sizes else b""
        log.texts[log.name] = data
        crc = crc32c(data) if promised else None
        made = sealing(log, pool, FRAME, compression, crc=crc)
        body = b"".join(made)
        assert body == b"".join(made) == b"".join(sealing(log, None, FRAME, compression, crc=crc))
        footer, found = unseal(KEY, body, log.format)
    assert found == data
    assert made.footer == footer
    assert footer.codec is compression.codec
    assert made.size == len(body)
    assert (footer.length, footer.crc, footer.digest) == (len(data), crc32c(data), hashlib.sha256(data).hexdigest())
    commits = log.format.commits(log.name, memoryview(data), 0, Expectation(0))
    if name == "raw":
        assert (footer.first, footer.next) == ((0, len(data)) if data else (None, 0))
    else:
        assert footer.records == len(commits)
        assert (footer.first, footer.next) == ((0, len(sizes)) if sizes else (None, 0))
    if name == "litelog" and sizes:
        assert (footer.lowest, footer.highest) == (0, (len(sizes) - 1) * SECOND)
    else:
        assert (footer.lowest, footer.highest) == (None, None)


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(st.sampled_from(["litelog", "lines"]), SIZES)
def test_frames_end_where_commits_end_and_state_their_content(name: str, sizes: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = built(folder, name, sizes)
        log.texts[log.name] = log.texts[log.name] if sizes else b""
        data = log.texts[log.name]
        made = sealing(log, None, FRAME)
        assert len(b"".join(made)) == made.size
        frames = made.footer.frames
    commits = log.format.commits(log.name, memoryview(data), 0, Expectation(0))
    ends = {commit.end for commit in commits}
    assert [number for number in range(len(frames)) if frames[number].end not in ends] == list(frames.inner)
    for run in frames.runs():
        start, end = frames[run.start].offset, frames[run.stop - 1].end
        held = [commit for commit in commits if start <= commit.start < end]
        assert sum(commit.next - commit.first for commit in held) == frames[run.start].records
        assert frames[run.start].first == held[0].first
        if name == "litelog":
            assert frames[run.start].lowest == min(commit.lowest or 0 for commit in held)
            assert frames[run.start].highest == max(commit.highest or 0 for commit in held)
        if len(run) > 1:
            assert end - start > 4 * FRAME  # a cut lies inside a commit only if no frame can hold the commit
    assert all(length <= 4 * FRAME for length in frames.lengths)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "compression"),
    [
        *((name, Compression.LZ4) for name in ("litelog", "lines", "raw", "spacetimedb", "netlog", "influxdb")),
        ("lines", Compression.LZ4HC),
        ("litelog", Compression.ZSTD),
        ("lines", Compression.ZSTD),
    ],
)
def test_the_codecs_own_command_gives_the_log_segment(tmp_path: Path, name: str, compression: Compression) -> None:
    command = str(compression.codec)
    if shutil.which(command) is None:
        pytest.skip(f"{command} is not installed")

    def check() -> None:
        for sizes in ([], [10] * 40, [900, 20_000, 3], [2_500_000, 6_000_000, 70]):
            log = built(tmp_path / f"{len(sizes)}", name, sizes)
            log.texts[log.name] = log.texts[log.name] if sizes else b""
            body = b"".join(sealing(log, compression=compression))
            (tmp_path / "0.segment.lz4").write_bytes(body)
            shown = subprocess.run([command, "-dc", tmp_path / "0.segment.lz4"], capture_output=True, check=True)
            assert shown.stdout == log.texts[log.name]
            subprocess.run([command, "-tq", tmp_path / "0.segment.lz4"], check=True)

    in_child(check)  # it takes much memory


@pytest.mark.parametrize("compression", Compression)
def test_an_object_is_never_smaller_than_a_snapshot_may_state(tmp_path: Path, compression: Compression) -> None:
    log = built(tmp_path, "raw", [2_500_000])
    log.texts[log.name] = bytes(len(log.texts[log.name]))
    made = sealing(log, compression=compression)
    body = b"".join(made)
    assert all(MAX_EXPANSION * size >= held for size, held in zip(*_columns(made), strict=True))
    assert len(body) < len(log.texts[log.name]) / 200
    assert unseal(KEY, body, log.format)[1] == log.texts[log.name]


def _columns(made: Sealing) -> tuple[Sequence[int], Sequence[int]]:
    return made.footer.frames.sizes, made.footer.frames.lengths


@pytest.mark.slow
@pytest.mark.parametrize("name", ["litelog", "lines"])
@runs_in_child
def test_a_commit_larger_than_a_frame_is_a_run_of_frames(tmp_path: Path, name: str) -> None:
    log = built(tmp_path, name, [10, 9 << 20, 10])
    body = b"".join(sealing(log))
    footer, found = unseal(KEY, body, log.format)
    assert found == log.texts[log.name]
    assert footer.records == 3
    runs = [len(run) for run in footer.frames.runs()]
    assert max(runs) >= 9
    assert len(footer.frames.inner) == sum(runs) - len(runs)
    inside = footer.frames.at_offset(5 << 20)
    assert footer.frames.run_of(inside) == footer.frames.run_of(footer.frames.at_sequence(1))


def test_the_footer_says_whose_it_is_as_the_claim_does(tmp_path: Path) -> None:
    log = built(tmp_path, "litelog", [3])
    claim = finished(log).claim
    footer = footer_of(KEY, b"".join(sealing(log)))
    assert (footer.log, footer.format, footer.generation, footer.owner) == (
        claim.log,
        claim.format,
        claim.generation,
        claim.owner,
    )


@pytest.mark.slow
def test_the_largest_commit_is_sealed(tmp_path: Path) -> None:
    def seal() -> None:
        log = make_log(tmp_path, "lines")
        log.roll(0)
        log.write(b"short\n" + b"x" * (MAX_COMMIT_BYTES - 1) + b"\n" + b"short\n" * 9)
        footer, found = unseal(KEY, b"".join(sealing(log)), log.format)
        assert found == log.texts[log.name]
        assert footer.records == 11

    in_child(seal)


def test_an_object_knows_when_its_bytes_were_shipped(tmp_path: Path) -> None:
    log = built(tmp_path, "lines", [100] * 10)
    marks = ShipTimes((101, 505), (SHIPPED - 9, SHIPPED - 5))
    covered = footer_of(KEY, b"".join(sealing(log, marks=marks))).marks
    assert covered == ShipTimes((101, 505, 1010), (SHIPPED - 9, SHIPPED - 5, SHIPPED))
    whole = ShipTimes((101, 1010), (SHIPPED - 9, SHIPPED - 5), exact=False)
    assert footer_of(KEY, b"".join(sealing(log, marks=whole))).marks == whole
    assert footer_of(KEY, b"".join(sealing(log))).shipped == (SHIPPED, SHIPPED)
    ahead = ShipTimes((101,), (SHIPPED + 7,))  # a clock that went back makes no mark go back
    assert footer_of(KEY, b"".join(sealing(log, marks=ahead))).marks.times == (SHIPPED + 7, SHIPPED + 7)


def assert_no_object(made: Sealing, kind: type[Exception], match: str) -> None:
    """Check that the put raises, that no object exists after it, and that it has no footer."""
    client = ObjectReplicaClient(MemoryStore())
    with pytest.raises(kind, match=match):
        client.write_sealed_segment(GENERATION, 3, made)
    assert list(client.sealed_segments(GENERATION)) == []
    with pytest.raises(NotFoundError):
        client.read_sealed_segment(GENERATION, 3, 0, 1)
    with pytest.raises(ValueError, match="not iterated"):
        _ = made.footer


def test_other_bytes_than_were_shipped_are_refused(tmp_path: Path) -> None:
    log = built(tmp_path, "raw", [100] * 20)
    crc = crc32c(log.texts[log.name])
    log.texts[log.name] = log.texts[log.name].replace(b"r7", b"R7")
    assert_no_object(sealing(log, crc=crc), DivergedError, "not those that were shipped")


def test_a_log_segment_that_was_cut_is_refused(tmp_path: Path) -> None:
    log = built(tmp_path, "litelog", [100] * 20)
    length = len(log.texts[log.name])
    log.texts[log.name] = log.texts[log.name][:-1]
    for crc in (None, 5):
        made = sealing(log, frame_bytes=FRAME, length=length, crc=crc)
        assert_no_object(made, DivergedError, f"cut from {length} bytes to {length - 1}")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    log = built(tmp_path, "litelog", [100] * 20)

    def read(offset: int, length: int) -> bytes:
        if offset:
            raise OSError(5, "Input/output error")
        return log.texts[log.name][:length]

    made = Sealing(finished(log, path=f"/log/{log.name}"), read, log.format, frame_bytes=FRAME)
    assert_no_object(made, SourceError, r"^/log/0{20}.log: cannot be read at \d+: Input/output error$")


def test_a_damaged_commit_is_refused(tmp_path: Path) -> None:
    log = built(tmp_path, "litelog", [100] * 20)
    data = bytearray(log.texts[log.name])
    data[500] ^= 1
    log.texts[log.name] = bytes(data)
    for crc in (None, crc32c(data)):
        assert_no_object(sealing(log, crc=crc), CorruptCommitError, "corrupt commit at offset")


def test_a_gap_before_it_is_refused(tmp_path: Path) -> None:
    log = make_log(tmp_path, "litelog")
    log.next = 5
    log.roll(3)
    assert_no_object(sealing(log, expect=Expectation(4)), SequenceGapError, "sequence 5 follows, expected 4")
    assert footer_of(KEY, b"".join(sealing(log, expect=Expectation()))).first == 5


def test_a_torn_end_is_an_error_where_writers_leave_none(tmp_path: Path) -> None:
    log = built(tmp_path, "litelog", [100] * 20)
    log.texts[log.name] += log.commit(100)[:-3]
    for crc in (None, crc32c(log.texts[log.name])):
        for frame_bytes in (FRAME, 1 << 20):
            made = sealing(log, None, frame_bytes, length=len(log.texts[log.name]), crc=crc)
            assert_no_object(made, CorruptCommitError, "corrupt commit at offset")


@pytest.mark.parametrize("name", ["litelog", "lines"])
@pytest.mark.parametrize("zeros", [1, 3 * FRAME, 300 * FRAME])
def test_preallocated_bytes_are_left_out(tmp_path: Path, name: str, zeros: int) -> None:
    log = built(tmp_path, name, [100] * 20)
    data = log.texts[log.name]
    log.texts[log.name] += bytes(zeros)
    made = sealing(log, None, FRAME, crc=None)
    assert unseal(KEY, b"".join(made), log.format)[1] == data
    log.texts[log.name] += b"x"
    if name == "litelog":
        assert_no_object(sealing(log, None, FRAME, crc=None), CorruptCommitError, "corrupt commit at offset")
    else:
        assert unseal(KEY, b"".join(sealing(log, None, FRAME, crc=None)), log.format)[1] == log.texts[log.name]


class PrefixFormat(LitelogFormat):
    """Its writers leave garbage when they crash."""

    finished_tail = FinishedTail.PREFIX


@pytest.mark.parametrize("garbage", [b"x", b"garbage" * 9000])
def test_the_valid_prefix_counts_where_writers_leave_garbage(tmp_path: Path, garbage: bytes) -> None:
    log = built(tmp_path, "litelog", [100] * 20)
    log.format = PrefixFormat()
    data = log.texts[log.name]
    log.texts[log.name] += garbage
    assert unseal(KEY, b"".join(sealing(log, None, FRAME, crc=None)), log.format)[1] == data
    assert_no_object(sealing(log, None, FRAME), CorruptCommitError, "corrupt commit at offset")  # it was promised


@pytest.mark.parametrize("tail", [b"no end of line", b"x" * 9000])
@pytest.mark.parametrize("lines", [0, 20])
def test_a_line_without_an_end_is_sealed_as_it_is(tmp_path: Path, tail: bytes, lines: int) -> None:
    log = built(tmp_path, "lines", [100] * lines)
    log.write(tail)
    for crc in (None, crc32c(log.texts[log.name])):
        footer, found = unseal(KEY, b"".join(sealing(log, None, FRAME, crc=crc)), log.format)
        assert found == log.texts[log.name]
        assert (footer.records, footer.next) == (lines, lines)


def test_a_header_alone_is_an_empty_log_segment(tmp_path: Path) -> None:
    log = built(tmp_path, "litelog", [])
    for zeros in (0, 5000):
        log.texts[log.name] = log.header() + bytes(zeros)
        footer, found = unseal(KEY, b"".join(sealing(log, None, FRAME, crc=None)), log.format)
        assert (found, footer.records, footer.first, len(footer.frames)) == (b"", 0, None, 0)


class Counted(bytearray):
    """Bytes whose copies in memory are counted."""

    alive = 0
    most = 0

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        kind = type(self)
        kind.alive += 1
        kind.most = max(kind.most, kind.alive)
        weakref.finalize(self, kind.forget)

    @classmethod
    def forget(cls) -> None:
        cls.alive -= 1


class Hesitant(Executor):
    """Runs the first call, and leaves the others waiting."""

    def __init__(self) -> None:
        self.waiting: list[Future[Any]] = []

    def submit(self, call: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if not self.waiting:
            future.set_result(call(*args, **named))
        self.waiting.append(future)
        return future


@pytest.mark.slow
def test_an_abandoned_sealing_leaves_no_work(tmp_path: Path) -> None:
    log = built(tmp_path, "litelog", [400] * 40)
    pool = Hesitant()
    body = iter(sealing(log, pool, FRAME))
    assert next(body)
    del body
    assert [future.cancelled() for future in pool.waiting] == [False] + [True] * MOST_AHEAD


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_few_pieces_are_in_memory_no_matter_how_long_the_log_segment_is(tmp_path: Path, workers: int) -> None:
    class Buffer(Counted):
        pass

    size = 60 << 10
    log = built(tmp_path, "litelog", [size] * 200)
    data = log.texts[log.name]

    def read(offset: int, length: int) -> bytes:
        return Buffer(data[offset : offset + length])  # type: ignore[return-value]

    def make(pool: ThreadPoolExecutor | None) -> None:
        made = Sealing(finished(log), read, log.format, pool, frame_bytes=64 << 10)
        assert sum(map(len, made)) == made.size
        assert len(made.footer.frames) > 100
        assert len(list(islice(made, 50))) == 50  # the consumer stops half-way

    if workers:
        with ThreadPoolExecutor(workers) as pool:
            make(pool)
    else:
        make(None)
    assert 0 < Buffer.most <= MOST_AHEAD + 4 + WAITING_BYTES // size  # the last ones wait to be hashed
    assert Buffer.alive == 0


@pytest.mark.parametrize("taken", [0, 1])
def test_without_room_nothing_is_ahead(tmp_path: Path, taken: int) -> None:
    """All sealings of a process share the room. Each of them gets on without any, and gives back what it took."""
    log = built(tmp_path, "litelog", [400] * 40)
    pool = Hesitant()
    AHEAD.take(AHEAD.limit * taken)
    try:
        before = AHEAD.used
        body = iter(sealing(log, pool, FRAME))
        assert next(body)
        assert len(pool.waiting) == (0 if taken else 1 + MOST_AHEAD)
        assert (AHEAD.used > before) == (not taken)
        body.close()
        assert AHEAD.used == before
        with ThreadPoolExecutor(2) as threads:
            assert len(list(sealing(log, threads, FRAME))) > 10
        assert AHEAD.used == before
    finally:
        AHEAD.give_back(AHEAD.limit * taken)


def test_a_frame_is_handed_over_only_if_that_is_worth_it(tmp_path: Path) -> None:
    log = built(tmp_path, "litelog", [400] * 40)
    pool, answers = Hesitant(), iter([False, True, False])
    body = list(sealing(log, pool, FRAME, may_hand_over=lambda: next(answers, False)))
    assert len(pool.waiting) == 1
    assert body == list(sealing(log, None, FRAME))


def test_a_sealing_that_finds_no_thread_gives_back_its_room(tmp_path: Path) -> None:
    log = built(tmp_path, "litelog", [400] * 40)
    before = AHEAD.used
    ended = ThreadPoolExecutor(1)
    ended.shutdown()
    with pytest.raises(RuntimeError):
        list(sealing(log, ended, FRAME))
    assert AHEAD.used == before
