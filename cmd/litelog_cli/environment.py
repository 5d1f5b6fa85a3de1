"""What ``${VARIABLES}`` of the configuration stand for: environment variables, and credentials that systemd gives."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from litelog.errors import ConfigError
from litelog.system.regular_files import read_regular

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
