"""How other processes reach the daemon: with TLS, and with tokens that permit only some requests."""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal

from litelog.config.checked_model import Model
from litelog.config.field_types import FILLED, After, Before
from litelog.config.values import at_least_one

ALL = "all"
"""All logs, as ``serve`` and a token's ``logs`` name them."""

Right = Literal["status", "read", "consume"]
"""The rights of a token: ``status`` is the page, the status, health and metrics of all logs; ``read`` is the served
logs; ``consume``, together with ``read``, is to move and delete their consumers."""

RIGHTS: tuple[Right, ...] = ("status", "read", "consume")


def _absolute(path: str) -> str:
    if "\0" in path or not os.path.isabs(path):
        raise ValueError("must be an absolute path")
    return path


def _log_names(value: Any) -> Any:
    if value == ALL or (isinstance(value, list | tuple) and all(isinstance(each, str) and each for each in value)):
        return value
    raise ValueError(f"must be {ALL}, or a list of the names of logs: the last part of each log's path")


_Filled = Annotated[str, FILLED]
AbsolutePath = Annotated[_Filled, After(_absolute)]
LogNames = Annotated[str | tuple[_Filled, ...], Before(_log_names)]


class TlsConfig(Model):
    """The certificate with which the daemon speaks TLS. Both files are read again after a change."""

    certificate: AbsolutePath
    """PEM file with the certificate, and then those of the authorities between it and the root."""
    key: AbsolutePath
    """PEM file with its private key, without a password."""


class TokenConfig(Model):
    """A token that permits only some requests."""

    file: AbsolutePath
    """File whose first line is the token."""
    rights: Annotated[tuple[Right, ...], After(at_least_one)]
    logs: LogNames = ALL
    """The served logs that ``read`` is about."""
