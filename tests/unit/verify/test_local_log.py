"""What a check of a local log names: damage of each kind, in logs of each format, and all of it."""

from __future__ import annotations

import zlib
from threading import Event, Thread
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from litelog.errors import SourceMissingError
from litelog.formats import Expectation
from litelog.formats.litelog import LitelogFormat, SegmentHeader
from litelog.formats.registry import open_format
from litelog.verify.findings import MAX_KEPT
from litelog.verify.local_log import check_log
from tests.builders.recorded_logs import recorded_segments, unpack
from tests.builders.redis_log import make_redis_log
from tests.builders.replica_builder import make_log
from tests.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from litelog.formats import Commit, Scan
    from litelog.verify.local_report import LocalReport

Files = list[tuple[str, bytes]]

LITELOG: Files = [(each.name, each.data) for each in make_log([[2, 1, 3], [1, 1, 2, 1], [2, 2]])]

RECORDED = {
    "kafka": ("plain_none", ".log"),
    "netlog": ("sets", ".data"),
    "influxdb": ("table", ""),
}


def in_order(format_name: str, files: Files) -> Files:
    return sorted(files, key=lambda file: open_format(format_name).segment_order(file[0]) or ())


LOGS: dict[str, Files] = {
    "litelog": LITELOG,
    **{name: in_order(name, recorded_segments(name, *where)) for name, where in RECORDED.items()},
}


def write(folder: Path, files: Iterable[tuple[str, bytes]]) -> None:
    for name, data in files:
        (folder / name).write_bytes(data)


def check(folder: Path, format_name: str = "litelog") -> LocalReport:
    return check_log(str(folder), open_format(format_name))


def found(report: LocalReport) -> list[tuple[str, str, int]]:
    return [(str(each.kind), each.file, each.offset) for each in report.anomalies]


def commits_of(format_name: str, number: int) -> list[Commit]:
    name, data = LOGS[format_name][number]
    return open_format(format_name).commits(name, memoryview(data), 0, Expectation())


def flipped(data: bytes, place: int, bit: int = 0) -> bytes:
    return data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


@pytest.mark.parametrize("format_name", LOGS)
def test_an_intact_log_has_no_anomaly(format_name: str, tmp_path: Path) -> None:
    write(tmp_path, LOGS[format_name])
    report = check(tmp_path, format_name)
    assert (found(report), report.harmful, report.failures) == ([], 0, ())
    assert (report.segments, report.bytes) == (len(LOGS[format_name]), sum(len(data) for _, data in LOGS[format_name]))
    assert report.commits == sum(len(commits_of(format_name, number)) for number in range(len(LOGS[format_name])))


UNCHECKED = {"kafka": [*range(8), *range(12, 16)]}
"""Places in a commit that its checksum does not cover: Kafka's base offset and leader epoch."""


@pytest.mark.parametrize("format_name", LOGS)
def test_each_flip_in_a_commit_is_one_anomaly_and_others_are_read(format_name: str, tmp_path: Path) -> None:
    files = LOGS[format_name]
    counts = [len(commits_of(format_name, number)) for number in range(len(files))]
    number = next(number for number, count in enumerate(counts) if count >= 3)
    (name, data), middle = files[number], commits_of(format_name, number)[1]
    write(tmp_path, files)
    for place in sampled(range(middle.start, middle.end), 8, f"flips in a local log, {format_name}"):
        if place - middle.start in UNCHECKED.get(format_name, ()):
            continue
        (tmp_path / name).write_bytes(flipped(data, place, place % 8))
        report = check(tmp_path, format_name)
        assert [(each.file, each.offset, each.end) for each in report.anomalies] == [(name, middle.start, middle.end)]
        assert (report.harmful, report.commits) == (1, sum(counts) - 1), (place, report.anomalies)


def test_a_batch_of_kafka_with_another_offset_is_named_alone(tmp_path: Path) -> None:
    (name, data), middle = LOGS["kafka"][0], commits_of("kafka", 0)[1]
    write(tmp_path, [(name, flipped(data, middle.start + 1))])
    report = check(tmp_path, "kafka")
    assert found(report) == [("gap", name, middle.start)]
    assert report.commits == len(commits_of("kafka", 0)) - 1


def test_a_length_and_a_checksum_of_netlog_are_exactly_these_two(tmp_path: Path) -> None:
    messages = [b"message %d" % number for number in range(10)]
    frames = [b"\0" + zlib.crc32(each).to_bytes(4, "big") + len(each).to_bytes(4, "big") + each for each in messages]
    starts = [16 + sum(map(len, frames[:number])) for number in range(10)]
    data = LOGS["netlog"][0][1][:16] + b"".join(frames)
    damaged = flipped(flipped(data, starts[4] + 8, 1), starts[7] + 4)
    write(tmp_path, [(f"{0:020d}.data", damaged)])
    report = check(tmp_path, "netlog")
    assert [(str(each.kind), each.offset, each.end) for each in report.anomalies] == [
        ("length", starts[4], starts[5]),
        ("checksum", starts[7], starts[8]),
    ]
    first, second = report.anomalies
    assert (first.sequence, first.expected, first.actual) == (4, "9", "11")
    stated = zlib.crc32(messages[7])
    assert (second.sequence, second.expected, second.actual) == (None, f"{stated:08x}", f"{stated ^ 1:08x}")
    assert (report.commits, report.harmful) == (8, 2)


@pytest.mark.parametrize("format_name", LOGS)
def test_a_log_cut_in_its_last_commit_ends_in_a_torn_one(format_name: str, tmp_path: Path) -> None:
    files = LOGS[format_name]
    name, data = files[-1]
    last = commits_of(format_name, len(files) - 1)[-1]
    write(tmp_path, files)
    for place in sampled(range(last.start + 8, last.end), 10, f"cuts of a local log, {format_name}"):
        (tmp_path / name).write_bytes(data[:place])
        (torn,) = check(tmp_path, format_name).anomalies
        whole = last.start if len(commits_of(format_name, len(files) - 1)) > 1 else 0
        assert (str(torn.kind), torn.file, torn.offset, torn.end, torn.harmful) == ("torn", name, whole, place, True)


class _Noticing(LitelogFormat):
    """Tells a writer when a scan has come to a torn commit."""

    def __init__(self) -> None:
        self.torn = Event()

    def scan(self, name: str, data: memoryview, offset: int, expect: Expectation) -> Scan:
        scan = super().scan(name, data, offset, expect)
        if scan.end < offset + len(data):
            self.torn.set()
        return scan


def test_a_commit_that_is_being_written_is_awaited(tmp_path: Path) -> None:
    name, data = LITELOG[-1]
    write(tmp_path, [*LITELOG[:-1], (name, data[:-5])])
    log_format = _Noticing()

    def finish() -> None:
        log_format.torn.wait()
        with open(tmp_path / name, "ab") as file:
            file.write(data[-5:])

    writer = Thread(target=finish)
    writer.start()
    report = check_log(str(tmp_path), log_format, settle=60)
    writer.join()
    assert (report.anomalies, report.bytes) == ((), sum(len(data) for _, data in LITELOG))


def test_a_missing_log_segment_is_a_gap(tmp_path: Path) -> None:
    write(tmp_path, [LITELOG[0], LITELOG[2]])
    (gap,) = check(tmp_path).anomalies
    assert (str(gap.kind), gap.file, gap.offset) == ("gap", LITELOG[2][0], 0)
    assert (gap.sequence, gap.expected, gap.actual) == (6, "6", "11")


def test_swapped_log_segments_are_both_named(tmp_path: Path) -> None:
    write(tmp_path, [(LITELOG[0][0], LITELOG[1][1]), (LITELOG[1][0], LITELOG[0][1]), LITELOG[2]])
    assert {file for kind, file, _ in found(check(tmp_path)) if kind in ("order", "gap")} >= {
        LITELOG[0][0],
        LITELOG[1][0],
    }


@pytest.mark.parametrize("content", [b"", bytes(4096)])
def test_an_empty_log_segment_in_the_middle_is_a_gap_and_at_the_end_is_not(content: bytes, tmp_path: Path) -> None:
    write(tmp_path, [*LITELOG[:2], (LITELOG[2][0], content)])
    assert found(check(tmp_path)) == []
    write(tmp_path, [(LITELOG[1][0], content), LITELOG[2]])
    assert found(check(tmp_path)) == [("gap", LITELOG[2][0], 0)]


def test_zeros_over_a_commit_are_named(tmp_path: Path) -> None:
    name, data = LITELOG[1]
    middle = commits_of("litelog", 1)[1]
    zeros = data[: middle.start] + bytes(middle.end - middle.start) + data[middle.end :]
    write(tmp_path, [LITELOG[0], (name, zeros), LITELOG[2]])
    (anomaly,) = check(tmp_path).anomalies
    assert (anomaly.file, anomaly.offset, anomaly.end) == (name, middle.start, middle.end)


def test_a_damaged_header_is_named_and_its_commits_are_read(tmp_path: Path) -> None:
    name, data = LITELOG[1]
    write(tmp_path, [LITELOG[0], (name, flipped(data, 20)), LITELOG[2]])
    report = check(tmp_path)
    assert [(each.file, each.offset, each.end) for each in report.anomalies] == [(name, 0, 64)]
    assert report.commits == sum(len(commits_of("litelog", number)) for number in range(3))


def test_a_log_segment_of_another_log_is_a_fork(tmp_path: Path) -> None:
    name, data = LITELOG[1]
    header = SegmentHeader(UUID(int=1), 6, 0).encode()
    write(tmp_path, [LITELOG[0], (name, header + data[len(header) :]), LITELOG[2]])
    assert found(check(tmp_path)) == [("fork", name, 0)]


@pytest.mark.parametrize("scene", ["compressed", "empty", "epochs", "torn", "torn_header", "version_0"])
def test_what_a_crash_left_in_a_finished_log_of_spacetimedb_is_harmless(scene: str, tmp_path: Path) -> None:
    report = check_log(str(unpack("spacetimedb", scene, tmp_path)), open_format("spacetimedb"))
    assert report.harmful == 0, report.anomalies
    assert {kind for kind, _, _ in found(report)} == ({"torn"} if scene.startswith("torn") else set())


def test_a_flip_in_a_log_of_spacetimedb_is_one_anomaly(tmp_path: Path) -> None:
    folder = unpack("spacetimedb", "epochs", tmp_path)
    first = min(folder.glob("*.stdb.log"))
    data = first.read_bytes()
    middle = open_format("spacetimedb").commits(first.name, memoryview(data), 0, Expectation())[1]
    for place in sampled(range(middle.start, middle.end), 8, "flips in a local log of SpacetimeDB"):
        first.write_bytes(flipped(data, place))
        report = check_log(str(folder), open_format("spacetimedb"))
        assert [(each.offset, each.harmful) for each in report.anomalies] == [(middle.start, True)], place


def test_a_foreign_file_is_harmless(tmp_path: Path) -> None:
    write(tmp_path, [*LITELOG, ("notes.txt", b"do not delete")])
    report = check(tmp_path)
    assert (found(report), report.harmful) == ([("foreign", "notes.txt", 0)], 0)


@pytest.mark.slow
def test_at_most_so_many_anomalies_are_kept_and_all_are_counted(tmp_path: Path) -> None:
    write(tmp_path, [*LITELOG, *((f"{number}.txt", b"") for number in range(MAX_KEPT + 5))])
    report = check(tmp_path)
    assert (len(report.anomalies), report.counts, report.harmful) == (MAX_KEPT, {"foreign": MAX_KEPT + 5}, 0)


def test_a_file_of_redis_that_its_manifest_lists_is_missed(tmp_path: Path) -> None:
    log = make_redis_log(tmp_path / "aof")
    assert found(check(tmp_path / "aof", "redis-aof")) == []
    (tmp_path / "aof" / log.listed[0]).unlink()
    assert found(check(tmp_path / "aof", "redis-aof")) == [("missing", log.listed[0], 0)]


def test_after_damage_in_a_log_whose_files_state_no_sequence_none_is_known(tmp_path: Path) -> None:
    log = make_redis_log(tmp_path / "aof")
    log.append(9)
    commits = [
        commit.start for commit in log.format.commits(log.name, memoryview(log.texts[log.name]), 0, Expectation())
    ]
    for number in (3, 6):
        log.overwrite(commits[number], b"?")
    log.increment(2)
    log.append(2)
    report = check(tmp_path / "aof", "redis-aof")
    assert [(each.offset, each.sequence) for each in report.anomalies] == [(commits[3], 4), (commits[6], None)]
    assert (report.next, report.commits) == (None, 1 + 9 - 2 + 2)


def test_an_unfinished_line_is_not_an_anomaly(tmp_path: Path) -> None:
    write(tmp_path, [("app.log", b"one\ntwo\nthr")])
    assert check_log(str(tmp_path), open_format("lines", "*.log")).anomalies == ()


def test_a_folder_without_a_log_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError, match="holds no log segment"):
        check(tmp_path)


def test_a_compressed_log_segment_that_cannot_be_decompressed_is_an_anomaly(tmp_path: Path) -> None:
    folder = unpack("spacetimedb", "compressed", tmp_path)
    first = min(folder.glob("*.stdb.log"))
    for place in (0, 6, 200, first.stat().st_size - 3):
        data = first.read_bytes()
        first.write_bytes(flipped(data, place))
        report = check_log(str(folder), open_format("spacetimedb"))
        assert {each.file for each in report.anomalies if each.harmful} == {first.name}, place
        assert report.commits > 0
        first.write_bytes(data)
