"""``litelog`` for a shell script: the tests' warm process runs the command.

The command has this process's streams, folder and environment, and this process ends with its status. An interpreter
that imports the command's modules takes twenty times as long to start.

``WARM_CONTROL`` is the descriptor of the warm process's socket, which this process inherits from the shell.
``WARM_PROGRAM`` is the program as ``tests/warm.py`` expects it. ``WARM_PIDS`` is a file to which this process adds the
pid of the command.
"""

import json
import os
import signal
import socket
import sys

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> None:
    if "WARM_CONTROL" not in os.environ:  # litelog started a program, which starts litelog
        os.execv(sys.executable, [sys.executable, "-m", "litelog_cli", *sys.argv[1:]])
    status, their_status = os.pipe()
    their_gate, gate = os.pipe()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WARM_")}
    request = json.dumps([os.environ["WARM_PROGRAM"], sys.argv[1:], os.getcwd(), environment]).encode()
    with socket.socket(fileno=int(os.environ["WARM_CONTROL"])) as control:
        socket.send_fds(control, [request], [0, 1, 2, their_status, their_gate])
    for descriptor in (0, 1, 2, their_status, their_gate):
        os.close(descriptor)  # a pipe ends when the command closes it
    with os.fdopen(status, "rb") as said:
        pid = int(said.readline())
        with open(os.environ["WARM_PIDS"], "a") as pids:
            pids.write(f"{pid}\n")
        for number in FORWARDED:
            signal.signal(number, lambda received, _: os.kill(pid, received))
        os.close(gate)
        code = int(said.readline() or -signal.SIGKILL)
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
