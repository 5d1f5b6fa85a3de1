"""A daemon remembers across restarts that its log was rewound, until a person dismisses that."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from litelog.shipping.divergence import DISMISSED_FILE, FILE, DivergenceRecord, dismiss, read_divergence
from tests.builders.daemon_builder import Daemon

if TYPE_CHECKING:
    from tests.builders.log_builder import LogBuilder
    from tests.builders.stores import CountingStore


@pytest.fixture
def daemon(log: LogBuilder, store: CountingStore, tmp_path: Path) -> Daemon:
    made = Daemon(log, store, str(tmp_path / "state"))
    made.sync()
    return made


def rewind(daemon: Daemon) -> None:
    """Remove the last commit from the log, and sync."""
    path = daemon.log.path()
    with open(path, "r+b") as file:
        file.truncate(file.seek(0, 2) - len(daemon.log.commit()))
    daemon.sync()


def test_a_generation_that_follows_is_no_divergence(daemon: Daemon) -> None:
    daemon.log.append(2)
    daemon.sync()
    assert daemon.replica.divergence.open is None
    assert read_divergence(daemon.folder.path) is None


def test_the_record_of_a_rewound_log_holds_the_acknowledged_sequence(daemon: Daemon) -> None:
    before, held = daemon.replica.position, daemon.replica.sequence
    assert before is not None
    rewind(daemon)
    found, now = daemon.replica.divergence.open, daemon.replica.position
    assert found is not None
    assert now is not None
    assert (found.generation, found.predecessor, found.sequence) == (now.generation, before.generation, held)
    assert found.reason
    assert found.time == daemon.clock.now()
    assert read_divergence(daemon.folder.path) == found
    daemon.restart()
    daemon.sync()
    assert daemon.replica.divergence.open == found, "the number that only the first daemon knew is kept"


def test_a_dismissal_is_noticed_kept_and_does_not_cover_the_next_one(daemon: Daemon) -> None:
    rewind(daemon)
    record = daemon.replica.divergence
    record.look()
    assert record.open is not None
    assert dismiss(daemon.folder.path) == record.open
    record.look()
    assert record.open is None
    assert dismiss(daemon.folder.path) is None
    assert DivergenceRecord(daemon.folder.path).open is None
    rewind(daemon)
    assert record.open is not None
    assert DivergenceRecord(daemon.folder.path).open == record.open


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"\xff"])
def test_files_that_cannot_be_read_count_as_missing(daemon: Daemon, body: bytes) -> None:
    rewind(daemon)
    folder = Path(daemon.folder.path)
    (folder / DISMISSED_FILE).write_bytes(body)
    assert read_divergence(daemon.folder.path) is not None
    (folder / FILE).write_bytes(body)
    assert read_divergence(daemon.folder.path) is None
