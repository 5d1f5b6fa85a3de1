"""``litelog replicate``: ships logs to their replicas while they grow."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from litelog.dataclass import dataclass
from litelog.errors import (
    FencedError,
    FinalSyncError,
    ForeignClaimError,
    InvalidConfigError,
    LitelogError,
    ReplicaLockedError,
)
from litelog.events import fields
from litelog.log.watermark import WatermarkUse
from litelog.objects.layout import Fencing
from litelog_cli.arguments import FORMAT, PLACE
from litelog_cli.config_file import choose_state_dir, config_path, message_lines, read_config
from litelog_cli.daemon_reports import explain_takeover, log_end, log_start, say_shipped
from litelog_cli.event_lines import PATIENCE_SECONDS, EventLines
from litelog_cli.logging_setup import say
from litelog_cli.process import FORWARDED, Child, Reloader, ServiceManager
from litelog_cli.progress import ShippingProgress, quiet_option, watching_progress
from litelog_cli.signals import STOPPING, HeldSignals, acting_on_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from litelog.config import Config
    from litelog.replicator import Replicator
    from litelog.server.service import Service

STOP_GRACE_SECONDS = 10.0
"""Seconds that the service manager grants in addition to the final sync, for opening, closing and reporting."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReplicateOptions:
    """The arguments and options of ``litelog replicate``."""

    log_dir: str | None
    replica_urls: tuple[str, ...]
    config_file: str | None
    format_name: str | None
    pattern: str | None
    sync_interval: str | None
    fencing: str | None
    watermark: str | None
    state_dir: str | None
    addr: str | None
    once: bool
    command: str | None
    takeover: bool
    as_json: bool
    quiet: bool


@click.command(
    epilog="""\b
Examples:
  litelog replicate /var/lib/events file:///backup/events
  litelog replicate /var/log/app file:///backup/app --format lines --pattern 'app-*.log'
  litelog replicate --config /etc/litelog.yml
  litelog replicate --once /var/lib/events file:///backup/events
  litelog replicate --exec 'myserver --port 80' /var/lib/events file:///backup/events
\b
Without LOG_DIR the configuration is read from --config, from $LITELOG_CONFIG
or from /etc/litelog.yml, in this order.
\b
SIGTERM and SIGINT begin the final sync, which ends within shutdown-timeout. A
second signal exits at once. SIGHUP reads the configuration file again, and
applies what changed in it; without a file it begins the final sync. If a
signal arrives during the start, the daemon acts on it as soon as the logs are
open. With --exec the program gets the signals. When it ends, the final sync
follows, and litelog exits with the program's exit code (4 if the program
succeeded and the final sync did not).
\b
Exit codes: 0 the final sync is done, or with --once all is shipped, 1 a log or
replica cannot be replicated, 2 usage or configuration, 4 the final sync failed,
5 fenced: another owner writes there, 6 the log is damaged.
"""
)
@click.argument("log_dir", required=False, type=PLACE)
@click.argument("replica_urls", nargs=-1, type=PLACE)
@click.option("--config", "config_file", type=click.Path(), help="Configuration file.")
@click.option("--format", "format_name", type=FORMAT, help="The log's format.  [default: litelog]")
@click.option("--pattern", metavar="PATTERN", help="Pattern for the names of log segments (formats lines and raw).")
@click.option("--sync-interval", metavar="DURATION", help="Time between two uploads under load.  [default: 1s]")
@click.option(
    "--fencing",
    type=click.Choice([mode.value for mode in Fencing]),
    help="How daemons are kept apart; isolated if the store cannot.  [default: required]",
)
@click.option(
    "--watermark",
    type=click.Choice([use.value for use in WatermarkUse]),
    help="Whether to ship only what the log's writer no longer takes back (format kafka).  [default: checkpoint]",
)
@click.option("--state-dir", metavar="FOLDER", help="Where the daemon keeps its state.")
@click.option(
    "--addr",
    metavar="ADDRESS",
    help="Where to serve status over HTTP: HOST:PORT, unix:/path or off.  [default: as configured]",
)
@click.option("--once", is_flag=True, help="Ship all that the log holds, then exit.")
@click.option("--exec", "command", metavar="COMMAND", help="Run this program, and exit when it ends.")
@click.option("--takeover", is_flag=True, help="Take the replicas over from another owner, once.")
@click.option("--json", "as_json", is_flag=True, help="Print events, and each replica's final state, as JSON lines.")
@quiet_option
def replicate(**arguments: Any) -> int:
    """Ship logs to their replicas while they grow.

    LOG_DIR is a folder of log segments; each REPLICA_URL is a replica of it.
    """
    options = ReplicateOptions(**arguments)
    if options.once and options.command is not None:
        raise click.UsageError("--once and --exec exclude each other")
    settings = {
        "format": options.format_name,
        "pattern": options.pattern,
        "sync-interval": options.sync_interval,
        "fencing": options.fencing,
        "watermark": options.watermark,
    }
    given = {name: value for name, value in settings.items() if value is not None}
    if given and options.log_dir is None:
        raise click.UsageError(f"--{min(given)} needs LOG_DIR and REPLICA_URL; or set it in the configuration")
    config = config_of(options.log_dir, options.replica_urls, options.config_file, given)

    def overridden(config: Config) -> Config:
        return _with_addr(_with_takeover(config, options.takeover), options.addr)

    def read_again() -> Config:
        return overridden(_config_of_file(options.config_file))

    read = read_again if options.log_dir is None else None
    kept_in = choose_state_dir(options.state_dir, config)
    with nullcontext() if read is None else message_lines(config_path(options.config_file)):
        return _replicate(overridden(config), kept_in, options, read)


def _with_takeover(config: Config, takeover: bool) -> Config:
    if not takeover:
        return config
    return config.model_copy(update={"logs": tuple(log.model_copy(update={"takeover": True}) for log in config.logs)})


def _with_addr(config: Config, addr: str | None) -> Config:
    """The configuration with ``addr`` as the address to listen at, if it is given."""
    from litelog.config.models import check_addr

    if addr is None:
        return config
    try:
        return config.model_copy(update={"addr": check_addr(addr)})
    except ValueError as error:
        raise click.BadParameter(f"{addr}: {error}", param_hint="--addr") from None


def config_of(
    log_dir: str | None,
    replica_urls: tuple[str, ...],
    config_file: str | None,
    given: Mapping[str, str] = MappingProxyType({}),
) -> Config:
    """The configuration that a command's arguments name. Raises UsageError and ConfigError.

    ``given``: settings of the log in ``log_dir``, by their options' names.
    """
    if log_dir is None:
        return _config_of_file(config_file)
    if config_file is not None:
        raise click.UsageError("--config and LOG_DIR exclude each other")
    if not replica_urls:
        raise click.UsageError("LOG_DIR needs at least one REPLICA_URL")
    return _config_of_arguments(log_dir, replica_urls, given)


def _config_of_arguments(log_dir: str, urls: tuple[str, ...], given: Mapping[str, str]) -> Config:
    from litelog.config import make_config

    log: dict[str, Any] = {"path": log_dir and os.path.abspath(log_dir), "replicas": [{"url": url} for url in urls]}
    if "fencing" in given:
        log["replicas"] = [{"url": url, "fencing": given["fencing"]} for url in urls]
    log.update({name: given[name] for name in ("format", "pattern", "watermark") if name in given})
    values: dict[str, Any] = {"logs": [log]}
    if "sync-interval" in given:
        values["sync_interval"] = given["sync-interval"]
    try:
        return make_config("command line", values)
    except InvalidConfigError as error:
        spelled = [
            problem.replace("sync_interval:", "--sync-interval:").replace("logs[0].pattern:", "--pattern:")
            for problem in error.problems
        ]
        raise InvalidConfigError("command line", spelled) from None


def _config_of_file(config_file: str | None) -> Config:
    config = read_config(config_file)
    if config is None:
        said = f"nothing to replicate: give LOG_DIR and REPLICA_URL, or --config ({config_path(None)} is not there)"
        raise click.UsageError(said)
    return config


def _replicate(config: Config, state_dir: str, options: ReplicateOptions, read: Callable[[], Config] | None) -> int:
    """Replicate, and return the exit code. ``read``: reads the configuration again; None if it is not from a file."""
    from litelog.replicator import Replicator
    from litelog.replicator.wiring import find_refused
    from litelog.system.memory import collect_new_objects_often, exempt_existing_objects, keep_freed_memory
    from litelog.system.resident import UnusedMemory, return_unused_memory

    held = click.get_current_context().find_object(HeldSignals)
    keep_freed_memory()
    once, command = options.once, options.command
    if command is not None:  # so that an invalid configuration is refused before the program starts
        for _, refused in find_refused(config):
            raise refused
    with EventLines() if options.as_json else nullcontext() as listener:
        manager = ServiceManager(os.environ)
        manager.status("first sync")

        unused = UnusedMemory()

        def turned() -> None:
            unused.look(time.monotonic())
            manager.turned(replicator.is_ready, lambda: _describe(replicator), replicator.is_syncing_first)

        replicator = Replicator(
            config, state_dir=state_dir, host=socket.gethostname(), listener=listener, on_turn=turned
        )
        config_file = None if read is None else os.path.abspath(config_path(options.config_file))
        with nullcontext() if once else _make_service(replicator, config, config_file) as service:
            # With --once, a collection would take 35 ms and free next to nothing.
            (exempt_existing_objects if once else collect_new_objects_often)()
            if not once:
                address = service.address if service is not None else None
                log_start(config, config_file, state_dir, address)
            reloader = None if read is None or once else Reloader(replicator, read)
            return_unused_memory()  # the start's, before the first buffers are taken
            quiet = options.quiet or options.as_json or not once
            shown = watching_progress("replicate", quiet=quiet, look=ShippingProgress(replicator).look)
            with shown:
                session = _Session(replicator, manager, command, reloader, held)
                try:
                    code = session.run(once)
                except FencedError as error:
                    if isinstance(error, ForeignClaimError | ReplicaLockedError):
                        raise  # it says what to do
                    raise explain_takeover(error) from error
            if once and not options.as_json and not options.quiet:
                say_shipped(replicator.status())
            if not once:
                log_end(replicator.status(), session.seconds_since_stop)
        if listener is not None:
            listener.patience = PATIENCE_SECONDS if session.was_signalled else None
            replicator.measure()
            for status in replicator.status():
                listener.ended(status)
    return code


def _describe(replicator: Replicator) -> str:
    """One line for the service manager: what the daemon does."""
    awaited = replicator.awaited_logs()
    count = len(replicator.status())
    said = "replicates to 1 replica" if count == 1 else f"replicates to {count} replicas"
    return f"{said}; waiting for {', '.join(awaited)} to appear" if awaited else said


def _make_service(replicator: Replicator, config: Config, config_file: str | None) -> Service:
    from litelog.server.service import Service, ServiceSettings
    from litelog.system.memory import collect_new_objects_often
    from litelog.system.resident import return_unused_memory

    def settle() -> None:
        """The server's modules come later than the rest: do with them what was done with those."""
        collect_new_objects_often()
        return_unused_memory()

    settings = replace(ServiceSettings.of(config), config_file=config_file, state_dir=replicator.state_dir)
    return Service(replicator, settings, settle)


class _Session:
    """One replicator, the program that runs with it if there is one, and the effect of signals on both."""

    def __init__(
        self,
        replicator: Replicator,
        manager: ServiceManager,
        command: str | None,
        reloader: Reloader | None,
        held: HeldSignals | None,
    ) -> None:
        """``held``: holds the signals that have arrived since the process began."""
        self._reloader = reloader
        self._held = held
        self._replicator = replicator
        self._manager = manager
        self._command = command
        self._signals = 0
        self._stopped_at = time.monotonic()
        self._starting = threading.Lock()  # a signal during the program's start is for the program
        self._child: Child | None = None

    def run(self, once: bool) -> int:
        """Replicate until a signal, or until the program ends. Returns the exit code."""
        with acting_on_signals(self._act, (*STOPPING, *self._other_signals()), self._held):
            with self._starting:
                if self._command is not None:
                    self._child = Child(self._command, self._stop)
            try:
                self._replicator.run(once=once)
            except FinalSyncError as error:
                return self._final_sync_failed(error)
            finally:
                if self._child is not None and self._child.exit_code is None:
                    self._log_stopping()  # the main loop has ended, and the program may take long
                    self._child.end(self._timeout)
        return 0 if self._child is None else self._child.exit_code or 0

    @property
    def was_signalled(self) -> bool:
        """Whether a signal ended the session."""
        return self._signals > 0

    @property
    def _timeout(self) -> float:
        return self._replicator.config.shutdown_timeout  # a reload may have changed it

    def _final_sync_failed(self, error: LitelogError) -> int:
        code = self._child.exit_code if self._child is not None else None
        if not code:
            raise error
        say(f"litelog: {error}", "failed", level=logging.ERROR)
        return code

    @property
    def seconds_since_stop(self) -> float:
        """How long ago the final sync began."""
        return time.monotonic() - self._stopped_at

    def _stop(self) -> None:
        self._stopped_at = time.monotonic()
        self._log_stopping()
        self._replicator.stop()

    def _log_stopping(self) -> None:
        self._manager.stopping(self._timeout + STOP_GRACE_SECONDS)

    def _other_signals(self) -> tuple[signal.Signals, ...]:
        """The signals to act on besides those that always end the session.

        Without a configuration file to read again, SIGHUP comes from a closing terminal, and ends the session. It stays
        ignored if it was ignored at the start (nohup).
        """
        if self._command is not None:
            return FORWARDED
        is_ignored = self._reloader is None and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        return () if is_ignored else (signal.SIGHUP,)

    def _act(self, number: int) -> None:
        with self._starting:
            child = self._child
        if number not in STOPPING and child is not None:
            child.forward(number)
            return
        if number == signal.SIGHUP and self._reloader is not None:
            self._reloader.start()
            return
        self._signals += 1
        if self._signals > 1:
            if child is not None:
                child.kill()
            os._exit(128 + number)
        extra = fields("signal", number=number)
        if child is not None:
            _logger.info("signal %d: forwarded; a second signal ends litelog at once", number, extra=extra)
            child.forward(number)
        else:
            said = "signal %d: final sync, at most %gs; a second signal ends litelog at once"
            _logger.info(said, number, self._timeout, extra=extra)
            self._stop()
