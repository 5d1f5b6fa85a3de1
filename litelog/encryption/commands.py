"""Commands with which a person lets a key service wrap and unwrap keys."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from litelog.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMEOUT_SECONDS = 60.0
MAX_OUTPUT_BYTES = 16 << 10


def run_command(command: Sequence[str], given: bytes, name: str) -> bytes:
    """The standard output of a command that gets ``given`` as its standard input. Nothing of either is logged.

    Args:
        command: The program and its arguments; no shell runs it.
        given: The bytes of its standard input.
        name: What configures the command, for errors.

    Raises:
        ConfigError: It cannot be started, fails, does not end within a minute, or writes nothing or too much.
    """
    import subprocess  # noqa: PLC0415 - takes 10 ms, and few replicas need it

    spelled = shlex.join(command)
    try:
        done = subprocess.run(command, input=given, capture_output=True, timeout=TIMEOUT_SECONDS, check=False)  # noqa: S603
    except OSError as error:
        raise ConfigError(f"{name}: {spelled} cannot be started ({error.strerror})") from error
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"{name}: {spelled} did not end within {TIMEOUT_SECONDS:.0f} s") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()[-500:]
        raise ConfigError(f"{name}: {spelled} ended with exit code {done.returncode}{f': {said}' if said else ''}")
    if not 0 < len(done.stdout) <= MAX_OUTPUT_BYTES:
        raise ConfigError(f"{name}: {spelled} wrote {len(done.stdout)} bytes, not 1 to {MAX_OUTPUT_BYTES}")
    return done.stdout
