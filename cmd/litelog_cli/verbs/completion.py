"""``litelog completion``: prints a script that completes verbs, options and folders in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_LITELOG_COMPLETE"


@click.command(
    epilog="""\b
Examples:
  litelog completion bash >> ~/.bashrc
  litelog completion zsh >> ~/.zshrc
  litelog completion fish > ~/.config/fish/completions/litelog.fish
"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes litelog's verbs, options and folders in SHELL."""
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "litelog", VARIABLE).source())
