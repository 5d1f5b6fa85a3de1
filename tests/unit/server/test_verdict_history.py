"""The verdicts of the last day outlast a restart of the daemon, a damaged file and a clock that jumps."""

from __future__ import annotations

import errno
import logging
import os
from typing import TYPE_CHECKING

import pytest

from litelog.replicator.snapshot_requests import VERDICTS_FILE as FILE
from litelog.replicator.status import ReplicaStatus
from litelog.server.status_view import StatusView
from litelog.server.verdict import ReplicaCondition, Verdict
from litelog.server.verdict_history import SLOT_SECONDS, SLOTS, VerdictHistory
from litelog.shipping.counters import DurableCounts, ReplicaCounters
from tests.builders.daemon_builder import SilentListener
from tests.builders.manual_clock import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

START = 2_900_000
"""The number of a slot since 1970."""
A, B = ("/a", "x"), ("/b", "x")
SAFE, LATE, DAMAGED = ReplicaCondition.SAFE, ReplicaCondition.LATE, ReplicaCondition.DAMAGED
EMPTY = [Verdict.UNKNOWN]


def view(slot: float, *statuses: ReplicaStatus) -> StatusView:
    """The daemon at a time, in slots since 1970."""
    now = slot * SLOT_SECONDS
    return StatusView(statuses, now, int(now * 1_000_000), now, now, now)


def state_of(folder: Path) -> str:
    folder.mkdir(exist_ok=True)
    return str(folder)


def test_each_slot_has_its_worst_verdict_and_a_gone_replica_is_forgotten_after_a_day() -> None:
    history = VerdictHistory()
    history.record(view(START), {A: LATE, B: SAFE})
    history.record(view(START + 0.9), {A: SAFE, B: SAFE})
    history.record(view(START + 3), {A: DAMAGED})
    assert list(history.read(A)) == [*EMPTY * (SLOTS - 4), Verdict.LATE, *EMPTY * 2, Verdict.UNSAFE]
    assert list(history.read(B)) == [*EMPTY * (SLOTS - 4), Verdict.SAFE, *EMPTY * 3]
    history.record(view(START + SLOTS), {A: SAFE})
    assert set(history.read(B)) == {Verdict.UNKNOWN}
    assert list(history.read(A)) == [*EMPTY * 2, Verdict.UNSAFE, *EMPTY * (SLOTS - 4), Verdict.SAFE]
    history.record(view(START + 10 * SLOTS), {A: SAFE})
    assert list(history.read(A)) == [*EMPTY * (SLOTS - 1), Verdict.SAFE]


def test_a_restart_loses_nothing_and_the_time_without_a_daemon_is_unknown(tmp_path: Path) -> None:
    state = state_of(tmp_path)
    first = VerdictHistory(state)
    first.record(view(START), {A: SAFE, B: LATE})
    first.record(view(START + 1), {A: SAFE, B: SAFE})
    first.record(view(START + 1.5), {A: DAMAGED, B: SAFE})
    again = VerdictHistory(state)
    again.record(view(START + 4), {})  # nothing has been opened yet
    again.record(view(START + 4.1), {A: SAFE, B: SAFE})
    assert list(again.read(A))[-5:] == [Verdict.SAFE, Verdict.UNSAFE, *EMPTY * 2, Verdict.SAFE]
    assert list(again.read(B))[-5:] == [Verdict.LATE, Verdict.SAFE, *EMPTY * 2, Verdict.SAFE]
    long_after = VerdictHistory(state)
    long_after.record(view(START + 4 + SLOTS), {A: SAFE})
    assert list(long_after.read(A)) == [*EMPTY * (SLOTS - 1), Verdict.SAFE]


def test_a_start_within_the_slot_keeps_its_worst_verdict(tmp_path: Path) -> None:
    state = state_of(tmp_path)
    VerdictHistory(state).record(view(START), {A: DAMAGED})
    again = VerdictHistory(state)
    again.record(view(START + 0.5), {A: SAFE})
    assert again.read(A)[-1] is Verdict.UNSAFE


def test_after_the_clock_jumps_back_later_verdicts_are_dropped(tmp_path: Path) -> None:
    state = state_of(tmp_path)
    history = VerdictHistory(state)
    history.record(view(START), {A: LATE})
    history.record(view(START + 3), {A: DAMAGED})
    again = VerdictHistory(state)
    for each in (again, history):  # a daemon that starts after the jump, and a daemon that runs during it
        each.record(view(START + 1), {A: SAFE})
        assert list(each.read(A)) == [*EMPTY * (SLOTS - 2), Verdict.LATE, Verdict.SAFE]
    long_before = VerdictHistory(state)
    long_before.record(view(START - 1000), {A: SAFE})
    assert list(long_before.read(A)) == [*EMPTY * (SLOTS - 1), Verdict.SAFE]


@pytest.mark.slow
def test_the_file_is_small_private_and_written_only_if_something_changed(tmp_path: Path) -> None:
    state, file = state_of(tmp_path), tmp_path / FILE
    history = VerdictHistory(state)
    history.record(view(START), {("/" + "a" * 50 + str(number), "s3://b/x"): SAFE for number in range(1000)})
    first = file.stat()
    assert first.st_size < 300 * 1000
    assert first.st_mode & 0o777 == 0o600
    history.record(view(START + 0.5), {("/" + "a" * 50 + str(number), "s3://b/x"): SAFE for number in range(1000)})
    assert file.stat().st_ino == first.st_ino
    for slot in (1, SLOTS + 1):
        history.record(view(START + slot), {A: SAFE})
    assert file.stat().st_size < 1000, "the file must drop replicas a day after they are gone"


@pytest.mark.parametrize("damage", ["nothing", "text", "digit", "other version", "slots too many", "a folder"])
def test_a_damaged_file_counts_as_missing_and_is_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    state, file = state_of(tmp_path), tmp_path / FILE
    VerdictHistory(state).record(view(START), {A: LATE})
    text = file.read_text()
    if damage == "a folder":
        file.unlink()
        file.mkdir()
    else:
        changed = {
            "nothing": "",
            "text": text[:-9],
            "digit": text.replace('03"', '01"'),
            "other version": text.replace('"version": 1', '"version": 2'),
            "slots too many": text.replace('"slots": "', '"slots": "4'),
        }[damage]
        assert changed != text
        file.write_text(changed)
    again = VerdictHistory(state)
    again.record(view(START + 1), {A: SAFE})
    assert list(again.read(A)) == [*EMPTY * (SLOTS - 1), Verdict.SAFE]
    assert f"{file}: cannot be used: " in caplog.text
    after = VerdictHistory(state)
    after.record(view(START + 2), {A: SAFE})
    assert after.read(A)[-2] is (Verdict.UNKNOWN if damage == "a folder" else Verdict.SAFE)


def test_daemons_that_share_a_state_folder_replace_only_their_own_verdicts(tmp_path: Path) -> None:
    state = state_of(tmp_path)
    one, other = VerdictHistory(state), VerdictHistory(state)
    one.record(view(START), {A: LATE})
    other.record(view(START), {B: LATE})
    one.record(view(START + 1), {A: SAFE})
    other.record(view(START + 1), {B: DAMAGED})
    one.record(view(START + 2), {A: SAFE})
    after = VerdictHistory(state)
    after.record(view(START + 2), {})
    assert list(after.read(A))[-3:] == [Verdict.LATE, Verdict.SAFE, Verdict.SAFE]
    assert list(after.read(B))[-3:] == [Verdict.LATE, Verdict.UNSAFE, Verdict.UNKNOWN]


def test_a_log_whose_name_is_not_utf_8_is_kept(tmp_path: Path) -> None:
    state, pair = state_of(tmp_path), (os.fsdecode(b"/\xff"), "file:///r")
    VerdictHistory(state).record(view(START), {pair: LATE})
    again = VerdictHistory(state)
    again.record(view(START), {pair: SAFE})
    assert again.read(pair)[-1] is Verdict.LATE


def test_a_folder_that_cannot_be_written_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    history = VerdictHistory(str(tmp_path / "gone"))
    for slot in range(3):
        history.record(view(START + slot), {A: LATE})
    (record,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert record.getMessage() == f"{tmp_path}/gone/{FILE}: cannot be kept: {os.strerror(errno.ENOENT)}"
    assert list(history.read(A))[-3:] == [Verdict.LATE] * 3


@pytest.mark.slow
def test_the_rate_counts_bytes_shipped_between_two_records() -> None:
    history, clock = VerdictHistory(), ManualClock()

    def shipped(sequence: int, size: int) -> ReplicaStatus:
        counters = ReplicaCounters(SilentListener(), clock)
        counters._counts = DurableCounts(wal_log_bytes=size)
        return ReplicaStatus(*A, "required", "idle", None, sequence, None, 0, counters=counters)

    assert history.rate is None
    history.record(view(START, shipped(1000, 0)), {A: SAFE})
    assert history.rate is None
    history.record(view(START + 10 / SLOT_SECONDS, shipped(1500, 4096)), {A: SAFE})
    rate = history.rate
    assert rate is not None
    assert (round(rate.records, 3), round(rate.log_bytes, 3)) == (50.0, 409.6)
