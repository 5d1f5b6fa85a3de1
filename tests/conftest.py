"""What holds for all tests."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # the processes that tests start would compile everything, each time

# How long an example takes, or to make one, is the machine's affair, and no assertion.
settings.register_profile("litelog", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("litelog")
