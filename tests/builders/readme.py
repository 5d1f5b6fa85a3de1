"""The README, and the code blocks in it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


README = (ROOT / "README.md").read_text()


def blocks(language: str, after: str) -> list[str]:
    """The code blocks of a language in the section of a heading."""
    section = README.split(f"\n## {after}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.M | re.S)
