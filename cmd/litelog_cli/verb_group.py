"""The verbs in their groups, and the advice for a mistyped verb or option."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING

import click

from litelog_cli.output import echo_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

GROUPS = {
    "Replicate": {
        "replicate": "Ship logs to their replicas as they grow",
        "status": "Show the state of logs and replicas",
        "sync": "Wait until the current data is replicated",
        "snapshot": "Write a snapshot now",
    },
    "Restore and read": {
        "restore": "Rebuild a log from its replicas",
        "mirror": "Keep an equal copy of a log that grows",
        "cat": "Print the records of a log or a replica",
        "consumers": "List, move and delete named consumers",
    },
    "Inspect": {
        "ls": "List configured logs, or replicas below a URL",
        "generations": "List the generations of a replica",
        "snapshots": "List the snapshots of a generation",
        "segments": "List the log segments of a replica or a log",
        "wal": "List the WAL segments of a generation",
        "verify": "Check all that a replica or a log holds",
    },
    "Maintain": {
        "repair": "Repair the damaged files of a log",
        "copy": "Copy a replica to another store",
        "prune": "Show or delete what retention does not keep",
        "forget": "Stop waiting for a replica",
        "dismiss": "Dismiss the warning of a rewound log",
        "check": "Try whether a replica's store is usable",
        "config": "Check or show a configuration",
        "key": "Make identities, and keys that sign",
        "service": "Print files that run litelog as a service",
    },
    "Other": {
        "append": "Append lines to a log",
        "influxdb": "Write or read a snapshot of InfluxDB's broker",
        "spark": "Read, check, export and maintain on Spark",
        "demo": "See a log survive kill -9",
        "man": "Print a manual page",
        "completion": "Print the script for a shell's completion",
        "version": "Print versions",
    },
}
"""The summary of each verb, by group. A verb is a module of ``verbs`` with a click command of the same name."""

VERBS = tuple(verb for verbs in GROUPS.values() for verb in verbs)

MAX_SUMMARY = 45
"""The most characters of a summary: none is cut on a terminal of 80 columns."""

_MEANT = {
    "databases": "ls",
    "logs": "ls",
    "list": "ls",
    "tail": "cat --follow",
    "run": "replicate",
    "backup": "replicate",
    "ltx": "wal",
    "fsck": "verify",
    "doctor": "check",
}
"""Names that other programs use, and the verb that does the same here."""

_SINGLE_DASH = re.compile("-([a-z][a-z-]+)(=.*)?")


class VerbGroup(click.Group):
    """Imports a verb's module when it is called, so that a small verb does not wait for a large one."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name == help_verb.name:
            return help_verb
        if cmd_name not in VERBS:
            return None
        command: click.Command = getattr(import_module(f"litelog_cli.verbs.{cmd_name}"), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise click.UsageError(f"no verb {args[0]!r}{_suggest(args[0])}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        width = max(map(len, VERBS))
        for title, verbs in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(verb.ljust(width), summary) for verb, summary in verbs.items()])


def _suggest(verb: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(verb, VERBS, 2, cutoff=0.7)
    meant = [_MEANT[verb]] if verb in _MEANT else close
    return f": did you mean {' or '.join(meant)}?" if meant else ""


def dashes_advice(error: click.ClickException, arguments: Sequence[str]) -> str:
    """The advice for an option with one dash, as some other programs take it; empty for any other error."""
    if not isinstance(error, click.NoSuchOption):
        return ""
    typed = (argument for argument in arguments if argument.startswith(error.option_name[:2]))
    option = next((match[1] for argument in typed if (match := _SINGLE_DASH.fullmatch(argument))), None)
    return f"options take two dashes: --{option}" if option else ""


@click.command("help")
@click.argument("verb", required=False)
@click.argument("below", required=False)
@click.pass_context
def help_verb(ctx: click.Context, verb: str | None, below: str | None) -> None:
    """Show the help of litelog or of VERB."""
    root = ctx.find_root()
    shown = root
    for name in filter(None, (verb, below)):
        group = shown.command
        assert isinstance(group, click.Group)
        found, command, _ = group.resolve_command(shown, [name])
        if command is None:
            raise click.UsageError(f"no verb {name!r}", root)
        shown = click.Context(command, info_name=found, parent=shown)
        if not isinstance(command, click.Group):
            break
    echo_lines(shown.get_help().replace("\b", "").splitlines())
