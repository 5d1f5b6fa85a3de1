"""The warnings and errors of daemons in a soak: each is of an expected kind, and counted."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.faults.soak_processes import Daemon

REQUEST_EVENTS = {"sealing-failed", "verify-failed", "snapshot-damaged", "prune-failed", "delete-refused"}
"""What is logged as a warning, or worse, where a request fails, or its answer is damaged: so of S3 alone."""

GOING_EVENTS = {"log-removed", "sealed-from-wal", "folder-unreadable"}
"""The same, where a log goes: before all of it was shipped, before it was sealed, or while its folder is looked at."""

KILL_EVENTS = {"snapshot-replaced", "state-caught-up"}
"""The same, where a daemon was killed between a snapshot and the state that would have told of it."""

START_EVENTS = {"not-truncated"}
"""The same, where a log's first replica is synced, and what it holds could go, before its second one is open."""

EXPECTED_EVENTS = {"sync-failed", *REQUEST_EVENTS, *GOING_EVENTS, *KILL_EVENTS, *START_EVENTS}
"""All of it: a sync fails for either of the first two reasons."""

EXPECTED_ERRORS = {"store", "source_missing"}
"""Kinds of errors that syncs end with: requests fail, and logs go away."""


def count_errors(daemon: Daemon) -> Counter[str]:
    """Syncs fail for the reasons that there are, and where these are: how often for each."""
    counts: Counter[str] = Counter()
    for (replica, kind), count in daemon.metrics("litelog_errors_total", "replica", "kind").items():
        assert kind in EXPECTED_ERRORS, daemon.errors()
        assert kind == "source_missing" or replica.startswith("s3:"), daemon.errors()
        counts[kind] += int(count)
    return counts


def check_logged(lives: Sequence[Daemon]) -> Counter[str]:
    """No line of any life complains of anything else, no generation was begun but the first, no scrub has found
    anything: how much was logged, by event."""
    counts: Counter[str] = Counter()
    generations: dict[tuple[str, str], set[str]] = {}
    for life in lives:
        facts = life.logged.read()
        assert not life.logged.others, life.logged.others[:3]
        for fact in facts:
            if fact["level"] in ("WARNING", "ERROR", "CRITICAL"):
                assert fact.get("event") in EXPECTED_EVENTS, fact
                assert fact["event"] not in REQUEST_EVENTS or fact["replica"].startswith("s3:"), fact
                counts[f"logged {fact['event']}"] += 1
        for event in life.events("began"):
            generations.setdefault((event["log"], event["replica"]), set()).add(event["generation"])
        for event in life.events("verified"):
            assert not event["anomalies"], event
            counts["scrubs"] += 1
    many = {pair: names for pair, names in generations.items() if len(names) > 1}
    assert not many, "no restart, reload or fault begins a generation"
    return counts
