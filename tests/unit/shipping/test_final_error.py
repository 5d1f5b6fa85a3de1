"""The state folder keeps the error with which shipping ended, until shipping succeeds again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from litelog.errors import (
    CorruptCommitError,
    FencedError,
    LitelogError,
    SourceSyncError,
    StoreError,
    UnknownVersionError,
)
from litelog.shipping.final_error import FILE, EndKind, FinalErrorRecord, find_end, read_final_error, remove_final_error
from litelog.system.checked_files import write_checked
from tests.builders.daemon_builder import Daemon

if TYPE_CHECKING:
    from tests.builders.log_builder import LogBuilder
    from tests.builders.stores import CountingStore


@pytest.fixture
def daemon(log: LogBuilder, store: CountingStore, tmp_path: Path) -> Daemon:
    made = Daemon(log, store, str(tmp_path / "state"))
    made.sync()
    return made


@pytest.fixture
def rival(log: LogBuilder, store: CountingStore, tmp_path: Path) -> Daemon:
    return Daemon(log, store, str(tmp_path / "rival"), takeover=True, seed=1, host="there")


def fence(daemon: Daemon, rival: Daemon) -> FencedError:
    """Let ``rival`` take over, and return the error of the daemon's next sync."""
    rival.sync()
    daemon.log.append(1)
    with pytest.raises(FencedError) as caught:
        daemon.sync()
    return caught.value


def test_nothing_is_kept_while_shipping_works(daemon: Daemon) -> None:
    daemon.log.append(1)
    daemon.sync()
    assert read_final_error(daemon.folder.path) is None
    assert not (Path(daemon.folder.path) / FILE).exists()


def test_a_fenced_daemon_keeps_who_took_over_and_when(daemon: Daemon, rival: Daemon) -> None:
    error = fence(daemon, rival)
    found = read_final_error(daemon.folder.path)
    assert found is not None
    assert (found.kind, found.message, found.time) == (EndKind.FENCED, str(error), daemon.clock.now())
    claim = rival.claims[-1]
    assert f"succeeded by {claim.generation}: owner {claim.owner[:8]} on {claim.host} took the replica over" in str(
        error
    )
    assert read_final_error(rival.folder.path) is None


def test_the_time_is_that_of_the_first_error_of_its_kind(daemon: Daemon, rival: Daemon) -> None:
    fence(daemon, rival)
    first = read_final_error(daemon.folder.path)
    daemon.clock.advance(100.0)
    daemon.restart()
    with pytest.raises(FencedError):
        daemon.sync()
    later = read_final_error(daemon.folder.path)
    assert first is not None
    assert later is not None
    assert later.time == first.time
    record = FinalErrorRecord(daemon.folder.path, daemon.clock)
    record.note(CorruptCommitError("0.log", 7, "checksum", 1, 2))
    last = read_final_error(daemon.folder.path)
    assert last is not None
    assert (last.kind, last.time) == (EndKind.FROZEN, daemon.clock.now())


def test_a_daemon_that_takes_over_again_is_no_longer_fenced(daemon: Daemon, rival: Daemon) -> None:
    fence(daemon, rival)
    daemon.restart(takeover=True)
    assert read_final_error(daemon.folder.path) is not None
    daemon.sync()
    assert read_final_error(daemon.folder.path) is None


def test_an_error_that_may_pass_is_not_kept(daemon: Daemon) -> None:
    record = FinalErrorRecord(daemon.folder.path, daemon.clock)
    record.note(StoreError("put", "key", "timed out"))
    assert read_final_error(daemon.folder.path) is None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FencedError("another one has it"), EndKind.FENCED),
        (CorruptCommitError("0.log", 7, "checksum", 1, 2), EndKind.FROZEN),
        (UnknownVersionError("key", "snapshot", 1, 2), EndKind.FROZEN),
        (SourceSyncError("0.log", "input/output error"), EndKind.FROZEN),
        (StoreError("put", "key", "timed out"), None),
        (LitelogError("anything else"), None),
    ],
)
def test_errors_that_only_a_person_can_mend_end_shipping(error: LitelogError, kind: EndKind | None) -> None:
    assert find_end(error) is kind


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"\xff"])
def test_a_file_that_cannot_be_read_counts_as_missing(daemon: Daemon, rival: Daemon, body: bytes) -> None:
    fence(daemon, rival)
    (Path(daemon.folder.path) / FILE).write_bytes(body)
    assert read_final_error(daemon.folder.path) is None


def test_a_kind_of_a_newer_litelog_counts_as_none(daemon: Daemon) -> None:
    write_checked(f"{daemon.folder.path}/{FILE}", {"kind": "melted", "message": "it melted", "time": 1})
    assert read_final_error(daemon.folder.path) is None


def test_what_is_kept_can_be_removed_twice(daemon: Daemon, rival: Daemon) -> None:
    fence(daemon, rival)
    for _ in range(2):
        remove_final_error(daemon.folder.path)
        assert read_final_error(daemon.folder.path) is None
