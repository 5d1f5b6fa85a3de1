"""The follower of a log ships only what is durable, whole and contiguous, no matter what a program writes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from litelog.errors import (
    CorruptCommitError,
    CorruptionError,
    DivergedError,
    SourceMissingError,
)
from litelog.formats import FinishedTail
from litelog.formats.lines import LinesFormat
from litelog.formats.litelog import segment_name
from litelog.log.follower import Follower, GapError
from litelog.log.run_reader import HEAD_BYTES
from litelog.log.source import SegmentFolder
from litelog.log.source_position import SourcePosition
from litelog.shipping.log_identity import ShippedEnd, find_shift
from tests.builders.log_builder import Interrupted, LogBuilder, make_log
from tests.builders.log_following import ALL_FORMATS, FORMATS, LIMIT, WITHOUT_GARBAGE, collect, drain, follow
from tests.builders.manual_clock import ManualClock
from tests.sampling import examples

if TYPE_CHECKING:
    from litelog.formats import Scan
    from litelog.log.source_position import CommitRun

QUICK = settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def log(request: pytest.FixtureRequest, tmp_path: Path) -> LogBuilder:
    """A log without log segments."""
    return make_log(tmp_path / "log", getattr(request, "param", "litelog"))


@ALL_FORMATS
def test_all_log_segments_come_in_order_and_all_but_the_newest_are_final(log: LogBuilder, clock: ManualClock) -> None:
    for _ in range(4):
        log.roll(3)
    runs = drain(follow(log, clock))
    assert collect(runs) == log.files()
    assert [run.start.index for run in runs if run.final] == [0, 1, 2]
    assert runs[-1].start.index == 3


@ALL_FORMATS
def test_a_small_limit_cuts_at_commits_and_loses_nothing(log: LogBuilder, clock: ManualClock) -> None:
    for _ in range(3):
        log.roll(20)
    runs = drain(follow(log, clock), limit=200)
    assert collect(runs) == log.files()
    assert max(len(run.data) for run in runs) <= 200


@ALL_FORMATS
def test_few_bytes_are_decoded_as_they_are_checked_if_that_is_wanted(log: LogBuilder, clock: ManualClock) -> None:
    follower, decoded = follow(log, clock), 0
    for wanted in (False, True):
        follower.decode_up_to(LIMIT if wanted else 0)
        log.roll(3)
        while (run := follower.next_run(LIMIT)) is not None:
            columns = follower.columns_of(run)
            if columns is not None:
                start, path = run.start, log.path(run.start.file)
                expected = log.format.decode(path, run.data, start.offset, start.expectation)
                assert list(columns.records()) == list(expected.records())
                decoded += len(columns)
                assert follower.columns_of(run) is None
        assert bool(decoded) == wanted


def test_a_commit_larger_than_the_limit_comes_whole(log: LogBuilder, clock: ManualClock) -> None:
    log.roll(1)
    log.append(1, size=100_000)
    log.append(1)
    assert collect(drain(follow(log, clock), limit=4096)) == log.files()


def test_commits_larger_than_the_limit_are_read_once_after_the_first(
    log: LogBuilder, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.roll(1)
    follower, scanned, scan = follow(log, clock), list[int](), log.format.scan
    before = drain(follower)

    def count(name: str, data: memoryview, *more: Any, **rest: Any) -> Scan:
        scanned.append(len(data))
        return scan(name, data, *more, **rest)

    monkeypatch.setattr(log.format, "scan", count)
    for _ in range(4):
        log.append(1, size=1 << 20)
    runs = drain(follower, 1 << 16)
    assert collect([*before, *runs]) == log.texts
    lengths = [len(run.data) for run in runs]
    assert [length > 1 << 20 for length in lengths] == [True] * 4
    assert sum(scanned) < sum(lengths) + (1 << 16) + 4 * HEAD_BYTES


@ALL_FORMATS
def test_an_empty_newer_file_does_not_finish_the_one_before(log: LogBuilder, clock: ManualClock) -> None:
    older = log.roll(2)
    newer = segment_name(99) if log.format.self_numbered else "app.000009"
    Path(log.path(newer)).touch()
    follower = follow(log, clock)
    collected = collect(drain(follower))
    assert not any(run.final for run in drain(follower))
    log.write(log.commit(), older)  # the writer comes back to it
    assert collect(drain(follower), collected)[older] == log.texts[older]


def test_a_newer_file_without_a_whole_commit_does_not_finish_the_one_before(
    log: LogBuilder, clock: ManualClock
) -> None:
    log.roll(2)
    follower = follow(log, clock)
    drain(follower)
    commit = log.header() + log.commit()
    log.name = segment_name(2)
    log.write(commit[:-1])
    assert drain(follower) == []
    log.write(commit[-1:])
    assert [run.final for run in drain(follower)] == [True, False]


@ALL_FORMATS
def test_bytes_of_the_older_segment_are_never_skipped_before_the_newer_one_begins(
    log: LogBuilder, clock: ManualClock
) -> None:
    """The writer completes a commit and rolls between the look at the older log segment and that at the newer one."""
    log.roll(2)
    torn = log.commit()
    log.write(torn[:-3])
    watched = Interrupted(log.format)
    follower = follow(log, clock, log_format=watched)

    def go_on() -> None:
        log.write(torn[-3:])
        log.roll(1)

    drain(follower)
    older = log.name
    log.overwrite(0, b"")  # touched, so that it is looked at
    watched.acts.append(go_on)
    follower.rewind(SourcePosition(0, older))
    found = collect(drain(follower))
    assert found == log.files()


def test_a_commit_written_into_preallocated_zeros_before_a_roll_is_not_a_gap(
    log: LogBuilder, clock: ManualClock
) -> None:
    older = log.roll(2)
    end = len(log.texts[older])
    log.preallocate(4096)
    watched = Interrupted(log.format)
    follower = follow(log, clock, log_format=watched)
    found = collect(drain(follower))

    def go_on() -> None:
        log.overwrite(end, log.commit())
        log.roll(1)

    watched.acts.append(go_on)
    collect(drain(follower), found)
    assert follower.changed()
    collect(drain(follower), found)
    commit = len(log.texts[older].rstrip(b"\0")) + 7 & -8
    assert found[older] == log.texts[older][:commit]
    assert found[log.name] == log.texts[log.name]


def test_lines_written_into_preallocated_zeros_before_a_roll_are_not_left_out(
    tmp_path: Path, clock: ManualClock
) -> None:
    log = make_log(tmp_path / "log", "lines")
    older = log.roll(2)
    end = len(log.texts[older])
    log.preallocate(4096)
    watched = Interrupted(log.format)
    follower = follow(log, clock, log_format=watched)
    found = collect(drain(follower))

    def go_on() -> None:
        log.overwrite(end, log.commit())
        log.roll(1)

    watched.acts.append(go_on)
    collect(drain(follower), found)
    assert follower.changed()
    collect(drain(follower), found)
    assert found[older] == log.texts[older].rstrip(b"\0")
    assert found[log.name] == log.texts[log.name]


def test_zeros_amid_a_text_are_data_wherever_the_limit_cuts(tmp_path: Path, clock: ManualClock) -> None:
    log = make_log(tmp_path / "log", "lines")
    log.roll(3, size=100)
    log.write(bytes(10_000) + b"after a power cut\n")
    log.append(3, size=100)
    log.roll(2)
    for limit in (350, 4096, 10_000, LIMIT):
        assert collect(drain(follow(log, clock), limit=limit)) == log.files()


@pytest.mark.parametrize("log", ["lines", "raw"], indirect=True)
def test_an_unfinished_line_ships_as_it_is_once_its_file_is_finished(log: LogBuilder, clock: ManualClock) -> None:
    log.roll(2)
    log.write(b"no end of line")
    follower = follow(log, clock)
    found = collect(drain(follower))
    log.roll(1)
    runs = drain(follower)
    assert collect(runs, found) == log.files()
    assert runs[0].final or runs[0].start.index == 1 or log.format.name == "raw"


def test_a_torn_commit_with_a_newer_log_segment_after_it_is_corrupt(log: LogBuilder, clock: ManualClock) -> None:
    older = log.roll(2)
    whole = len(log.texts[older])
    log.write(log.commit()[:-5])
    log.next = 2
    log.roll(1)  # it continues what is whole
    follower = follow(log, clock)
    run = follower.next_run(LIMIT)
    assert run is not None
    assert (run.end.offset, run.final) == (whole, False)
    with pytest.raises(CorruptCommitError) as caught:
        follower.next_run(LIMIT)
    assert (caught.value.path, caught.value.offset) == (log.path(older), whole)


def test_a_torn_commit_is_corrupt_once_a_newer_log_segment_continues_after_it(
    log: LogBuilder, clock: ManualClock
) -> None:
    older = log.roll(2)
    whole = len(log.texts[older])
    log.write(log.commit()[:-5])
    log.roll(1)
    follower = follow(log, clock)
    assert follower.next_run(LIMIT) is not None
    with pytest.raises(CorruptCommitError) as caught:
        drain(follower)
    assert (caught.value.path, caught.value.offset) == (log.path(older), whole)


@ALL_FORMATS
def test_a_torn_tail_is_waited_for_and_then_shipped(log: LogBuilder, clock: ManualClock) -> None:
    log.roll(2)
    commit = log.commit(size=50)
    follower = follow(log, clock)
    found = collect(drain(follower))
    for byte in commit:
        collect(drain(follower), found)
        log.write(bytes([byte]))
    assert collect(drain(follower), found) == log.files()


def test_a_torn_tail_that_its_writer_trims_is_never_seen(log: LogBuilder, clock: ManualClock) -> None:
    log.roll(2)
    whole = len(log.texts[log.name])
    log.write(log.commit()[:-9])
    follower = follow(log, clock)
    found = collect(drain(follower))
    log.truncate(whole)
    log.next = 2
    log.append(2)
    assert collect(drain(follower), found) == log.files()


def test_zeros_where_a_commit_should_start_are_waited_for(log: LogBuilder, clock: ManualClock) -> None:
    log.roll(1)
    end = len(log.texts[log.name])
    log.preallocate(1 << 16)
    follower = follow(log, clock)
    found = collect(drain(follower))
    assert len(found[log.name]) == end
    for _ in range(3):
        commit = log.commit()
        log.overwrite(end, commit)
        end += len(commit)
        assert len(collect(drain(follower), found)[log.name]) == end
    log.roll(1)
    runs = drain(follower)
    assert [(len(run.data), run.final) for run in runs] == [(0, True), (len(log.texts[log.name]), False)]


@pytest.mark.parametrize("format_name", ["litelog", "lines"])
def test_a_log_segment_that_was_begun_long_ago_is_seen_when_it_gets_its_first_commit(
    tmp_path: Path, clock: ManualClock, format_name: str
) -> None:
    log = make_log(tmp_path / "log", format_name)
    log.roll(1)
    follower = follow(log, clock)
    found = collect(drain(follower))
    log.roll(0)
    for _ in range(3):
        clock.advance(10)
        collect(drain(follower), found)
    assert follower.settled
    assert not follower.changed()
    log.append(1)
    assert follower.changed()
    collect(drain(follower), found)
    assert found == log.texts


def test_commits_written_through_memory_are_seen_where_files_keep_their_times(clock: ManualClock) -> None:
    """A file system in memory notes the first write to a page, and none after it."""
    shared = Path("/dev/shm")
    if not shared.is_dir():
        pytest.skip("no file system in memory here")
    folder = shared / f"litelog-test-{os.getpid()}"
    try:
        log = make_log(folder)
        log.roll(1)
        end = len(log.texts[log.name])
        log.preallocate(1 << 16)
        times = os.stat(log.path())
        follower = follow(log, clock)
        found = collect(drain(follower))
        clock.advance(10)
        drain(follower)
        assert follower.settled
        assert not follower.changed()
        log.map(end, log.commit())
        os.utime(log.path(), ns=(times.st_atime_ns, times.st_mtime_ns))
        assert follower.changed()
        assert len(collect(drain(follower), found)[log.name]) > end
    finally:
        shutil.rmtree(folder)


def test_the_commits_before_a_corrupt_one_are_shipped_and_then_it_is_reported(
    log: LogBuilder, clock: ManualClock
) -> None:
    log.roll(3)
    bad = len(log.texts[log.name])
    log.append(3)
    log.overwrite(bad + 45, b"\xff")
    follower = follow(log, clock)
    run = follower.next_run(LIMIT)
    assert run is not None
    assert run.end.offset == bad
    for _ in range(2):
        with pytest.raises(CorruptCommitError) as caught:
            follower.next_run(LIMIT)
        assert (caught.value.path, caught.value.offset) == (log.path(), bad)


def test_a_corrupt_newer_log_segment_hides_nothing_before_its_fault(log: LogBuilder, clock: ManualClock) -> None:
    log.roll(2)
    newer = log.roll(2)
    bad = len(log.texts[newer])
    log.append(2)
    log.overwrite(bad + 45, b"\xff")
    follower = follow(log, clock)
    found: dict[str, bytes] = {}
    for _ in range(2):
        run = follower.next_run(LIMIT)
        assert run is not None
        collect([run], found)
    with pytest.raises(CorruptCommitError) as caught:
        follower.next_run(LIMIT)
    assert (caught.value.path, caught.value.offset) == (log.path(newer), bad)
    assert found == {**log.files(), newer: log.texts[newer][:bad]}


def test_a_newer_file_that_is_no_log_segment_is_reported_after_the_older_is_shipped(
    log: LogBuilder, clock: ManualClock
) -> None:
    older = log.roll(2)
    log.name = segment_name(2)
    log.write(b"#!/bin/sh\n" * 20)
    follower = follow(log, clock)
    run = follower.next_run(LIMIT)
    assert run is not None
    assert bytes(run.data) == log.texts[older]
    with pytest.raises(CorruptionError):
        follower.next_run(LIMIT)


def test_a_gap_between_log_segments_is_reported_with_the_one_after_it(log: LogBuilder, clock: ManualClock) -> None:
    older = log.roll(2)
    log.next += 5
    behind = log.roll(2)
    follower = follow(log, clock)
    run = follower.next_run(LIMIT)
    assert run is not None
    assert bytes(run.data) == log.texts[older]
    with pytest.raises(GapError, match="jumps from 2 to 7") as caught:
        follower.next_run(LIMIT)
    assert caught.value.file == behind
    assert collect(drain(follow(log, clock, SourcePosition(0, behind)))) == {behind: log.texts[behind]}


@WITHOUT_GARBAGE
def test_growth_after_the_end_is_reported_again_and_again(log: LogBuilder, clock: ManualClock) -> None:
    older = log.roll(2)
    log.roll(2)
    follower = follow(log, clock)
    drain(follower)
    log.write(b"late\n", older)
    for _ in range(3):
        with pytest.raises(DivergedError, match="grew after it was finished"):
            follower.next_run(LIMIT)


@WITHOUT_GARBAGE
def test_growth_after_the_end_is_reported_even_if_it_happened_without_a_follower(
    log: LogBuilder, clock: ManualClock
) -> None:
    older = log.roll(2)
    log.roll(2)
    follower = follow(log, clock)
    drain(follower)
    follower.close()
    log.write(b"late\n", older)
    with pytest.raises(DivergedError, match="grew after it was finished"):
        drain(follow(log, clock, follower.place))


@ALL_FORMATS
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("how", ["cut", "rewritten", "replaced and grown", "replaced and cut"])
def test_a_finished_log_segment_that_changes_is_another_history(
    log: LogBuilder, clock: ManualClock, how: str, restarted: bool
) -> None:
    older = log.roll(3)
    log.roll(2)
    follower = follow(log, clock)
    drain(follower)
    text = log.texts[older]
    if how == "cut":
        log.truncate(len(text) - 5, older)
    elif how == "rewritten":
        log.overwrite(len(text) - 5, b"?", older)
    else:
        log.replace(text + b"more\n" if how == "replaced and grown" else text[:-5], older)
    if restarted:
        follower.close()
        follower = follow(log, clock, follower.place)
    if how == "replaced and grown" and log.format.finished_tail is FinishedTail.PREFIX:
        assert drain(follower) == []  # it is garbage
        return
    with pytest.raises(DivergedError, match="after it was finished"):
        drain(follower)


@ALL_FORMATS
def test_a_finished_log_segment_may_be_replaced_by_its_copy_and_deleted(log: LogBuilder, clock: ManualClock) -> None:
    older = log.roll(3)
    log.roll(2)
    follower = follow(log, clock)
    drain(follower)
    log.replace(name=older)
    assert drain(follower) == []
    log.delete(older)
    assert drain(follower) == []
    log.append(1)
    assert len(drain(follower)) == 1


def test_zeros_after_a_finished_end_are_not_growth(log: LogBuilder, clock: ManualClock) -> None:
    log.roll(2)
    log.preallocate(1 << 16)
    log.roll(2)
    follower = follow(log, clock)
    drain(follower)
    follower.close()
    assert drain(follow(log, clock, follower.place)) == []


@ALL_FORMATS
@pytest.mark.parametrize("restarted", [False, True])
def test_a_cut_log_segment_is_another_history(log: LogBuilder, clock: ManualClock, restarted: bool) -> None:
    log.roll(3)
    follower = follow(log, clock)
    drain(follower)
    log.truncate(len(log.texts[log.name]) - 4)
    if restarted:
        follower.close()
        follower = follow(log, clock, follower.place)
    with pytest.raises(DivergedError):
        follower.next_run(LIMIT)


@ALL_FORMATS
def test_a_rewritten_last_commit_is_another_history(log: LogBuilder, clock: ManualClock) -> None:
    log.roll(3)
    follower = follow(log, clock)
    drain(follower)
    log.overwrite(len(log.texts[log.name]) - 3, b"X")
    with pytest.raises(DivergedError, match="rewritten"):
        follower.next_run(LIMIT)


@pytest.mark.parametrize("last", [b"}\n", b"\n"])
def test_a_file_that_is_cut_and_rewritten_is_another_history(tmp_path: Path, clock: ManualClock, last: bytes) -> None:
    """For example by copytruncate during a long put: the new text is as long as the old one before the next look."""
    path = tmp_path / "app-1.log"
    path.write_bytes(b"first\n" + last)
    with path.open("rb+") as text:
        follower = Follower(str(tmp_path), LinesFormat("app-*.log"), SourcePosition(0, ""), clock)
        assert len(drain(follower)) == 1
        text.truncate(0)
        text.write(b"other\n" + last + b"more\n")
        text.flush()
        with pytest.raises(DivergedError, match="rewritten"):
            follower.next_run(LIMIT)


@ALL_FORMATS
@pytest.mark.parametrize("how", ["in place", "replaced", "while nobody followed"])
def test_whole_commits_of_the_same_size_are_another_history(log: LogBuilder, clock: ManualClock, how: str) -> None:
    """All commits that end with their own CRC-32C have the same CRC-32C."""
    log.roll(3)
    follower = follow(log, clock)
    drain(follower)
    size = len(log.texts[log.name])
    other = make_log(log.folder + ".other", log.format.name)
    other.write(other.header(), log.name)
    other.write(b"".join(other.commit(tag=b"R") for _ in range(3)), log.name)
    assert len(other.texts[log.name]) == size
    if how == "replaced":
        log.replace(other.texts[log.name])
    else:
        log.overwrite(0, other.texts[log.name])
    if how == "while nobody followed":
        follower.close()
        follower = follow(log, clock, follower.place)
    with pytest.raises(DivergedError):
        drain(follower)


@ALL_FORMATS
def test_a_log_segment_rewound_and_written_again_is_another_history(log: LogBuilder, clock: ManualClock) -> None:
    log.roll(3)
    follower = follow(log, clock)
    drain(follower)
    size = len(log.texts[log.name])
    log.truncate(0)
    log.write(b"another history ".ljust(size * 2, b"x") + b"\n")
    with pytest.raises(DivergedError):
        follower.next_run(LIMIT)


@ALL_FORMATS
def test_a_replaced_file_with_the_same_bytes_is_the_same_log_segment(log: LogBuilder, clock: ManualClock) -> None:
    log.roll(3)
    follower = follow(log, clock)
    found = collect(drain(follower))
    log.replace()
    log.append(2)
    assert collect(drain(follower), found) == log.files()


@ALL_FORMATS
def test_a_replaced_file_with_other_bytes_is_another_history(log: LogBuilder, clock: ManualClock) -> None:
    log.roll(3)
    follower = follow(log, clock)
    drain(follower)
    data = bytearray(log.texts[log.name])
    data[5] ^= 1
    log.replace(bytes(data) + b"and more\n")
    with pytest.raises(DivergedError, match="replaced"):
        follower.next_run(LIMIT)


@ALL_FORMATS
def test_a_log_segment_deleted_before_it_was_shipped_is_a_hole(log: LogBuilder, clock: ManualClock) -> None:
    log.roll(3)
    log.roll(3)
    follower = follow(log, clock)
    run = follower.next_run(20)
    assert run is not None
    place = follower.place
    follower.close()
    log.roll(3)
    log.delete(next(iter(log.files())))
    with pytest.raises(DivergedError, match="vanished"):
        drain(follow(log, clock, place))


@ALL_FORMATS
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("finished", [False, True])
def test_a_log_whose_newer_log_segment_is_deleted_before_an_older_one_was_rewound(
    log: LogBuilder, clock: ManualClock, restarted: bool, finished: bool
) -> None:
    names = [log.roll(2) for _ in range(3)]
    follower = follow(log, clock)
    drain(follower)
    log.delete(names[1] if finished else names[2])
    log.roll(1)
    if restarted:
        follower.close()
        follower = follow(log, clock, follower.place)
    with pytest.raises(DivergedError, match="vanished, while"):
        drain(follower)


@ALL_FORMATS
def test_a_log_whose_next_log_segment_was_deleted_is_not_searched_without_end(
    log: LogBuilder, clock: ManualClock
) -> None:
    log.roll(2)
    end = log.next
    newer = log.roll(2)
    follower = follow(log, clock)
    found = collect([follower.next_run(LIMIT)])  # type: ignore[list-item]
    log.delete(newer)
    log.next = end
    follower.close()
    follower = follow(log, clock, follower.place)
    for _ in range(3):
        clock.advance(10)
        assert drain(follower) == []
    assert follower.settled
    assert not follower.changed()
    log.roll(1)
    assert follower.changed()
    assert collect(drain(follower), found) == log.files()


@ALL_FORMATS
def test_a_log_of_empty_log_segments_is_not_searched_without_end(log: LogBuilder, clock: ManualClock) -> None:
    log.roll(0)
    follower = follow(log, clock)
    for _ in range(3):
        clock.advance(10)
        assert drain(follower) == []
    assert follower.settled
    assert not follower.changed()
    log.append(1)
    assert follower.changed()
    assert collect(drain(follower)) == log.texts


@ALL_FORMATS
def test_a_log_that_was_read_for_the_first_time_is_not_read_once_more(log: LogBuilder, clock: ManualClock) -> None:
    log.roll(1)
    clock.advance(10)
    follower = follow(log, clock)
    assert collect(drain(follower)) == log.texts
    assert not follower.changed()


@ALL_FORMATS
def test_a_log_segment_deleted_while_it_is_followed_is_read_to_its_end(log: LogBuilder, clock: ManualClock) -> None:
    older = log.roll(3)
    follower = follow(log, clock)
    found = collect([follower.next_run(LIMIT)])  # type: ignore[list-item]
    log.append(3)
    log.roll(2)
    log.delete(older)
    collect(drain(follower), found)
    assert found == log.texts


def test_a_log_segment_deleted_when_all_of_it_was_shipped_is_none(log: LogBuilder, clock: ManualClock) -> None:
    older = log.roll(3)
    follower = follow(log, clock)
    found = collect(drain(follower))
    follower.close()
    log.roll(2)
    log.delete(older)
    runs = drain(follow(log, clock, follower.place))
    assert [(run.start.file, run.final) for run in runs] == [(older, True), (log.name, False)]
    assert collect(runs, found) == log.texts


@ALL_FORMATS
def test_a_missing_folder_is_waited_for(log: LogBuilder, clock: ManualClock) -> None:
    log.roll(2)
    follower = follow(log, clock)
    found = collect(drain(follower))
    os.rename(log.folder, log.folder + ".away")
    for _ in range(2):
        with pytest.raises(SourceMissingError):
            follower.next_run(LIMIT)
    os.rename(log.folder + ".away", log.folder)
    log.append(2)
    assert collect(drain(follower), found) == log.files()


@ALL_FORMATS
@pytest.mark.parametrize("rolled", [False, True])
def test_an_empty_folder_is_waited_for(log: LogBuilder, clock: ManualClock, rolled: bool) -> None:
    """An unmounted disk leaves an empty folder."""
    log.roll(2)
    follower = follow(log, clock)
    found = collect(drain(follower))
    if rolled:
        log.roll(1)
        collect([follower.next_run(LIMIT)], found)  # type: ignore[list-item]
    os.rename(log.folder, log.folder + ".away")
    os.mkdir(log.folder)
    with pytest.raises(SourceMissingError):
        follower.next_run(LIMIT)
    os.rmdir(log.folder)
    os.rename(log.folder + ".away", log.folder)
    log.append(1)
    assert collect(drain(follower), found) == log.files()


def test_a_folder_deleted_while_its_log_segments_are_examined_is_missing(log: LogBuilder, clock: ManualClock) -> None:
    """It does not count as a log with fewer log segments. The follower skips a log segment that is removed alone."""
    names = [log.roll(1) for _ in range(3)]
    each = SegmentFolder(log.folder, log.format, clock).each()
    assert next(each).name == names[0]
    log.delete(names[1])
    assert next(each).name == names[2]
    for mounted in (True, False):
        again = SegmentFolder(log.folder, log.format, clock).each()
        next(again)
        os.rename(log.folder, log.folder + ".away")
        if not mounted:
            os.mkdir(log.folder)
        with pytest.raises(SourceMissingError):
            next(again)
        if not mounted:
            with pytest.raises(SourceMissingError):
                find_shift(log.folder, log.format, clock, ShippedEnd(names[0], 0, 10, 0, 0, "", final=False))
            os.rmdir(log.folder)
        os.rename(log.folder + ".away", log.folder)


class Leaving(SegmentFolder):
    """The folder is removed after the follower found it, and before it lists it."""

    def _status(self) -> os.stat_result:
        status = super()._status()
        os.rename(self._folder, self._folder + ".away")
        return status


def test_a_folder_deleted_just_before_it_is_listed_is_missing(log: LogBuilder, clock: ManualClock) -> None:
    log.roll(1)
    with pytest.raises(SourceMissingError):
        Leaving(log.folder, log.format, clock).all()


@pytest.mark.slow
def test_an_empty_folder_is_reported_even_before_anything_was_shipped(log: LogBuilder, clock: ManualClock) -> None:
    with pytest.raises(SourceMissingError):
        follow(log, clock).next_run(LIMIT)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
@QUICK
@given(data=st.data())
def test_runs_hold_the_files_bytes_after_any_appends_rolls_reads_and_restarts(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    log, clock = make_log(tmp_path_factory.mktemp("log"), name), ManualClock()
    log.roll(1)
    follower = follow(log, clock)
    found: dict[str, bytes] = {}
    torn = b""
    indexes: list[CommitRun] = []
    for step in data.draw(
        st.lists(st.sampled_from(["append", "large", "tear", "roll", "read", "restart"]), max_size=25)
    ):
        if step in {"append", "large"}:
            log.write(torn)
            torn = b""
            log.append(data.draw(st.integers(1, 4)), 3000 if step == "large" else 8)
        elif step == "tear" and not torn:
            commit = log.commit(40)
            cut = data.draw(st.integers(1, len(commit) - 1))
            log.write(commit[:cut])
            torn = commit[cut:]
        elif step == "roll":
            log.write(torn)
            torn = b""
            log.roll(data.draw(st.integers(1, 3)))
        elif step == "read":
            run = follower.next_run(data.draw(st.sampled_from([64, 1000, LIMIT])))
            if run is not None:
                collect([run], found)
                indexes.append(run)
        elif step == "restart":
            follower.close()
            follower = follow(log, clock, follower.place)
    log.write(torn)
    indexes += (rest := drain(follower))
    collect(rest, found)
    collect(indexes)
    assert found == log.files()
    assert [run.start.file for run in indexes if run.final] == list(log.files())[:-1]
    follower.close()


TICK_NANOSECONDS = 10_000_000


@pytest.mark.slow
@QUICK
@given(steps=st.lists(st.tuples(st.sampled_from(["write", "look", "wait", "poke"]), st.integers(0, 60)), max_size=40))
def test_an_unread_byte_is_never_missed(steps: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory) -> None:
    """File times have ticks. A change within the tick of the last look shows no new time, but the follower finds it."""
    folder = tmp_path_factory.mktemp("log")
    log, clock = make_log(folder, "raw"), ManualClock(1_700_000_000_000_000)
    log.roll(1)
    size = 1 << 12

    def stamp() -> None:
        tick = clock.now() * 1000 // TICK_NANOSECONDS * TICK_NANOSECONDS
        os.utime(log.path(), ns=(tick, tick))
        os.utime(log.folder, ns=(tick, tick))

    log.preallocate(size)
    stamp()
    lines = make_log(folder, "lines")
    follower = follow(log, clock, log_format=lines.format)
    written = len(b"r0")
    log.overwrite(written, b"\n")
    written += 1
    read = 0
    for step, milliseconds in steps:
        if step == "write":
            log.overwrite(written, b"x\n")  # in place, so the size does not change
            written += 2
            stamp()
        elif step == "look":
            for run in drain(follower):
                read += len(run.data)
            assert read == written
        elif step == "wait":
            clock.advance(milliseconds / 1000)
        else:
            follower.changed()
        if read < written:
            assert follower.changed() or not follower.settled
    follower.close()
