"""A log that was rewound still begins with acknowledged bytes. Every restore has them, no matter at which put the
daemon ends."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from litelog.objects import claim as claims
from litelog.objects.layout import parse_claim
from litelog.shipping.shared_end import count_equal
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon, restored, start_sealing
from tests.builders.manual_clock import ManualClock
from tests.builders.stores import KilledError, KillingStore
from tests.sampling import sampled_cases

if TYPE_CHECKING:
    from pathlib import Path

    from litelog.objects.claim import Claim
    from tests.builders.log_builder import LogBuilder

ALL_FORMATS = pytest.mark.parametrize(
    "log", ["litelog", "lines", "raw", "spacetimedb", "netlog", "influxdb"], indirect=True
)

PUTS = range(1, 9)
"""More puts than a new generation of these logs needs."""


def newest_claim(store: MemoryStore) -> Claim:
    keys = sorted(info.key for info in store.list("") if parse_claim(info.key) is not None)
    return claims.decode(keys[-1], bytes(store.open(keys[-1]).read()))


def grow(log: LogBuilder, daemon: Daemon, commits: int) -> list[int]:
    """Append commits, and ship each in its own WAL segment. Returns the end of each commit."""
    ends = []
    for _ in range(commits):
        log.append(1)
        daemon.sync()
        ends.append(len(log.texts[log.name]))
    return ends


def copy_of(store: MemoryStore) -> MemoryStore:
    copied = MemoryStore("copy")
    for info in store.list(""):
        copied.put(info.key, [store.open(info.key).read()])
    return copied


def end_at_each_put(
    log: LogBuilder, store: MemoryStore, daemon: Daemon, target: Path, *, needed: dict[str, bytes]
) -> Claim:
    """Let a daemon continue on the log as it is now, and end it at each put in turn. Returns the claim it makes."""
    daemon.close()
    ended = 0
    for at in PUTS:
        for after in (False, True):
            held, state = copy_of(store), f"{daemon.folder.path}-{at}-{after}"
            shutil.copytree(daemon.folder.path, state)
            killed = Daemon(log, KillingStore(held, at, after=after), state, backlog_sealer=daemon.backlog_sealer)
            try:
                killed.sync()
            except KilledError:
                ended += 1
            killed.crash()
            found = restored(held, target, log.format)
            for name, body in needed.items():
                assert found.get(name, b"").startswith(body), f"{name} lacks acknowledged bytes, put {at} {after}"
            continued = Daemon(log, held, state, backlog_sealer=daemon.backlog_sealer)
            continued.sync()
            assert restored(held, target, log.format) == log.files()
    assert ended >= 8, "two puts of the claim, the terminal, and the first snapshot, before and after each"
    return newest_claim(held)


@pytest.mark.slow
@ALL_FORMATS
@pytest.mark.parametrize("kept", sampled_cases([0, 2, 3], 3, "what is left of a rewound log"))
def test_after_a_rewind_and_a_crash_at_any_put_a_restore_has_the_shared_bytes(
    log: LogBuilder, store: MemoryStore, state: str, tmp_path: Path, kept: int
) -> None:
    daemon = Daemon(log, store, state)
    daemon.sync()
    log.roll(1)
    ends = grow(log, daemon, 6)
    log.truncate(ends[kept])
    log.next -= len(ends) - 1 - kept
    log.append(2, size=50)
    beginning = log.texts[log.name][: ends[kept]]
    claim = end_at_each_put(log, store, daemon, tmp_path / "out", needed={log.name: beginning})
    assert claim.relation == "diverged"
    assert claim.shared_end is not None
    assert claim.shared_end.offset >= ends[kept]


@pytest.mark.slow
def test_a_log_that_was_rewound_into_a_sealed_segment(
    log: LogBuilder, store: MemoryStore, state: str, tmp_path: Path
) -> None:
    daemon = start_sealing(log, store, state, ManualClock())
    daemon.sync()
    ends = grow(log, daemon, 4)
    first = log.name
    log.roll(2)
    daemon.close()
    daemon = start_sealing(log, store, str(tmp_path / "other"), ManualClock(), takeover=True)
    daemon.sync()
    log.delete(log.name)
    log.name = first
    log.truncate(ends[1])
    beginning = log.texts[first][: ends[1]]
    shared = end_at_each_put(log, store, daemon, tmp_path / "out", needed={first: beginning}).shared_end
    assert shared is not None
    assert shared.offset == ends[1]


def test_a_torn_commit_at_the_end_is_not_waited_for(log: LogBuilder, store: MemoryStore, state: str) -> None:
    daemon = Daemon(log, store, state)
    daemon.sync()
    ends = grow(log, daemon, 3)
    log.truncate(ends[1] + 5)
    daemon.sync()
    shared = newest_claim(store).shared_end
    assert shared is not None
    assert shared.offset == ends[1]


def test_other_commits_of_the_same_size_are_not_shared(log: LogBuilder, store: MemoryStore, state: str) -> None:
    """All commits that end with their own CRC-32C have the same CRC-32C, whatever they hold."""
    daemon = Daemon(log, store, state)
    daemon.sync()
    ends = grow(log, daemon, 4)
    log.truncate(ends[1])
    log.next -= 2
    log.write(log.commit(tag=b"q") + log.commit(tag=b"q"))
    assert len(log.texts[log.name]) == ends[3]
    daemon.sync()
    shared = newest_claim(store).shared_end
    assert shared is not None
    assert ends[1] <= shared.offset < ends[2]


def test_a_log_with_nothing_in_common_states_no_end(log: LogBuilder, store: MemoryStore, state: str) -> None:
    daemon = Daemon(log, store, state)
    daemon.sync()
    log.delete(log.name)
    log.next = 500
    log.roll(2)
    daemon.sync()
    claim = newest_claim(store)
    assert claim.relation == "diverged"
    assert claim.shared_end is None


def test_a_log_that_is_rewound_again_before_its_beginning_is_shipped_diverges_again(
    log: LogBuilder, store: MemoryStore, state: str, tmp_path: Path
) -> None:
    daemon = Daemon(log, store, state)
    daemon.sync()
    ends = grow(log, daemon, 4)
    daemon.close()
    log.truncate(ends[2])
    killed = Daemon(log, KillingStore(store, 5, after=False), state)  # two claims, a terminal and the snapshot are put
    with pytest.raises(KilledError):
        killed.sync()
    killed.crash()
    log.truncate(ends[0])
    log.next -= 3
    log.append(1, size=30)
    daemon = Daemon(log, store, state)
    daemon.sync()
    assert restored(store, tmp_path / "out") == log.files()
    assert newest_claim(store).epoch == 3


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [(b"", b"", 0), (b"ab", b"", 0), (b"ab", b"abc", 2), (b"abd", b"abc", 2), (b"x", b"y", 0)],
)
def test_common_beginnings_are_counted(one: bytes, other: bytes, equal: int) -> None:
    assert count_equal(one, other) == equal
    assert count_equal(memoryview(other), one) == equal
