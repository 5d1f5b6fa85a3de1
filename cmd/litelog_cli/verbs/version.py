"""``litelog version``: prints what is installed."""

from __future__ import annotations

import importlib.metadata
import json
import platform

import click

from litelog_cli.output import echo


def installed_version() -> str:
    """The installed distribution's version."""
    try:
        return importlib.metadata.version("litelog")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


@click.command(
    epilog="""\b
Examples:
  litelog version
  litelog version --json
"""
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def version(as_json: bool) -> None:
    """Print the versions of litelog, Python and the platform."""
    facts = {
        "litelog": installed_version(),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
    }
    echo(json.dumps(facts) if as_json else "litelog {litelog} (Python {python}, {platform})".format(**facts))
