"""Writes the counts of the fault tests as JSON, one file for each test: ``.figures/NAME.json``.

The README shows the last ones.
"""

from __future__ import annotations

import json
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / ".figures"


def report(name: str, **numbers: float) -> None:
    """Write a test's figures."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(numbers, indent=1) + "\n")
