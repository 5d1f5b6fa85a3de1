"""Processor time of the descendants of this process, by kind: ``java`` or ``python``."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def tree_seconds() -> dict[str, float]:
    """Return the processor seconds of all descendants, including ended ones, by kind."""
    parents: dict[int, int] = {}
    found: dict[int, tuple[str, float]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:  # the process has just ended
            continue
        name, fields = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
        pid = int(path.parent.name)
        parents[pid] = int(fields[1])
        own, waited = sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))
        kind = "java" if name.startswith("java") else "python"
        found[pid] = (kind, (own if kind == "java" else own + waited) / _TICKS)
    seconds: dict[str, float] = defaultdict(float)
    for pid, (kind, spent) in found.items():
        above = parents[pid]
        while above > 1 and above != os.getpid():
            above = parents.get(above, 0)
        if above == os.getpid():
            seconds[kind] += spent
    return dict(seconds)
