"""Kills a put of the file store before each of its system calls, and makes each of the calls fail.

strace attaches to a child that is about to put, and kills it (SIGKILL) as it enters the Nth call of a kind. The tests
do this for each N. After it, the object must be whole or not there, and a second put must succeed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ExistsError, NotFoundError
from replica_clients.file import FileStore
from tests.waiting import WAIT_SECONDS
from tests.warm import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.warm import Warm

KEY = "generations/0000000100000000/wal/0000000000000000/0000000000000000.wal.lz4"
BODY = bytes(range(256)) * 40
CALLS = ("openat", "mkdir", "mkdirat", "writev", "fdatasync", "fsync", "linkat", "renameat", "unlinkat")
MAX_CALLS = 60
"""More calls of one kind than a put makes: a walk that reaches it would not end."""
CHILD = """
import os, sys
from litelog.errors import StoreError
from replica_clients.file import FileStore
root, unnamed, before, key = sys.argv[1:]
store = FileStore(root, unnamed=unnamed == "unnamed")
body = [bytes(range(256))] * 40
if before == "warm":
    store.put(key + ".before", body)
os.write(1, b"ready\\n")
os.read(0, 1)
try:
    store.put(key, body)
except StoreError as error:
    os.write(2, str(error).encode())
    os._exit(7)
os._exit(0)
"""


def why_not() -> str | None:
    """Why calls cannot be injected here; None if they can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    attempt = ["strace", "-f", "-o", os.devnull, "-e", "trace=getppid", "-e", "inject=getppid:error=EPERM", "true"]
    done = subprocess.run(attempt, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
    return None if done.returncode == 0 else f"strace may not trace here: {done.stderr.strip()}"


REASON = why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))


def put_with(warm: Warm, root: Path, unnamed: str, injection: str, before: str = "cold") -> tuple[int, str]:
    """A child's put under ``injection``: (exit status, negative for a signal; its standard error)."""
    call = injection.partition(":")[0]
    tracing = ["-o", os.devnull, "-e", f"trace={call}", "-e", f"inject={injection}"]
    return put_under(warm, root, unnamed, before, tracing)


def put_under(warm: Warm, root: Path, unnamed: str, before: str, options: list[str]) -> tuple[int, str]:
    """A child's put under strace with ``options``: (exit status, its standard error).

    ``before``: with "warm", the child's store has put another object there before."""
    with warm.start(CHILD, str(root), unnamed, before, KEY, cwd=ROOT) as child:
        assert child.stdout.readline() == "ready\n"
        tracer = subprocess.Popen(["strace", "-f", *options, "-p", str(child.pid)], stderr=subprocess.PIPE)
        try:
            assert tracer.stderr is not None
            line = tracer.stderr.readline()
            if b"attached" not in line:
                pytest.skip(f"strace may not attach here: {line.decode().strip()}")
            _, said = child.communicate("x", timeout=WAIT_SECONDS)
            tracer.communicate(timeout=WAIT_SECONDS)  # the trace is whole when strace has ended
        finally:
            child.kill()
            tracer.kill()
            tracer.communicate()
    assert child.returncode is not None
    return child.returncode, said


CALL = re.compile(r"(\w+)\(")
LOOK = re.compile(r"(getpid|fstat|newfstatat)\(")
"""Calls that change nothing."""


@pytest.mark.parametrize(
    ("unnamed", "wanted"),
    [
        ("unnamed", "openat openat close openat writev fdatasync linkat close fsync close"),
        ("named", "openat openat close openat writev fdatasync linkat close unlinkat fsync close"),
    ],
)
def test_bytes_are_synced_before_their_name_is_made_and_the_folder_after(
    tmp_path: Path, warm: Warm, unnamed: str, wanted: str
) -> None:
    trace = tmp_path / "trace"
    status, _ = put_under(warm, tmp_path / "root", unnamed, "warm", ["-o", str(trace), "-y"])
    lines = [line for line in trace.read_text().splitlines() if CALL.search(line) and not LOOK.search(line)]
    calls = [CALL.findall(line)[0] for line in lines]
    first = next(number for number, line in enumerate(lines) if "openat(" in line)
    last = len(calls) - calls[::-1].index("close")
    assert status == 0
    assert calls[first:last] == wanted.split()
    folder = str(tmp_path / "root" / os.path.dirname(KEY))
    assert f"<{folder}>)" in next(line for line in lines[first:] if "fsync(" in line and "fdatasync" not in line)


@pytest.mark.parametrize("unnamed", ["unnamed", "named"])
def test_each_new_folder_is_synced_into_its_parent_before_it_is_used(tmp_path: Path, warm: Warm, unnamed: str) -> None:
    trace = tmp_path / "trace"
    status, _ = put_under(
        warm, tmp_path / "root", unnamed, "cold", ["-o", str(trace), "-y", "-e", "trace=mkdir,mkdirat,fsync,writev"]
    )
    text = trace.read_text()
    assert status == 0
    at = 0
    parts = KEY.split("/")[:-1]
    for count in range(len(parts) + 1):
        made = tmp_path.joinpath("root", *parts[:count])
        call = f', "{"/".join(parts[:count])}"' if count else f'mkdir("{made}"'
        at = text.index(call, at)
        at = text.index(f"<{made.parent}>)", at)
    assert text.index("writev(") > at


def body_of(store: FileStore, key: str) -> bytes | None:
    try:
        with closing(store.open(key)) as stream:
            return stream.read()
    except NotFoundError:
        return None


@pytest.mark.parametrize("unnamed", ["unnamed", "named"])
def test_a_killed_put_leaves_the_object_whole_or_not_there(tmp_path: Path, warm: Warm, unnamed: str) -> None:
    points: list[tuple[str, int, bool]] = []
    for call in CALLS:
        for number in range(1, MAX_CALLS):
            root = tmp_path / f"{call}-{number}" / "replica"
            status, said = put_with(warm, root, unnamed, f"{call}:signal=KILL:when={number}")
            store = FileStore(str(root))
            body = body_of(store, KEY)
            assert body in {None, BODY}
            assert [(info.key, info.size) for info in store.list("")] == ([] if body is None else [(KEY, len(BODY))])
            if status == 0:
                assert body == BODY
                break
            assert status == -9, said
            points.append((call, number, body is not None))
            try:
                store.put(KEY, [BODY])
            except ExistsError:
                assert body == BODY
            assert body_of(store, KEY) == BODY
            assert [info.key for info in store.list("")] == [KEY]
            if unnamed == "unnamed":
                assert os.listdir(root / os.path.dirname(KEY)) == [os.path.basename(KEY)]
        else:
            pytest.fail(f"{call}: a put does not end within {MAX_CALLS} calls")
    assert {call for call, _, _ in points} >= {"openat", "mkdir", "writev", "fdatasync", "fsync", "linkat"}
    assert {whole for _, _, whole in points} == {True, False}


@pytest.mark.parametrize("unnamed", ["unnamed", "named"])
@pytest.mark.parametrize(
    "injection",
    [
        "openat:error=EMFILE:when=1",
        "openat:error=EACCES:when=2",
        "writev:error=ENOSPC:when=1",
        "fdatasync:error=EIO:when=1",
        "linkat:error=EIO:when=1",
        "linkat:error=EPERM:when=1",
        "fsync:error=EIO:when=1",
    ],
)
def test_a_put_that_fails_says_why_and_leaves_nothing(tmp_path: Path, warm: Warm, unnamed: str, injection: str) -> None:
    status, said = put_with(warm, tmp_path, unnamed, injection, "warm")
    assert status == 7
    assert said.startswith(f"put {KEY}: {tmp_path}: ")
    wanted = {
        "EMFILE": "raise the limit",
        "EACCES": "give the user",
        "ENOSPC": "free some space",
        "EPERM": "no hard links",
        "EIO": "Input/output error",
    }
    assert wanted[injection.split("error=")[1].partition(":")[0]] in said
    assert os.listdir(tmp_path / os.path.dirname(KEY)) == [os.path.basename(KEY) + ".before"]
    store = FileStore(str(tmp_path))
    store.put(KEY, [BODY])
    assert body_of(store, KEY) == BODY


def test_a_short_write_is_continued(tmp_path: Path, warm: Warm) -> None:
    status, said = put_with(
        warm, tmp_path, "unnamed", "writev:retval=3:when=1", "warm"
    )  # it returns 3, and has written nothing
    assert (status, said) == (0, "")
    assert body_of(FileStore(str(tmp_path)), KEY) == BODY[3:]


def test_a_refused_put_syncs_the_folder_for_the_one_that_has_the_name(tmp_path: Path, warm: Warm) -> None:
    FileStore(str(tmp_path)).put(KEY, [BODY])
    status, said = put_with(warm, tmp_path, "unnamed", "fsync:error=EIO:when=1", "warm")
    assert status == 7
    assert "Input/output error" in said
    assert body_of(FileStore(str(tmp_path)), KEY) == BODY
