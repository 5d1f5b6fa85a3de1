"""``litelog completion``: prints a script that completes verbs, options and folders in a shell."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

VARIABLE = "_LITELOG_COMPLETE"

SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command(
    epilog="""\b
Examples:
  litelog completion bash >> ~/.bashrc
  litelog completion zsh >> ~/.zshrc
  litelog completion fish > ~/.config/fish/completions/litelog.fish
"""
)
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes litelog's verbs, options and folders in SHELL."""
    click.echo(SHELLS[shell](ctx.find_root().command, {}, "litelog", VARIABLE).source())
