"""Which configuration file a verb reads, what its ``${VARIABLES}`` are, and where the daemon keeps its state."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from litelog.errors import ConfigError, InvalidConfigError
from litelog.system.regular_files import read_regular

if TYPE_CHECKING:
    from litelog.config import Config

DEFAULT_CONFIG = "/etc/litelog.yml"


def config_path(given: str | None) -> str:
    """The file that ``--config`` names, else LITELOG_CONFIG, else the one at the usual place."""
    return given or os.environ.get("LITELOG_CONFIG") or DEFAULT_CONFIG


def read_config(given: str | None) -> Config | None:
    """What is configured; None where nobody named a file and there is none at the usual place. ConfigError."""
    path, named = config_path(given), given or os.environ.get("LITELOG_CONFIG")
    return load(path) if named or os.path.exists(path) else None


def load(path: str) -> Config:
    """The configuration in a file. ConfigError."""
    from litelog.config import load_config

    return load_config(Path(path), variables())


def load_checked(path: str) -> Config:
    """As ``load``, and checked by the formats and replica clients that it names, too."""
    from litelog.config import load_config
    from litelog.replicator.wiring import find_refused

    return load_config(Path(path), variables(), find_refused)


@contextmanager
def telling_lines(path: str) -> Iterator[None]:
    """What is raised inside of a value in the file that only a format or a client refuses gets its line and key."""
    try:
        yield
    except InvalidConfigError:
        raise
    except ConfigError:
        load_checked(path)
        raise


def choose_state_dir(given: str | None, config: Config | None) -> str:
    """Where the daemon keeps its state: as ``--state-dir`` says, else as configured."""
    from litelog.log.replica_registry import default_state_dir

    return given or (config.state_dir if config is not None else None) or default_state_dir()


CREDENTIALS = "CREDENTIALS_DIRECTORY"
"""The variable that names the folder with the credentials of ``LoadCredential=``."""

MAX_CREDENTIAL_BYTES = 1 << 20
"""What systemd takes of all of them together."""


class Variables(Mapping[str, str]):
    """Variables by name: those of the environment, and the files in its credentials folder. The environment's count
    first; a file is read when it is asked for, without the line break at its end."""

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
    """Those of this process."""
    return Variables(os.environ)
