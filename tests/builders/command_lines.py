"""Checks command lines that stand in files: whether the command, its verbs and its options exist."""

from __future__ import annotations

import click

from litelog_cli.main import litelog


def parse_command(arguments: list[str]) -> dict[str, object]:
    """What ``litelog ARGUMENTS`` means to the verb that it names; click's errors for what does not exist."""
    command: click.Command = litelog
    context: click.Context | None = None
    rest = list(arguments)
    while isinstance(command, click.Group):
        context = command.make_context("litelog", rest, parent=context)
        name, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None, name
        command = found
    return {"verb": command.name, **command.make_context(command.name, rest, parent=context).params}
