"""A machine with a real systemd: a container of this machine's programs, with its own changes and network."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy
import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_SECONDS = 240

PRIVATE_MOUNTS = ["unshare", "--mount", "--propagation", "private"]

OVERLAY = """\
set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
for used in var/lib/litelog var/lib/events var/backups/events etc/litelog.yml etc/litelog opt/litelog; do
  rm -rf "$1/root/$used"
done
"""
"""A copy of the root file system that only this process and its children see, and that ends with them."""

SCRIPT_UNIT = """\
[Unit]
Description=the script of a test
DefaultDependencies=no
SuccessAction=exit-force
FailureAction=exit-force

[Service]
Type=oneshot
Environment=PATH=/exchange/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
WorkingDirectory=/exchange/work
ExecStart=/bin/bash -euo pipefail /exchange/script
StandardOutput=file:/exchange/out
StandardError=file:/exchange/err
"""
"""The unit that systemd starts instead of a usual target. When its script ends, the machine does, too."""

VENV = f"""\
#!/bin/sh
# Makes a virtual environment as python3 does, whose pip installs this checkout without a registry.
[ "$1 $2" = "-m venv" ] || exec /python/bin/python3 "$@"
set -e
/python/bin/python3 -m venv --without-pip "$3"
printf '%s\\n' /checkout /checkout/cmd /packages > \
  "$3"/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages/tests.pth
cp /exchange/pip "$3/bin/pip"
"""

PIP = """\
#!/bin/sh
set -e
case "$*" in
  "install .[s3]" | "install --upgrade .[s3]" | "install --no-cache-dir .[s3]") test -e pyproject.toml ;;
  *) echo "this pip cannot: $*" >&2; exit 2 ;;
esac
bin=$(cd "$(dirname "$0")" && pwd)
cat > "$bin/litelog" <<END
#!/bin/sh
LD_LIBRARY_PATH=/python/lib exec $bin/python3 -m litelog_cli "\\$@"
END
chmod 755 "$bin/litelog"
"""


@cache
def reason_against() -> str | None:
    """Why no such machine can run here; None if one can."""
    if os.geteuid():
        return "only root may start a container"
    for program in ("systemd-nspawn", "unshare"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    if not os.path.exists("/lib/systemd/systemd"):
        return "systemd is not installed"
    tried = subprocess.run(
        [*PRIVATE_MOUNTS, "sh", "-c", OVERLAY, "sh", "/mnt"], capture_output=True, text=True, check=False
    )
    return f"cannot mount an overlay: {tried.stderr.strip()}" if tried.returncode else None


class Machine:
    """A machine that boots, runs one script as root, and ends.

    ``/checkout`` is this checkout, read-only. ``programs`` are put first on the path, beside a ``python3`` that makes
    virtual environments in which ``pip install '.[s3]'`` installs what the tests use.
    """

    def __init__(self, folder: Path, programs: dict[str, str] | None = None) -> None:
        reason = reason_against()
        if reason is not None:
            pytest.skip(f"no real systemd: {reason}")
        self._folder = folder
        self.exchange = folder / "exchange"
        """The folder ``/exchange`` of the machine."""
        for name in ("bin", "work"):
            (self.exchange / name).mkdir(parents=True)
        for name, text in {
            "bin/python": '#!/bin/sh\nexec python3 "$@"\n',
            "bin/python3": VENV,
            "pip": PIP,
            **{f"bin/{k}": v for k, v in (programs or {}).items()},
        }.items():
            program = self.exchange / name
            program.write_text(text)
            program.chmod(0o755)

    def run(self, script: str) -> tuple[int, str, str]:
        """Boot, and run the script with ``bash -euo pipefail``. Returns its exit status, output and error output."""
        (self.exchange / "script").write_text(script)
        (self.exchange / "script.service").write_text(SCRIPT_UNIT)
        mounts = self._folder / "mounts"
        mounts.mkdir()
        boot = [
            "systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--private-network", "--link-journal=no",
            "--console=pipe", f"--machine=litelog-tests-{os.getpid()}", f"--directory={mounts / 'root'}",
            *self._binds(), "--boot", "systemd.unit=script.service",
        ]  # fmt: skip
        start = f'{OVERLAY}cp {shlex.quote(str(self.exchange / "script.service"))} "$1/root/etc/systemd/system/"\n'
        done = subprocess.run(
            [*PRIVATE_MOUNTS, "sh", "-c", f"{start}exec {shlex.join(boot)}", "sh", str(mounts)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        if not (self.exchange / "out").exists():
            pytest.skip(f"no real systemd: the container did not boot: {(done.stdout + done.stderr).strip()[-300:]}")
        return done.returncode, (self.exchange / "out").read_text(), (self.exchange / "err").read_text()

    def _binds(self) -> Sequence[str]:
        packages = Path(numpy.__file__).parents[1]
        shared = {ROOT: "/checkout", Path(sys.base_prefix): "/python", packages: "/packages"}
        read_only = [f"--bind-ro={source}:{target}" for source, target in shared.items()]
        return [*read_only, f"--bind={self.exchange}:/exchange"]
