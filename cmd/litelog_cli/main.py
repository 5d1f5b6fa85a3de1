"""The command's entry point: parses the arguments, runs the verb, and turns errors into exit codes."""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from litelog.errors import ExitCode, LitelogError
from litelog.system.memory import collect_seldom, exempt_existing_objects
from litelog.version import VERSION
from litelog_cli.logging_setup import LEVELS, LogLineFormat, asks_json, logs_json, say, set_up_logging
from litelog_cli.output import STANDARD_OUTPUT, echo, echo_lines, kind_of, print_json_error
from litelog_cli.signals import HeldSignals
from litelog_cli.verb_group import VerbGroup, dashes_advice

if TYPE_CHECKING:
    from collections.abc import Sequence

DAEMONS = ("replicate",)
"""The verbs that are daemons: without a terminal, a program collects their log lines."""

INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""

BROKEN_PIPE = 141
"""128 + SIGPIPE: the reader of the output is gone."""

EXIT_CODES = """\b
Exit codes: 0 done, 1 failure, 2 usage or configuration, 3 nothing to restore,
4 final sync failed, 5 fenced (another owner writes there), 6 corruption.
"""


class OutputGoneError(Exception):
    """The reader of the output is gone. Not a BrokenPipeError, for which click would exit with code 1."""


class _Litelog(VerbGroup):
    """The command's verbs. A verb ends when the reader of its output is gone."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise OutputGoneError from error


def _print_version(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        echo(f"litelog {VERSION}")
        ctx.exit()


@click.group(
    cls=_Litelog,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  litelog demo                                              try everything in a temporary folder
  litelog replicate /var/lib/events file:///backup/events   replicate a log while it grows
  litelog restore file:///backup/events -o /var/lib/events  restore it
"""
    + EXIT_CODES,
)
@click.option("-v", "--verbose", is_flag=True, help="Log in detail, and show tracebacks of unexpected errors.")
@click.option(
    "--log-format",
    type=click.Choice([each.value for each in LogLineFormat]),
    default=LogLineFormat.AUTO.value,
    envvar="LITELOG_LOG_FORMAT",
    show_envvar=True,
    help="Log lines as text or JSON; auto is JSON for replicate without a terminal or the journal.  [default: auto]",
)
@click.option(
    "--log-level",
    type=click.Choice(LEVELS),
    envvar="LITELOG_LOG_LEVEL",
    show_envvar=True,
    help="Lowest level to log.  [default: info]",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and exit.",
)
@click.pass_context
def litelog(ctx: click.Context, verbose: bool, log_format: str, log_level: str | None) -> None:
    """Replicate append-only logs as they grow, and restore them byte for byte."""
    level = logging.getLevelNamesMapping()[log_level.upper()] if log_level is not None else logging.INFO
    daemon = ctx.invoked_subcommand in DAEMONS
    if not daemon and (held := ctx.find_object(HeldSignals)) is not None:
        held.release()
    set_up_logging(logging.DEBUG if verbose else level, LogLineFormat(log_format), daemon=daemon)


def main(held: HeldSignals | None = None) -> None:
    """Run the command, and exit with its code. ``held``: holds signals until a daemon can act on them."""
    collect_seldom()
    _prepare_streams()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # else NumPy starts a thread for each processor
    code = run(sys.argv[1:], held=held)
    exempt_existing_objects()
    if any(thread is not threading.current_thread() and not thread.daemon for thread in threading.enumerate()):
        # The verb left threads that wait for a disk or a network, possibly forever.
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _prepare_streams() -> None:
    """Reopen closed standard streams on /dev/null, so that the next file opened does not become one of them.

    Otherwise messages would be written into a log. Writing to such an output fails; such an error output is discarded.
    """
    for descriptor, mode in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)  # the lowest free one: this descriptor
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - open until the process ends
    elif isinstance(getattr(sys.stdout, "buffer", None), io.RawIOBase):
        # Under python -u, a write may take only part of the text, and callers do not check how much.
        sys.stdout = open(1, "w", encoding=sys.stdout.encoding, buffering=1, closefd=False)  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as for standard error: names may not be UTF-8
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def run(  # noqa: PLR0911 - one for each kind of end
    arguments: Sequence[str], command: click.Command = litelog, held: HeldSignals | None = None
) -> int:
    """Run the command and return its exit code. Messages go to standard error."""
    try:
        code = command.main(list(arguments), prog_name="litelog", standalone_mode=False, obj=held)
        sys.stdout.flush()
    except click.exceptions.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        advice = dashes_advice(error, arguments)
        kind = "usage" if isinstance(error, click.UsageError) else "failure"
        _print_failure(arguments, kind, advice or error.format_message(), error.exit_code)
        if asks_json():
            return _fail([advice or error.format_message()], error.exit_code)
        if advice:
            error = click.UsageError(advice, getattr(error, "ctx", None))
        shown = io.StringIO()
        error.show(shown)
        echo_lines(shown.getvalue().splitlines(), err=True)
        return error.exit_code
    except LitelogError as error:
        lines = error.lines or [str(error)]
        _print_failure(arguments, kind_of(error), "\n".join(lines), error.exit_code)
        return _fail(lines, error.exit_code)
    except KeyboardInterrupt:
        return INTERRUPTED
    except (BrokenPipeError, OutputGoneError, SystemExit):  # SystemExit: click found the pipe closed
        return _give_up_output()
    except OSError as error:
        place = error.filename or _failing_output(error)
        message = f"{place}: {error.strerror}" if place else str(error)
        _print_failure(arguments, "system", message, ExitCode.FAILURE)
        return _fail([message], trace=_verbose(arguments))
    except Exception as error:  # noqa: BLE001 - the last resort: a line for people, the traceback for -v
        hint = "" if _verbose(arguments) else " (litelog -v shows where)"
        message = f"unexpected error: {type(error).__name__}: {error}"
        _print_failure(arguments, "unexpected", message, ExitCode.FAILURE)
        return _fail([f"{message}{hint}"], trace=_verbose(arguments))
    return code if isinstance(code, int) else ExitCode.DONE


def _print_failure(arguments: Sequence[str], kind: str, message: str, code: int) -> None:
    """Print an error as JSON on standard output too, for a program that asked for JSON and reads only that."""
    if "--json" in arguments:
        with suppress(OSError, ValueError):  # the output may be what failed
            print_json_error(kind, message, int(code), is_event=any(verb in arguments for verb in DAEMONS))
            sys.stdout.flush()


def _fail(lines: Sequence[str], code: int = ExitCode.FAILURE, *, trace: bool = False) -> int:
    if trace and not logs_json():
        echo_lines(traceback.format_exc().splitlines(), err=True)
    try:
        sys.stdout.flush()
    except OSError:
        _give_up_output()
    more = lines[1:]
    message = "\n".join(lines) if logs_json() else lines[0]
    say(f"litelog: {message}", "failed", level=logging.ERROR, trace=trace, exit_code=int(code))
    if not logs_json():
        echo_lines(more, err=True)
    return int(code)


def _failing_output(error: OSError) -> str | None:
    """``standard output`` if writing to it fails, or failed for click, which prints a long help at once and then has
    nothing left to write; None otherwise. A full disk there is then not mistaken for the log's."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    if frame.f_code is click.echo.__code__ and not frame.f_locals.get("err"):
        return STANDARD_OUTPUT
    try:
        sys.stdout.flush()
    except OSError:
        return STANDARD_OUTPUT
    return None


def _verbose(arguments: Sequence[str]) -> bool:
    return any(argument in ("-v", "--verbose") for argument in arguments)


def _give_up_output() -> int:
    # Otherwise the interpreter would flush the buffered output again at its exit, and fail with a traceback.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return BROKEN_PIPE
