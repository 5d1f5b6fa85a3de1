"""Checks that the warnings and errors of a soak's daemons are of expected kinds, and counts them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.faults.soak_processes import Daemon

REQUEST_EVENTS = {"sealing-failed", "verify-failed", "snapshot-damaged", "prune-failed", "delete-refused"}
"""Warnings and errors after a request has failed or its answer was damaged. Only requests to S3 fail."""

GOING_EVENTS = {"log-removed", "sealed-from-wal", "folder-unreadable"}
"""Warnings and errors when a log is removed: before all of it was shipped, before it was sealed, or during a scan."""

KILL_EVENTS = {"snapshot-replaced", "state-caught-up"}
"""Warnings after a daemon was killed between a snapshot and the state that names it."""

START_EVENTS = {"not-truncated"}
"""Warnings when a log's first replica is synced, and so could be truncated, before its second replica is open."""

EXPECTED_EVENTS = {"sync-failed", *REQUEST_EVENTS, *GOING_EVENTS, *KILL_EVENTS, *START_EVENTS}
"""All of these. A sync fails for either of the first two reasons."""

EXPECTED_ERRORS = {"store", "source_missing"}
"""The kinds of errors of syncs: requests fail, and logs are removed."""


def count_errors(daemon: Daemon) -> Counter[str]:
    """Count the errors of syncs by kind. AssertionError for another kind, or a store error of a folder."""
    counts: Counter[str] = Counter()
    for (replica, kind), count in daemon.metrics("litelog_errors_total", "replica", "kind").items():
        assert kind in EXPECTED_ERRORS, daemon.errors()
        assert kind == "source_missing" or replica.startswith("s3:"), daemon.errors()
        counts[kind] += int(count)
    return counts


def check_logged(lives: Sequence[Daemon]) -> Counter[str]:
    """Count the warnings and errors in the logs of all lives, by event.

    AssertionError for an unexpected event, for a second generation of a replica, or if a scrub has found an anomaly."""
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
    assert not many, "a restart, a reload or a fault began a generation"
    return counts
