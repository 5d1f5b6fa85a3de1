"""The command that adds an extra to the litelog that is installed here, from wherever that was installed."""

from __future__ import annotations

import json
import shlex
from typing import Any
from urllib.parse import unquote, urlsplit

DISTRIBUTION = "litelog"


def install_command(extra: str, pip: str = "pip") -> str:
    """The command, as a shell takes it.

    A litelog that was installed from a folder, a file or a repository names that again, as an index may hold another
    project of the same name.
    """
    name, origin = _find_distribution()
    return f"{pip} install {_requirement(name, extra, origin)}"


def _requirement(name: str, extra: str, origin: dict[str, Any]) -> str:
    url = origin.get("url")
    if not isinstance(url, str):
        return f"'{name}[{extra}]'"  # as README.md writes it
    parts = urlsplit(url)
    if parts.scheme == "file" and "dir_info" in origin:
        editable = "-e " if origin["dir_info"].get("editable") else ""
        return f"{editable}{shlex.quote(f'{unquote(parts.path)}[{extra}]')}"
    vcs = origin.get("vcs_info", {})
    place = f"{vcs['vcs']}+{url}@{vcs['commit_id']}" if vcs else url
    below = f"#subdirectory={origin['subdirectory']}" if "subdirectory" in origin else ""
    return shlex.quote(f"{name}[{extra}] @ {place}{below}")


def _find_distribution() -> tuple[str, dict[str, Any]]:
    """The installed distribution's name, and where it was installed from as PEP 610 says; empty if from an index."""
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 - slow, and rarely needed

    try:
        found = distribution(DISTRIBUTION)
        origin = json.loads(found.read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return DISTRIBUTION, {}  # it runs from its sources, or the file is damaged
    return found.metadata["Name"], origin if isinstance(origin, dict) else {}
