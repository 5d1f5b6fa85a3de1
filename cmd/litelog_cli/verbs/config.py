"""``litelog config``: checks a configuration, or shows it with all defaults filled in."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from litelog.errors import ConfigError, ExitCode, InvalidConfigError
from litelog.units import format_count
from litelog_cli.config_file import choose_state_dir, config_path, load, load_checked
from litelog_cli.output import echo, echo_lines, print_json

if TYPE_CHECKING:
    from litelog.config import Config

_FILE_NOTE = """\b
FILE may be -, which is standard input.
Without FILE the configuration is read from $LITELOG_CONFIG or, if that is not
set, from /etc/litelog.yml.
"""

_file_argument = click.argument("file", required=False, type=click.Path())
_file_option = click.option("--config", "config_file", type=click.Path(), help="The same as FILE.")


def _one(file: str | None, config_file: str | None) -> str | None:
    if file is not None and config_file is not None:
        raise click.UsageError("FILE and --config exclude each other")
    return file or config_file


@click.group(
    epilog="""\b
Examples:
  litelog config check /etc/litelog.yml
  litelog config show
"""
)
def config() -> None:
    """Check a configuration, or show it with all defaults filled in."""


@config.command(
    short_help="Check a configuration",
    epilog="""\b
Examples:
  litelog config check
  litelog config check etc/litelog.yml
  litelog config check --json etc/litelog.yml
\b
"""
    + _FILE_NOTE
    + """\b
Exit codes: 0 valid, 2 not valid: each error has its line, its key and, for an
unknown key, the nearest known one.
""",
)
@_file_argument
@_file_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(file: str | None, config_file: str | None, as_json: bool) -> int:
    """Check a configuration: its keys and values, and that formats, replica clients and the HTTP service are installed.

    Contacts no replica: litelog check URL does that.
    """
    from litelog.server.service import require_listenable

    path = config_path(_one(file, config_file))
    try:
        found = load_checked(path)
        if found.addr is not None:
            require_listenable(found.addr, has_token=bool(found.token_file or found.tokens))
    except ConfigError as error:
        if not as_json:
            raise
        if isinstance(error, InvalidConfigError):
            problems, mistakes = error.problems, [asdict(mistake) for mistake in error.mistakes]
        else:
            problems, mistakes = [str(error)], []
        print_json({"config": path, "valid": False, "problems": problems, "mistakes": mistakes})
        return ExitCode.USAGE
    counts = {"entries": len(found.logs), "replica_count": sum(len(log.replicas) for log in found.logs)}
    if as_json:
        print_json({"config": path, "valid": True, "problems": [], "mistakes": [], **counts})
    else:
        held = f"{format_count(counts['entries'], 'entry', 'entries')} of logs"
        echo(f"{path}: valid ({held}, {format_count(counts['replica_count'], 'replica')})")
    return ExitCode.DONE


@config.command(
    short_help="Show a configuration with all defaults",
    epilog="""\b
Examples:
  litelog config show
  litelog config show etc/litelog.yml
  litelog config show --json etc/litelog.yml
\b
"""
    + _FILE_NOTE,
)
@_file_argument
@_file_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, seconds and bytes as numbers.")
def show(file: str | None, config_file: str | None, as_json: bool) -> int:
    """Show a configuration with variables replaced and all defaults filled in. Secrets are hidden.

    A replica's options count as secrets, except for those that are known to be harmless.
    """
    import yaml

    from litelog_cli.config_values import written

    found = load(config_path(_one(file, config_file)))
    values: dict[str, Any] = written(_filled(found), exact=as_json)
    if as_json:
        print_json(values, versioned=False)  # so that it is a configuration itself
    else:
        echo_lines(yaml.safe_dump(values, sort_keys=False, allow_unicode=True).splitlines())
    return ExitCode.DONE


@config.command(
    short_help="Print a configuration that explains every key",
    epilog="""\b
Examples:
  litelog config example > /etc/litelog.yml
  litelog config example | litelog config check -
""",
)
def example() -> None:
    """Print a configuration that explains every key."""
    from litelog_cli.service_files import EXAMPLE_CONFIG, read_service_file

    echo_lines(read_service_file(EXAMPLE_CONFIG).splitlines())


def _filled(found: Config) -> Config:
    """The configuration with the defaults that the command chooses."""
    from litelog.config.models import DEFAULT_ADDR

    left = {"state_dir": choose_state_dir(None, found), "addr": DEFAULT_ADDR}
    return found.model_copy(update={name: value for name, value in left.items() if getattr(found, name) is None})
