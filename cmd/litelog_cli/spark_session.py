"""The options that every job of ``litelog spark`` shares, and the Spark session that it runs in."""

from __future__ import annotations

import logging
import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

import click

from litelog.errors import LitelogError
from litelog.events import fields
from litelog_cli.configured import find_replica
from litelog_cli.listed import replica_config_option
from litelog_cli.progress import quiet_option, showing_progress
from litelog_cli.task_errors import find_task_error

if TYPE_CHECKING:
    from collections.abc import Callable

_Command = TypeVar("_Command", bound="Callable[..., Any]")

_logger = logging.getLogger(__name__)


class Assignment(click.ParamType[tuple[str, str]]):
    """A parameter NAME=VALUE."""

    name = "name=value"

    def convert(
        self, value: str | tuple[str, str], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, equals, rest = value.partition("=")
        if not equals or not name.strip():
            self.fail(f"{name!r} has no value: write NAME=VALUE", param, ctx)
        return name.strip(), rest


def session_options(command: _Command) -> _Command:
    """Add the options of every job: where Spark runs, and how it reads."""
    options = [
        click.option("--master", metavar="URL", help="Spark's master.  [default: local[*], or spark-submit's]"),
        click.option(
            "--driver-memory", metavar="SIZE", default="2g", show_default=True, help="Memory of the driver's JVM."
        ),
        click.option("--conf", multiple=True, type=Assignment(), help="A setting of Spark; repeatable."),
        click.option(
            "-o", "--option", multiple=True, type=Assignment(), help="An option of the data source; repeatable."
        ),
        replica_config_option,
        quiet_option,
    ]
    for option in reversed(options):
        command = option(command)
    return command


target_option = click.option(
    "--target-option", multiple=True, type=Assignment(), help="Option of the target's store: s3.NAME or store.NAME."
)


class JobSession:
    """A Spark session for one job. A litelog error keeps its message and exit code, even if a Spark task raised it."""

    def __init__(self, job: str, common: dict[str, Any]) -> None:
        self._job = job
        self._common = common
        self._closing = ExitStack()
        self.spark: Any = None
        self.progress: Callable[[int, int], None] | None = None

    def __enter__(self) -> JobSession:
        from litelog.spark.spark_session import is_active, session

        logging.getLogger("py4j").setLevel(logging.WARNING)
        warnings.filterwarnings("ignore", message="PySpark does not yet", category=FutureWarning)  # pandas: not used
        common = self._common
        is_ours = not is_active()
        level = "ERROR" if _logger.isEnabledFor(logging.DEBUG) else "FATAL"  # traces of errors that are reported anyway
        config = {"spark.log.level": level, **dict(common["conf"])}
        self.spark = session(
            f"litelog {self._job}", master=common["master"], driver_memory=common["driver_memory"], config=config
        )
        if is_ours:
            self._closing.callback(self.spark.stop)
        self.progress = self._closing.enter_context(showing_progress(self._job, quiet=common["quiet"]))
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._closing.close()
        raised = None
        if isinstance(error, Exception) and not isinstance(error, LitelogError):
            raised = find_task_error(str(error))
        if raised is not None:
            said = "%s: raised by a Spark task"
            _logger.debug(said, self._job, exc_info=error, extra=fields("task-failed", job=self._job))
            raise raised from None


def find_place(replica_url: str, common: dict[str, Any]) -> tuple[str, dict[str, object]]:
    """The replica's URL, and the options of the data source: those of the command override the configured ones."""
    replica = find_replica(replica_url, common["config_file"])
    return replica.url, {
        **{f"store.{name}": value for name, value in replica.options.items()},
        **dict(common["option"]),
    }


def fleet_options(common: dict[str, Any]) -> dict[str, object]:
    """The options of the data source for several replicas. Raises UsageError if a configuration is given."""
    if common["config_file"] is not None:
        raise click.UsageError(
            "--config has the options of one replica only: give the options of several with -o store.NAME=VALUE"
        )
    return dict(common["option"])
