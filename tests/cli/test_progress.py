"""Progress of long work: a bar on a terminal, lines elsewhere. There is none with --quiet, and none for short work."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import click
import pytest

from litelog_cli.main import litelog as command
from litelog_cli.progress import LINE_SECONDS, WORTH_SECONDS, describe, showing_progress, watching_progress
from tests.builders.short_waits import SHORT_TRIAL

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

    from tests.builders.servers import S3Server

MIB = 1 << 20

ON_A_TERMINAL = """
import sys
from litelog_cli.progress import showing_progress
now = 0.0
with showing_progress("verify", quiet=False, steady=lambda: now) as show:
    show(10 << 20, 200 << 20)
    print("early", file=sys.stderr, flush=True)
    now = float(sys.argv[1])
    show(100 << 20, 200 << 20)
"""


def test_a_line_comes_after_two_seconds_and_then_every_ten(capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    with showing_progress("restore", quiet=False, steady=lambda: now) as show:
        assert show is not None
        show(MIB, 100 * MIB)
        now += WORTH_SECONDS - 0.1
        show(2 * MIB, 100 * MIB)
        assert not capsys.readouterr().err
        now += 0.1
        show(10 * MIB, 100 * MIB)
        assert capsys.readouterr().err == "restore: 10.0 MiB of 100.0 MiB, 5.0 MiB/s, 18.0s left\n"
        now += LINE_SECONDS - 0.1
        show(20 * MIB, 100 * MIB)
        assert not capsys.readouterr().err
        now += 0.1
        show(60 * MIB, 100 * MIB)
        assert capsys.readouterr().err == "restore: 60.0 MiB of 100.0 MiB, 5.0 MiB/s, 8.0s left\n"


@pytest.mark.parametrize(
    ("done", "whole", "seconds", "text"),
    [
        (0, 10, 3.0, "0 B of 10 B, 0 B/s"),
        (MIB, None, 2.0, "1.0 MiB, 512.0 KiB/s"),
        (MIB, MIB, 2.0, "1.0 MiB of 1.0 MiB, 512.0 KiB/s"),
        (2 * MIB, MIB, 2.0, "2.0 MiB of 1.0 MiB, 1.0 MiB/s"),
        (1, 10, 0.0, "1 B of 10 B, 0 B/s"),
    ],
)
def test_progress_shows_bytes_rate_and_time_left_if_known(
    done: int, whole: int | None, seconds: float, text: str
) -> None:
    assert describe(done, whole, seconds) == text


def test_quiet_shows_nothing_and_asks_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    asked = []
    with showing_progress("restore", quiet=True) as show:
        assert show is None
    with watching_progress("replicate", quiet=True, look=lambda: asked.append(1) or (0, None)):  # type: ignore[func-returns-value]
        pass
    assert not asked
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("seconds", "drawn"), [(0.5, False), (3.0, True)])
def test_a_terminal_shows_a_bar_for_long_work(tmp_path: Path, seconds: float, drawn: bool) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    try:
        script = [sys.executable, "-c", ON_A_TERMINAL, str(seconds)]
        process = subprocess.Popen(script, stderr=theirs, cwd=tmp_path, env=environment)
    finally:
        os.close(theirs)
    shown = b""
    with suppress(OSError):  # EIO, when the other end is closed
        while piece := os.read(ours, 65536):
            shown += piece
    os.close(ours)
    assert process.wait(240) == 0
    assert b"early" in shown
    assert (b"verify" in shown and b"100.0/200.0 MiB" in shown) is drawn
    assert (b"\x1b[" in shown) is drawn, "a bar must draw, and remove itself"


def test_every_verb_with_progress_can_be_quiet() -> None:
    context = click.Context(command)
    for name in ("restore", "verify", "prune", "replicate", "snapshot"):
        verb = command.get_command(context, name)
        assert verb is not None
        assert any("--quiet" in parameter.opts for parameter in verb.params), name


SLOW_SECONDS = 0.1

SOON = """
from litelog_cli import progress
progress.WORTH_SECONDS = progress.LINE_SECONDS = progress.ASK_SECONDS = 0.02
"""


@pytest.mark.parametrize("how", [[], ["--quiet"], ["--json"]])
def test_a_slow_store_is_reported_unless_quiet_is_set(litelog: Command, server: S3Server, how: list[str]) -> None:
    from tests.builders.servers import REGION, Request, ScriptedServer, forwarded

    bucket = server.make_bucket()
    url = f"s3://{bucket}/log"

    def answer(request: Request) -> object:
        if request.method in ("GET", "PUT") and ".wal" in request.path and "list-type" not in request.path:
            time.sleep(SLOW_SECONDS)  # a slow store
        return forwarded(server.endpoint, request)

    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": REGION}
    litelog.lines(100)
    litelog.before = SHORT_TRIAL + SOON
    with ScriptedServer(answer) as slow:  # type: ignore[arg-type]
        slowly = {**keys, "AWS_ENDPOINT_URL": slow.endpoint}
        shipped = litelog("replicate", "--once", "log", f"s3://{bucket}/first", *how, **slowly)
    assert shipped.code == 0, shipped.err
    assert ("replicate: " in shipped.err and " of " in shipped.err) is not bool(how)
    there = {**keys, "AWS_ENDPOINT_URL": server.endpoint}
    assert litelog("replicate", "--once", "log", url, **there).code == 0
    with ScriptedServer(answer) as slow:  # type: ignore[arg-type]
        done = litelog("restore", url, "-o", "out", *how, **{**keys, "AWS_ENDPOINT_URL": slow.endpoint})
    assert done.code == 0, done.err
    assert ("\nrestore: " in done.err and " of " in done.err) is not bool(how)
