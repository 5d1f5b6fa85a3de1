"""Whether system calls can be traced here, so that a process can be killed at each of them."""

from __future__ import annotations

import shutil
import subprocess
import sys


def why_not_traced() -> str | None:
    """The reason to skip, or None."""
    if sys.platform != "linux" or shutil.which("strace") is None:
        return "strace is not installed"
    tried = subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False)
    return None if tried.returncode == 0 else "strace may not trace here"
