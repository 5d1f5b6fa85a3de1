"""What holds for all tests."""

from __future__ import annotations

import os

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # the processes that tests start would compile everything, each time
