"""Runs a restoring script with a fault at each of its system calls in turn, one file or folder at a time.

strace counts calls by thread, so each path is walked by itself: always the same thread changes it. By day the faults
are a sample of the calls that a whole run makes. The full walk at night continues until a run meets no fault.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from litelog.restore.journal import JOURNAL_NAME
from tests.faults.tracing import count_calls, run_traced
from tests.sampling import NIGHTLY, shuffled

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable, Iterator

    from tests.warm import Warm

TEMPORARY = ".out.litelog-restoring"
"""The temporary folder beside ``out``, the output of all these restores."""

MOST_STEPS = 200
"""More calls than a restore of so small a log makes."""


def touched_by_copies(names: Iterable[str]) -> tuple[str, ...]:
    """The paths that a restore over an older copy and a follower touch, relative to the folder that holds ``out``."""
    files = [*names, JOURNAL_NAME, ".lock"]
    return (".", "out", TEMPORARY, *(f"{folder}/{name}" for folder in ("out", TEMPORARY) for name in files))


@dataclass(frozen=True, slots=True)
class Walk:
    """Runs of ``script``, each in a copy of ``template``. The script gets ``arguments`` and the path of the output."""

    warm: Warm
    script: str
    arguments: tuple[str, ...]
    template: Path
    folder: Path
    """The folder of the copies."""
    touched: tuple[str, ...]

    def faults(self, call: str, fault: str, *, one_in: int) -> Iterator[tuple[Path, subprocess.CompletedProcess[str]]]:
        """Each run, with the folder in which it ran.

        By day there is a run for each fault of the sample, and then a run that meets none. At night there is one for
        every call of each path, and then a run that meets none."""
        if NIGHTLY:
            yield from self._all(call, fault)
            return
        steps = [(path, step) for path, count in self._counted(call) for step in range(1, count + 1)]
        name = " ".join((Path(self.template).name, call, fault, *self.arguments[:1]))
        wanted = max(1, len(steps) // one_in)
        for path, step in shuffled(steps, name):
            place, done = self._run(call, fault, path, step)
            yield place, done
            wanted -= done.returncode != 0  # strace looks at the first path of a call, so it counts fewer
            if wanted == 0:
                break
        yield self._run(call, fault, self.touched[0], MOST_STEPS)

    def _all(self, call: str, fault: str) -> Iterator[tuple[Path, subprocess.CompletedProcess[str]]]:
        for path in self.touched:
            for step in range(1, MOST_STEPS):
                place, done = self._run(call, fault, path, step)
                yield place, done
                if done.returncode == 0:
                    break
            else:
                pytest.fail(f"a fault in call {MOST_STEPS} of {path} still shows")

    def _run(self, call: str, fault: str, touched: str, step: int) -> tuple[Path, subprocess.CompletedProcess[str]]:
        """Run with a fault in the ``step``-th call that names ``touched`` or a descriptor of it."""
        place = self.folder / f"{self.touched.index(touched)}-{step}"
        shutil.copytree(self.template, place)
        paths = ["-P", str(place / touched)]
        if _is_below(call, touched):
            paths += ["-P", Path(touched).name]
        tracing = (*paths, "-e", f"inject={call}:{fault}:when={step}")
        return place, run_traced(self.warm, tracing, self.script, *self.arguments, str(place / "out"))

    def _counted(self, call: str) -> list[tuple[str, int]]:
        """For each path, the number of calls with this name that name the path, in a run without faults."""
        place, trace = self.folder / "counted", self.folder / "trace"
        shutil.copytree(self.template, place)
        done = run_traced(
            self.warm,
            ("-y", "-s", "4096", "-o", str(trace), "-e", f"trace={call}"),
            self.script,
            *self.arguments,
            str(place / "out"),
        )
        assert done.returncode == 0, done.stderr
        shutil.rmtree(place)
        found = []
        for path in self.touched:
            named = [f"<{(place / path).resolve()}>", f'"{place / path}"']
            if _is_below(call, path):
                named.append(f'"{Path(path).name}"')
            counts = count_calls(trace, lambda _, text, named=named: any(name in text for name in named))
            found.append((path, counts[call]))
        return found


def _is_below(call: str, touched: str) -> bool:
    """Whether the path is opened relative to the descriptor of its folder."""
    return "/" in touched and call == "openat"
