"""What holds for all tests."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # the processes that tests start would compile everything, each time

# How long an example takes, or to make one, is the machine's affair, and no assertion.
settings.register_profile("litelog", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("litelog")


MARKED = {
    "tests/cli/": "process",
    "tests/spark/": "spark",
    "tests/faults/": "slow",
    "tests/faults/test_file_store_crash.py": "crash",
    "tests/faults/test_kill_cycles.py": "process",
    "tests/faults/test_power_loss.py": "process",
    "tests/faults/test_prune_crash.py": "crash",
    "tests/faults/test_restore_copies_crash.py": "crash",
    "tests/faults/test_restore_crash.py": "crash",
    "tests/faults/test_restore_sync_order.py": "crash",
    "tests/faults/test_s3_two_daemons.py": "process",
    "tests/faults/test_ship_crash.py": "crash",
    "tests/faults/test_soak.py": "process",
}
"""Markers of folders and modules, by the beginning of their paths."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what a place decides; each test says the rest itself."""
    for item in items:
        place = item.nodeid.partition("::")[0]
        for marked, marker in MARKED.items():
            if place.startswith(marked):
                item.add_marker(marker)
        if item.get_closest_marker("crash"):
            item.add_marker("process")


@pytest.fixture(autouse=True)
def _logging_stays_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
