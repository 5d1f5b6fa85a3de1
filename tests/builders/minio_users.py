"""Users with policies in a MinIO server, made with its command ``mc``."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING
from uuid import uuid4

from tests.builders.real_servers import KEY_ID, MINIO, SECRET, find_binary, find_lacking

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.builders.real_servers import RealServer


def find_lacking_users() -> str | None:
    """Why no MinIO server with users can be run here; None if one can."""
    if lacking := find_lacking(MINIO):
        return lacking
    command = find_binary("mc")
    if command is None:
        return "MinIO's command mc is not installed (tests/README.md says how to get it)"
    said = subprocess.run([command, "--version"], capture_output=True, text=True, check=False).stdout
    return None if said.startswith("mc version") else f"{command} is another program than MinIO's"


class MinioUsers:
    """The administrator of a server."""

    def __init__(self, server: RealServer) -> None:
        self._folder = server.folder
        self._run("alias", "set", "here", server.endpoint, KEY_ID, SECRET)

    def make(self, policy: Mapping[str, object]) -> dict[str, str]:
        """Make a user with this policy alone; return the credentials, as a replica's options."""
        name, secret = f"user-{uuid4().hex[:12]}", uuid4().hex
        path = self._folder / f"{name}.json"
        path.write_text(json.dumps(policy))
        self._run("admin", "policy", "create", "here", name, str(path))
        self._run("admin", "user", "add", "here", name, secret)
        self._run("admin", "policy", "attach", "here", name, "--user", name)
        return {"access-key-id": name, "secret-access-key": secret}

    def _run(self, *words: str) -> None:
        command = find_binary("mc")
        assert command is not None
        done = subprocess.run(
            [command, "--config-dir", str(self._folder / "mc"), *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr + done.stdout
