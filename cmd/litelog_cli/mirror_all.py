"""Mirrors all logs of a daemon whose names match a pattern, and prints a line for each and a summary."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

from litelog.errors import ExitCode
from litelog.units import format_count, format_size
from litelog_cli.logging_setup import say
from litelog_cli.output import echo, error_json, kind_of, print_json
from litelog_cli.progress import watching_status

if TYPE_CHECKING:
    from collections.abc import Sequence
    from threading import Event

    from litelog.errors import LitelogError
    from litelog.restore.mirror_group import MirroredLog
    from litelog.restore.opened_mirror import MirrorRules
    from litelog_cli.configured import ConfiguredReplica


def mirror_all(
    source: ConfiguredReplica,
    folder: str,
    rules: MirrorRules,
    stop: Event,
    arrived: Sequence[int],
    *,
    once: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Mirror the logs until ``stop`` is set, or once. Returns the exit code: the highest of the failures'.

    ``arrived``: the signals that have set ``stop``.
    """
    from litelog.restore.mirror_group import MirrorGroup

    group = MirrorGroup(source.url, source.options, folder, rules)
    with watching_status(quiet=quiet or as_json, look=lambda: _describe(group.logs())):
        if once:
            group.run_once(stop)
        else:
            say(f"mirroring {source.url} (Ctrl-C ends it)", "mirroring", replica=source.url)
            group.run(stop)
    logs = group.logs()
    if not logs:
        where = f"{source.url.partition('/logs/')[0]}/logs"
        said = f"litelog: {source.url}: no served log has such a name; {where} lists the served logs"
        say(said, "nothing-to-do", level=logging.WARNING, replica=source.url)
    for log in logs:
        _print_log(log, arrived, as_json)
    failed = [log.error for log in logs if log.error is not None]
    size = sum(log.appended for log in logs)
    if as_json:
        print_json({"log_count": len(logs), "failed_count": len(failed), "log_bytes": size})
    else:
        lost = f"; {format_count(len(failed), 'log')} failed" if failed else ""
        echo(f"mirrored {format_count(len(logs) - len(failed), 'log')}, {format_size(size)} more{lost}")
    if once and not logs:
        return ExitCode.NOTHING_TO_RESTORE
    return max((_exit_code(error, arrived) for error in failed), default=ExitCode.DONE)


def _exit_code(error: LitelogError, arrived: Sequence[int]) -> int:
    """That of a mirror's failure. A signal before its first restore was complete is one, too."""
    from litelog.restore.wal_restore import RestoreStoppedError

    return 128 + arrived[0] if arrived and isinstance(error, RestoreStoppedError) else int(error.exit_code)


def _describe(logs: Sequence[MirroredLog]) -> str:
    phases = Counter(log.phase.value for log in logs)
    counted = ", ".join(f"{number} {phase}" for phase, number in sorted(phases.items()))
    size = format_size(sum(log.appended for log in logs))
    return f"mirroring {format_count(len(logs), 'log')} ({counted or 'none found yet'}), {size} appended"


def _print_log(log: MirroredLog, arrived: Sequence[int], as_json: bool) -> None:
    position = None if log.position is None else str(log.position)
    if as_json:
        facts: dict[str, Any] = {"log": log.source.name, "replica": log.source.url, "output": log.output}
        if log.error is not None:
            error = log.error
            facts["error"] = error_json(kind_of(error), str(error), _exit_code(error, arrived))
        print_json({**facts, "position": position, "next": log.next, "log_bytes": log.appended})
    elif log.error is not None:
        name = log.source.name
        say(f"litelog: {name}: {log.error}", "mirror-failed", level=logging.ERROR, log=name)
    else:
        echo(f"{log.source.name}: mirrored to {log.output} up to {position}, {format_size(log.appended)} more")
