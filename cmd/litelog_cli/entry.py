"""The console script. It holds signals from the start, before it imports the command itself."""

from __future__ import annotations

from litelog_cli.signals import HeldSignals


def main() -> None:
    """Run the command, and exit with its code."""
    held = HeldSignals()
    held.hold()
    from litelog_cli.main import main as run_command

    run_command(held)
