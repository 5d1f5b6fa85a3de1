"""``litelog replicate --exec`` as a container's entry point: signals, exit codes, orphans."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Command

LISTENER = """
import os, signal, sys
names = ("SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGTERM", "SIGINT")
signals = [getattr(signal, name) for name in names]
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
print("ready", flush=True)
while True:
    got = signal.sigwait(signals)
    print(signal.Signals(got).name, flush=True)
    if got in (signal.SIGTERM, signal.SIGINT):
        sys.exit(42)
"""

PARENT = """
import os, pathlib, subprocess, sys, time
folder = pathlib.Path(sys.argv[1])
# A grandchild that outlives its parent becomes an orphan, and ends then.
orphan = "import os, pathlib, sys, time; p = pathlib.Path(sys.argv[1]) / 'orphan'; p.write_text(str(os.getpid()));\\n" \
    "while os.getppid() == int(sys.argv[2]): time.sleep(0.01)\\n" \
    "pathlib.Path(sys.argv[1], 'parent').write_text(str(os.getppid()))"
middle = "import os, subprocess, sys;" \\
    "subprocess.Popen([sys.executable, '-c', sys.argv[1], sys.argv[2], str(os.getpid())])"
subprocess.run([sys.executable, "-c", middle, orphan, str(folder)], check=True)
while not (folder / "parent").exists() or not (folder / "parent").read_text():
    time.sleep(0.01)
assert (folder / "parent").read_text() == "1", "the orphan came to somebody else"
pid = (folder / "orphan").read_text()
end = time.monotonic() + 240
while os.path.exists(f"/proc/{pid}"):  # gone only when somebody has waited for it
    if time.monotonic() > end:
        sys.exit(99)
    time.sleep(0.01)
sys.exit(23)
"""


def may_unshare() -> bool:
    done = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.parametrize("last", [signal.SIGTERM, signal.SIGINT])
def test_every_signal_reaches_the_program_and_only_two_of_them_mean_us(litelog: Command, last: signal.Signals) -> None:
    litelog.lines(3)
    (litelog.folder / "listener.py").write_text(LISTENER)
    program = shlex.join([sys.executable, str(litelog.folder / "listener.py")])
    process = litelog.start("replicate", "--exec", program, "log", "replica")
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    for name in ("SIGHUP", "SIGUSR1", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGWINCH", last.name):
        process.send_signal(getattr(signal, name))
        assert process.stdout.readline() == f"{name}\n"
    assert process.wait(240) == 42
    assert litelog("generations", "--json", "replica").lines[-1]["next"] == 3


def test_without_a_program_its_signals_keep_their_meaning(litelog: Command) -> None:
    litelog.lines(3)
    process = litelog.start("replicate", "log", "replica")
    litelog.wait_for_line(process, "begins")
    process.send_signal(signal.SIGUSR1)
    assert process.wait(240) == -signal.SIGUSR1


def test_as_pid_1_orphans_are_reaped_and_the_programs_exit_code_is_ours(litelog: Command) -> None:
    if not may_unshare():
        pytest.skip("needs the right to make a PID namespace")
    litelog.lines(3)
    (litelog.folder / "parent.py").write_text(PARENT)
    program = shlex.join([sys.executable, str(litelog.folder / "parent.py"), str(litelog.folder)])
    replicate = [sys.executable, "-m", "litelog_cli", "replicate", "--exec", program, "log", "replica"]
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", *replicate],
        cwd=litelog.folder,
        env=litelog.environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 23, done.stderr
    assert litelog("generations", "--json", "replica").lines[-1]["next"] == 3


def test_as_pid_1_a_program_that_a_signal_ends_gives_128_and_its_number(litelog: Command) -> None:
    if not may_unshare():
        pytest.skip("needs the right to make a PID namespace")
    litelog.lines(3)
    program = "sh -c 'kill -9 $$'"
    replicate = [sys.executable, "-m", "litelog_cli", "replicate", "--exec", program, "log", "replica"]
    command = ["unshare", "--pid", "--fork", "--mount-proc", *replicate]
    done = subprocess.run(command, cwd=litelog.folder, env=litelog.environment, timeout=240, check=False)
    assert done.returncode == 128 + signal.SIGKILL


def test_no_zombie_is_left_while_the_final_sync_continues(litelog: Command) -> None:
    litelog.lines(3)
    (litelog.folder / "replica").write_text("a file where a folder has to be")  # the final sync fails and is retried
    program = f"sh -c 'echo $$ > {litelog.folder}/pid'"
    process = litelog.start("replicate", "--exec", program, "log", "replica")
    litelog.wait_for_line(process, "failure 4 in a row")
    pid = int((litelog.folder / "pid").read_text())
    assert not Path(f"/proc/{pid}").exists()
    assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
