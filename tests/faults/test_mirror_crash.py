"""Kills a mirror, or fails it, at every system call that changes the disk: it is a prefix of the log, and continues."""

from __future__ import annotations

import os
import shutil
import signal
from itertools import product
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("urllib3")

from litelog.log.mirror_note import MIRROR_NAME
from litelog.log.writer import LOCK_NAME
from litelog.restore.opened_mirror import opened_mirror
from tests.builders.log_builder import make_log
from tests.builders.restoring import files_in
from tests.builders.server_builder import Watched
from tests.faults.figures import report
from tests.faults.restore_walk import Walk
from tests.faults.tracing import why_not_traced
from tests.sampling import sampled_cases
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.warm import Warm

pytestmark = pytest.mark.skipif(why_not_traced() is not None, reason=why_not_traced() or "")

CALLS = ("openat", "flock", "pwrite64", "pwritev2", "ftruncate", "fsync", "write", "rename", "close")
FAULTS = ("signal=KILL", "error=EIO", "error=ENOSPC")
CASES = [(fault, call) for fault, call in product(FAULTS, CALLS) if call != "close" or fault == "signal=KILL"]
ONE_IN = 8

SCRIPT = """
import sys
from litelog.errors import LitelogError
from litelog.restore.opened_mirror import opened_mirror

url, output = sys.argv[1:]
try:
    with opened_mirror(url, {}, output) as mirror:
        while mirror.step(0.3):
            pass
    print("mirrored", flush=True)
except LitelogError as error:
    sys.exit(f"refused: {error}")
"""


def held(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in files_in(folder).items() if name not in (MIRROR_NAME, LOCK_NAME)}


def is_prefix(files: dict[str, bytes], *, of: dict[str, bytes]) -> bool:
    """Whether log segments are those of a log up to some byte."""
    grown = b"".join(files.get(name, b"") for name in of)
    return files.keys() <= of.keys() and b"".join(of.values()).startswith(grown)


@pytest.mark.parametrize(("fault", "call"), sampled_cases(CASES, 3, "calls of a mirror"))
def test_a_mirror_with_a_fault_at_any_call_is_a_prefix_and_continues(
    tmp_path: Path, warm: Warm, fault: str, call: str
) -> None:
    log = make_log(tmp_path / "log")
    log.roll(3)
    template, faults = tmp_path / "template", 0
    with Watched(tmp_path, [(log, [f"file://{tmp_path}/replica"])], {"serve": "all"}) as watched:
        watched.wait_until_ready()
        assert watched.service.address is not None
        url = f"http://127.0.0.1:{watched.service.address.port}/logs/log"
        template.mkdir()
        with opened_mirror(url, {}, str(template / "out")) as mirror:
            mirror.step(0.0)
        with (template / "out" / log.name).open("ab") as file:
            file.write(b"torn")
        log.append(2)
        log.roll(2, size=1_200_000)
        log.append(1)
        wait_until(lambda: watched.ask("/logs/log").json["durable"] == log.next)
        names = [*log.texts, LOCK_NAME, MIRROR_NAME]
        touched = (".", "out", *(f"out/{name}" for name in names))
        for place, done in Walk(warm, SCRIPT, (url,), template, tmp_path, touched).faults(call, fault, one_in=ONE_IN):
            out = place / "out"
            if done.returncode == 0:
                assert held(out) == log.texts
            else:
                faults += 1
                killed = done.returncode == -signal.SIGKILL
                assert killed if fault == "signal=KILL" else done.stderr.splitlines()[-1].startswith("refused: "), done
                whole = {name: data.removesuffix(b"torn") for name, data in held(out).items()}
                assert is_prefix(whole, of=log.texts), place
                with opened_mirror(url, {}, str(out)) as mirror:
                    while mirror.step(0.1):
                        pass
                assert held(out) == log.texts
                assert os.listdir(place) == ["out"]
            shutil.rmtree(place)
    report(f"mirror_{fault.partition('=')[2]}_{call}", faults=faults, failures=0)
    assert faults > 0 or call in ("rename", "write")
