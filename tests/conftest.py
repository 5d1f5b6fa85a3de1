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


@pytest.fixture(autouse=True)
def _logging_stays_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
