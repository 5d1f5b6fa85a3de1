"""Reads the files of ``etc/`` for running litelog as a service, from a wheel or a checkout."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent

EXAMPLE_CONFIG = "litelog.yml"


def read_service_file(name: str) -> str:
    """The text of a file. In a checkout, an editable installation included, it is the one in ``etc/``."""
    packaged = HERE / "etc" / name
    path = packaged if packaged.is_file() else HERE.parents[1] / "etc" / name
    return path.read_text(encoding="utf-8")
