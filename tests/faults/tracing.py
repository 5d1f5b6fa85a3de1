"""Runs programs under strace: traces their calls, kills them at a call, or makes a call fail.

A program starts warm and held (``tests/warm.py``), strace attaches to it, and then it begins. So its imports are not
traced, and take no time.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

from tests.waiting import WAIT_SECONDS
from tests.warm import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.warm import Warm

_CALL = re.compile(r"(\d+) +(\w+)\((.*)")


def why_not_traced() -> str | None:
    """The reason to skip, or None."""
    if sys.platform != "linux" or shutil.which("strace") is None:
        return "strace is not installed"
    tried = subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False)
    return None if tried.returncode == 0 else "strace may not trace here"


def run_traced(warm: Warm, tracing: tuple[str, ...], script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script to its end, all threads under strace with these options; without options, without strace."""
    with warm.start(script, *arguments, cwd=ROOT, held=True) as started:
        tracer: subprocess.Popen[str] | None = None
        try:
            if tracing:
                output = () if "-o" in tracing else ("-o", "/dev/null")
                command = ["strace", "-f", *output, *tracing, "-p", str(started.pid)]
                tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
                assert tracer.stderr is not None
                line = tracer.stderr.readline()
                assert "attached" in line, line
            started.release()
            out, err = started.communicate(timeout=WAIT_SECONDS)
        finally:
            if tracer is not None:
                started.kill()
                tracer.communicate(timeout=WAIT_SECONDS)  # the trace is whole when strace has ended
    assert started.returncode is not None
    return subprocess.CompletedProcess([script, *arguments], started.returncode, out, err)


def count_calls(trace: Path, is_meant: Callable[[str, str], bool] = lambda _call, _arguments: True) -> Counter[str]:
    """For each name, the most calls that one thread made in a trace (``-f -o``).

    strace's ``when=`` also counts by thread."""
    counts: Counter[tuple[str, str]] = Counter()
    for line in trace.read_text(errors="replace").splitlines():
        if match := _CALL.match(line):
            thread, call, text = match.groups()
            counts[thread, call] += is_meant(call, text.rpartition(") = ")[0] or text)
    most: Counter[str] = Counter()
    for (_, call), count in counts.items():
        most[call] = max(most[call], count)
    return most
