"""Parses command lines from files, to check that the command, its verbs and its options exist."""

from __future__ import annotations

import click

from litelog_cli.main import litelog


def parse_command(arguments: list[str]) -> dict[str, object]:
    """The verb and the parameters that click parses from ``litelog ARGUMENTS``.

    click raises its own errors for a verb or an option that does not exist.
    """
    command: click.Command = litelog
    context: click.Context | None = None
    rest = list(arguments)
    while isinstance(command, click.Group):
        context = command.make_context("litelog", rest, parent=context)
        name, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None, name
        command = found
    return {"verb": command.name, **command.make_context(command.name, rest, parent=context).params}
