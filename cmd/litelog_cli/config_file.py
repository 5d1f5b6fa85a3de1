"""Finds the configuration file that a verb reads, the values of its ``${VARIABLES}``, and the daemon's state folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from litelog.errors import ConfigError, InvalidConfigError
from litelog.system.files import read_regular

if TYPE_CHECKING:
    from pathlib import Path

    from litelog.config import Config

DEFAULT_CONFIG = "/etc/litelog.yml"


def config_path(given: str | None) -> str:
    """The file from ``--config``, else from LITELOG_CONFIG, else the default one."""
    return given or os.environ.get("LITELOG_CONFIG") or DEFAULT_CONFIG


def read_config(given: str | None) -> Config | None:
    """The configuration; None if no file is given and the default one does not exist. Raises ConfigError."""
    path, named = config_path(given), given or os.environ.get("LITELOG_CONFIG")
    return load(path) if named or os.path.exists(path) else None


def load(path: str) -> Config:
    """Load the configuration from a file. Raises ConfigError."""
    from litelog.config import load_config

    return load_config(_source(path), variables())


def _source(path: str) -> Path:
    """``-`` is standard input."""
    from pathlib import Path

    return Path("/dev/stdin" if path == "-" else path)


def load_checked(path: str) -> Config:
    """As ``load``; the formats and replica clients that the configuration names also check it."""
    from litelog.config import load_config
    from litelog.replicator.wiring import find_refused

    return load_config(_source(path), variables(), find_refused)


@contextmanager
def message_lines(path: str) -> Iterator[None]:
    """If a format or a client refuses a value in the block, raise an error with the line and key in the file."""
    try:
        yield
    except InvalidConfigError:
        raise
    except ConfigError:
        load_checked(path)
        raise


def choose_state_dir(given: str | None, config: Config | None) -> str:
    """The daemon's state folder: from ``--state-dir``, else from the configuration."""
    from litelog.log.replica_registry import default_state_dir

    return given or (config.state_dir if config is not None else None) or default_state_dir()


CREDENTIALS = "CREDENTIALS_DIRECTORY"
"""The environment variable that names systemd's folder for the credentials of ``LoadCredential=``."""

MAX_CREDENTIAL_BYTES = 1 << 20
"""The most bytes of a credential: systemd's limit for all of a unit's credentials together."""


class Variables(Mapping[str, str]):
    """Variables from the environment, and from the files in its credentials folder.

    The environment takes precedence. A file is read when it is needed, without the line break at its end.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._folder = environment.get(CREDENTIALS, "")

    def __getitem__(self, name: str) -> str:
        if name in self._environment or not self._folder or "/" in name:
            return self._environment[name]
        path = os.path.join(self._folder, name)
        try:
            text = read_regular(path, MAX_CREDENTIAL_BYTES).decode()
        except FileNotFoundError:
            raise KeyError(name) from None
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error
        except UnicodeDecodeError:
            raise ConfigError(f"{path}: not text") from None
        return text.removesuffix("\n").removesuffix("\r")

    def __iter__(self) -> Iterator[str]:
        yield from self._environment

    def __len__(self) -> int:
        return len(self._environment)


def variables() -> Variables:
    """The variables of this process."""
    return Variables(os.environ)
