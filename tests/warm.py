"""Python programs that start warm: one process imports what they need, and forks for each of them.

Each run is a process with its own arguments, folder, environment, streams, session and exit status. What
differs from a start is that modules are imported already; that variables which an interpreter reads as it starts
(``PYTHON...``, a locale) have no effect (``reads_at_start`` finds those); and that modules are not taken apart at the
end, which takes longer than most programs: threads, exit handlers and what is still to be written are waited for.

``python -m tests.warm DESCRIPTOR PACKAGES...`` is the process that forks.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Self

COLD_STARTS = os.environ.get("LITELOG_TEST_COLD_STARTS", "") not in ("", "0")
"""Whether an interpreter is started for each command anyway."""

ROOT = Path(__file__).parents[1]
MESSAGE_BYTES = 1 << 17
"""What one datagram takes: arguments, an environment, a script."""

PACKAGES = ("litelog", "replica_clients", "litelog_cli")
"""The packages that the command needs."""

STREAMS = 3
"""Standard input, output and error: the first descriptors that come with a request; then the status and the gate."""

START_SECONDS = 240
"""An end takes less, however busy the machine is."""


def reads_at_start(environment: Iterable[str]) -> bool:
    """Whether an interpreter reads any of these variables when it starts."""
    return any(name.startswith(("PYTHON", "LC_", "LANG")) for name in environment)


class Warm:
    """A process that has imported ``packages`` and forks for each program that is started."""

    def __init__(self, packages: Iterable[str]) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MESSAGE_BYTES)
        command = [sys.executable, "-m", "tests.warm", str(theirs.fileno()), *packages]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # a process that forks has one thread
        self._process = subprocess.Popen(command, cwd=ROOT, env=environment, pass_fds=[theirs.fileno()])
        theirs.close()

    @property
    def control(self) -> int:
        """The descriptor of the socket that takes requests, for a child that forwards its own requests."""
        return self._control.fileno()

    def start(
        self,
        program: str,
        *arguments: str,
        cwd: str | Path,
        environment: Mapping[str, str] | None = None,
        held: bool = False,
    ) -> Started:
        """Start ``program`` (``-m MODULE``, or a script); ``environment``: this process's own unless it is given.
        ``held``: it waits for ``release`` before all else."""
        ours, theirs = zip(*(_pipe(forward=number == 0) for number in range(STREAMS)), strict=True)
        status, their_status = os.pipe()
        their_gate, gate = os.pipe()
        request = [program, arguments, str(cwd), dict(os.environ if environment is None else environment)]
        socket.send_fds(self._control, [json.dumps(request).encode()], [*theirs, their_status, their_gate])
        for descriptor in (*theirs, their_status, their_gate):
            os.close(descriptor)
        started = Started([program, *arguments], ours, status, gate)
        if not held:
            started.release()
        return started

    def spawn(
        self,
        program: str,
        *arguments: str,
        cwd: str | Path = ROOT,
        environment: Mapping[str, str] | None = None,
        cold: bool = False,
    ) -> Running:
        """The same; or start an interpreter, if ``cold``, or if it is to read variables that ``environment`` adds."""
        given = dict(os.environ if environment is None else environment)
        added = (name for name, value in given.items() if os.environ.get(name) != value)
        if not (cold or COLD_STARTS or reads_at_start(added)):
            return self.start(program, *arguments, cwd=cwd, environment=given)
        how = program.split(" ") if program.startswith("-m ") else ["-c", program]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = [sys.executable, *how, *arguments]
        return subprocess.Popen(command, cwd=cwd, env=given, text=True, start_new_session=True, **pipes)

    def close(self) -> None:
        """End it, and every program that it started."""
        self._control.close()
        self._process.wait(START_SECONDS)


def _pipe(*, forward: bool) -> tuple[int, int]:
    """(our end, their end)."""
    reading, writing = os.pipe()
    return (writing, reading) if forward else (reading, writing)


class Started:
    """A program that a warm process started; used as a ``subprocess.Popen`` with text streams."""

    def __init__(self, arguments: list[str], streams: tuple[int, ...], status: int, gate: int) -> None:
        self.returncode: int | None = None
        self._arguments = arguments
        self._gate: int | None = gate
        self._status = os.fdopen(status, "rb")
        self.stdin = os.fdopen(streams[0], "w")
        self.stdout = os.fdopen(streams[1], "r")
        self.stderr = os.fdopen(streams[2], "r")
        first = self._status.readline()
        assert first, "the warm process is gone"
        self.pid = int(first)

    def release(self) -> None:
        """Let it begin."""
        assert self._gate is not None
        os.close(self._gate)
        self._gate = None

    def poll(self) -> int | None:
        """Its exit status, or minus the signal that killed it; None while it runs."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended; its exit status."""
        code = self._look(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self._arguments, timeout)
        return code

    def _look(self, seconds: float | None) -> int | None:
        if self.returncode is None:
            ended = select.poll()  # select takes no descriptor above 1023
            ended.register(self._status, select.POLLIN)
            if ended.poll(None if seconds is None else seconds * 1000):
                with self._status:
                    self.returncode = int(self._status.readline() or -signal.SIGKILL)
        return self.returncode

    def communicate(self, text: str = "", timeout: float | None = None) -> tuple[str, str]:
        """Give it ``text`` as its standard input; what it wrote until it ended."""
        said = ["", ""]

        def read(number: int, stream: IO[str]) -> None:
            said[number] = stream.read()

        def write() -> None:
            if not self.stdin.closed:
                with suppress(BrokenPipeError), self.stdin:
                    self.stdin.write(text)

        works: list[tuple[Any, ...]] = [(write,), (read, 0, self.stdout), (read, 1, self.stderr), (self.wait,)]
        threads = [threading.Thread(target=work[0], args=work[1:], daemon=True) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout)
            if thread.is_alive():
                self.kill()
                assert timeout is not None
                raise subprocess.TimeoutExpired(self._arguments, timeout, "".join(said))
        self.stdout.close()
        self.stderr.close()
        return said[0], said[1]

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, and what it started, unless it has ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        if self._gate is not None:
            self.release()
        with suppress(BrokenPipeError):
            self.stdin.close()
        for stream in (self.stdout, self.stderr, self._status):
            stream.close()


Running = subprocess.Popen[str] | Started
"""A program, whichever way it was started."""


def serve(control: socket.socket) -> Callable[[], None] | None:
    """Fork for each request until the tests have ended. In a child: what it is to do."""
    children: dict[int, int] = {}
    woken, waking = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waking)
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if woken in ready:
                os.read(woken, 1 << 12)
            _report(children)
            if control.fileno() not in ready:
                continue
            message, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES, STREAMS + 2)
            if not message:
                break
            pid = os.fork()
            if pid == 0:
                for status in children.values():
                    os.close(status)
                for kept in (control.detach(), woken, waking):
                    os.close(kept)
                return _child(json.loads(message), descriptors)
            status = descriptors[STREAMS]
            children[pid] = status
            os.write(status, b"%d\n" % pid)
            for descriptor in descriptors:
                if descriptor != status:
                    os.close(descriptor)
    for pid in children:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    return None


def _report(children: dict[int, int]) -> None:
    """Say of each child that ended how it did."""
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with suppress(BrokenPipeError), os.fdopen(children.pop(pid), "wb") as file:
            file.write(b"%d\n" % os.waitstatus_to_exitcode(status))


def _child(request: list[Any], descriptors: list[int]) -> Callable[[], None]:
    """Take a program's place: what it is to do, from the top of the stack."""
    program, arguments, folder, environment = request
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    *streams, status, gate = descriptors
    os.close(status)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    _renew_streams()
    sys.argv[:] = [program, *arguments]

    def run() -> None:
        os.read(gate, 1)
        os.close(gate)
        if program.startswith("-m "):
            module = import_module(program.removeprefix("-m "))
            (import_module(f"{module.__name__}.__main__") if hasattr(module, "__path__") else module).main()
        else:
            sys.argv[0] = "-c"
            exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})

    return run


def _run(program: Callable[[], None]) -> int:
    """Run a program to its end, as an interpreter does; its exit status."""
    code: object = 0
    try:
        try:
            program()
        finally:
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
    except SystemExit as error:
        code = error.code
    except BaseException:  # noqa: BLE001 - whatever a program dies of
        traceback.print_exc()
        code = 1
    if not isinstance(code, int | None):
        sys.stderr.write(f"{code}\n")
        code = 1
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        code = 120
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    return code or 0


def _renew_streams() -> None:
    """New objects for the standard streams, as an interpreter makes them for files and pipes."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        encoding, errors = old.encoding, old.errors
        new = open(number, "w" if number else "r", encoding=encoding, errors=errors, closefd=False)  # noqa: SIM115
        if number == STREAMS - 1:
            new.reconfigure(line_buffering=True)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def _import_all(packages: Iterable[str]) -> None:
    """Import packages with what is in them, except for Spark: what starts there takes seconds anyway."""
    for package in packages:
        paths = import_module(package).__path__
        for found in pkgutil.walk_packages(paths, f"{package}."):
            if "spark" not in found.name and not found.name.endswith("__main__"):
                with suppress(ImportError):  # an extra that is not installed
                    import_module(found.name)


def _read_models() -> None:
    """Have botocore read its description of S3, which each child that makes a client would read again."""
    with suppress(ImportError):
        from replica_clients.s3 import open_store

        open_store("s3://bucket/log", {"access-key-id": "a", "secret-access-key": "b", "region": "eu-west-1"}).close()


if __name__ == "__main__":
    _import_all(sys.argv[2:])
    _read_models()
    gc.collect()
    gc.freeze()
    if (program := serve(socket.socket(fileno=int(sys.argv[1])))) is not None:
        os._exit(_run(program))
