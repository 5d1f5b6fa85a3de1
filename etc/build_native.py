"""Compiles ``litelog/native`` when litelog is installed, if there is a C compiler: a hook of hatchling.

``CC`` names the compiler, and ``CFLAGS`` adds options to it. With ``LITELOG_NATIVE=0`` nothing is compiled. A wheel
with the library is for the machine's platform, and one without it for any.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sysconfig
import tempfile
import zlib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE, LIBRARY = "litelog/native/walks.c", "litelog/native/libwalks.so.1"


class NativeBuildHook(BuildHookInterface[Any]):
    """Adds the compiled library to a wheel, or to the sources of an editable installation."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile. Without a compiler, the wheel has no library, and litelog does all of the work in Python."""
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        if version == "editable":
            (root / LIBRARY).unlink(missing_ok=True)  # it may be that of another source
            self._compile(root / SOURCE, root / LIBRARY)
            return
        self._folder = tempfile.TemporaryDirectory()
        library = Path(self._folder.name, "libwalks.so.1")
        if self._compile(root / SOURCE, library):
            build_data["force_include"][str(library)] = LIBRARY
            build_data["pure_python"] = False
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"py3-none-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove what was compiled for a wheel, once it is in there."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()

    def _compile(self, source: Path, library: Path) -> bool:
        """Compile the source. Returns whether the library is there."""
        if os.environ.get("LITELOG_NATIVE") == "0":
            return False
        checksum = 0
        for file in sorted((*source.parent.glob("*.c"), *source.parent.glob("*.h"))):
            checksum = zlib.crc32(file.read_bytes(), checksum)
        command = [*shlex.split(os.environ.get("CC", "cc")), "-O2", *shlex.split(os.environ.get("CFLAGS", ""))]
        command += ["-shared", "-fPIC", f"-DSOURCE_CHECKSUM={checksum}u", "-o", str(library), str(source)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603  # the person's compiler
        except (OSError, subprocess.CalledProcessError) as error:
            reason = getattr(error, "stderr", "") or str(error)
            self.app.display_warning(f"litelog without its compiled part, which is slower: {reason.strip()}")
            return False
        return True
